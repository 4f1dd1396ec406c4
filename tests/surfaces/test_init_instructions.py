"""`fidelio init --instructions`: a paragraph in files that belong to the people of the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.surfaces.cli.config_files import CannotEdit
from fidelio.surfaces.cli.instructions import PARAGRAPH, add_paragraph, remove_paragraph
from tests.support import proves
from tests.surfaces.conftest import Fidelio

BEGIN, END = PARAGRAPH.splitlines()[0], PARAGRAPH.splitlines()[-1]
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))


@pytest.fixture
def environ(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    unnamed = {name: value for name, value in environ.items() if name != "FIDELIO_HOME"}
    return {**unnamed, "XDG_DATA_HOME": str(tmp_path / "data")}


@proves("cli.init-instructions")
def test_a_file_of_instructions_gets_a_paragraph_once_and_loses_it_again(fidelio: Fidelio, tmp_path: Path) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_text("# Ours\n\nUse tabs.\n")

    first = fidelio("init", "--client", "claude", "--instructions", "AGENTS.md")
    after = file.read_text()
    second = fidelio("init", "--client", "claude", "--instructions", "AGENTS.md")
    again = file.read_text()
    removed = fidelio("init", "--remove-instructions")

    assert "Instructions: AGENTS.md has a paragraph about Fidelio.\n" in first.stdout
    assert after == again == f"# Ours\n\nUse tabs.\n\n{PARAGRAPH}"
    assert "Instructions: AGENTS.md has a paragraph about Fidelio already; it was not changed." in second.stdout
    assert removed.stdout == "Instructions: AGENTS.md no longer has a paragraph about Fidelio.\n"
    assert file.read_text() == "# Ours\n\nUse tabs.\n"
    assert not (tmp_path / "CLAUDE.md").exists()


@proves("cli.init-instructions")
def test_no_file_of_instructions_is_touched_unasked(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("ours")

    done = fidelio("init", "--all")

    assert (tmp_path / "CLAUDE.md").read_text() == "ours"
    assert not (tmp_path / "AGENTS.md").exists()
    assert "--instructions AGENTS.md (a paragraph for agents about the workflows)" in done.stdout


@proves("cli.init-instructions")
@given(TEXTS)
def test_every_other_text_stays_and_comes_back(text: str) -> None:
    added = add_paragraph(text)

    assert added.startswith(text)
    assert add_paragraph(added) == added
    assert remove_paragraph(added).rstrip("\n") == text.rstrip("\n")
    assert remove_paragraph(added) == text or not text.endswith("\n")


@proves("cli.init-instructions")
def test_line_ends_of_the_file_are_kept() -> None:
    added = add_paragraph("a\r\nb\r\n")

    assert "\n" not in added.replace("\r\n", "")
    assert remove_paragraph(added) == "a\r\nb\r\n"


@proves("cli.init-instructions")
def test_text_that_was_written_after_the_paragraph_stays() -> None:
    text = add_paragraph("before\n") + "\nafter\n"

    assert remove_paragraph(text) == "before\n\n\nafter\n"


@proves("cli.init-instructions")
@pytest.mark.parametrize("text", [BEGIN, END, f"{END}\n{BEGIN}", f"{PARAGRAPH}{PARAGRAPH}", f"{BEGIN}\n{PARAGRAPH}"])
def test_comments_that_do_not_belong_together_are_left_to_a_person(text: str) -> None:
    for change in (add_paragraph, remove_paragraph):
        with pytest.raises(CannotEdit, match="do not belong together"):
            change(text)


@proves("cli.init-instructions")
def test_a_paragraph_that_somebody_has_changed_is_neither_replaced_nor_removed(fidelio: Fidelio, tmp_path: Path) -> None:
    file = tmp_path / "CLAUDE.md"
    ours = f"{BEGIN}\nOur own words.\n{END}\n"
    file.write_text(ours)

    added = fidelio("init", "--client", "claude", "--instructions", "CLAUDE.md")
    removed = fidelio("init", "--remove-instructions")

    assert added.returncode == 0
    assert removed.returncode == 1
    assert "CLAUDE.md was not changed, because somebody has changed its paragraph." in removed.stdout
    assert f"Delete this yourself if nobody needs it:\n    {BEGIN}\n    Our own words.\n" in removed.stdout
    assert removed.stderr == "fidelio: 1 of 1 files were not changed: CLAUDE.md.\n"
    assert file.read_text() == ours


@proves("cli.init-instructions")
def test_a_dry_run_shows_the_paragraph_and_writes_nothing(fidelio: Fidelio, tmp_path: Path) -> None:
    done = fidelio("init", "--client", "claude", "--instructions", "CLAUDE.md", "--dry-run")

    assert f"+{BEGIN}" in done.stdout
    assert "Instructions: CLAUDE.md would get a paragraph about Fidelio." in done.stdout
    assert not (tmp_path / "CLAUDE.md").exists()


@proves("cli.init-instructions")
def test_a_file_that_has_nothing_else_is_deleted_with_the_paragraph(fidelio: Fidelio, tmp_path: Path) -> None:
    fidelio("init", "--client", "claude", "--instructions", "AGENTS.md")

    planned = fidelio("init", "--remove-instructions", "--dry-run")
    assert (tmp_path / "AGENTS.md").read_text() == PARAGRAPH
    removed = fidelio("init", "--remove-instructions")

    assert planned.stdout.endswith("AGENTS.md would be deleted, because it had only a paragraph about Fidelio.\n")
    assert removed.stdout == "Instructions: AGENTS.md was deleted, because it had only a paragraph about Fidelio.\n"
    assert not (tmp_path / "AGENTS.md").exists()


@proves("cli.init-instructions")
def test_a_file_behind_a_link_stays_without_the_paragraph(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / "rules.md").write_text(PARAGRAPH)
    (tmp_path / "AGENTS.md").symlink_to("rules.md")

    removed = fidelio("init", "--remove-instructions")

    assert removed.stdout == "Instructions: AGENTS.md no longer has a paragraph about Fidelio.\n"
    assert (tmp_path / "rules.md").read_text() == ""


@proves("cli.init-instructions")
def test_without_a_paragraph_there_is_nothing_to_remove(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("ours")

    done = fidelio("init", "--remove-instructions")

    assert (done.returncode, done.stdout) == (0, "Neither AGENTS.md nor CLAUDE.md has a paragraph about Fidelio.\n")
    assert not (tmp_path / ".fidelio").exists()


@proves("cli.init-instructions", "cli.init-links")
def test_links_and_foreign_bytes_are_refused_and_a_link_inside_is_followed(fidelio: Fidelio, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "outside.md").write_text("theirs")
    (project / "AGENTS.md").symlink_to(tmp_path / "outside.md")
    (project / "CLAUDE.md").write_bytes(b"\xff")
    options = ["init", "--project", str(project), "--client", "claude", "--instructions", "AGENTS.md"]

    refused = fidelio(*options, "--instructions", "CLAUDE.md", "--json")
    (project / "AGENTS.md").unlink()
    (project / "CLAUDE.md").write_text("ours\n")
    (project / "AGENTS.md").symlink_to("CLAUDE.md")
    followed = fidelio(*options, "--instructions", "CLAUDE.md")

    states = {edit["file"]: edit["state"] for edit in json.loads(refused.stdout)["instructions"]}
    assert states == {"AGENTS.md": "failed", "CLAUDE.md": "skipped"}
    assert (tmp_path / "outside.md").read_text() == "theirs"
    assert followed.returncode == 0
    assert (project / "CLAUDE.md").read_text() == f"ours\n\n{PARAGRAPH}"
    assert (project / "AGENTS.md").is_symlink()


@proves("cli.init-instructions")
def test_a_file_that_cannot_be_written_is_reported_and_the_others_are_written(fidelio: Fidelio, tmp_path: Path) -> None:
    (tmp_path / ".AGENTS.md.fidelio").mkdir()
    options = ["--instructions", "AGENTS.md", "--instructions", "CLAUDE.md"]

    done = fidelio("init", "--client", "claude", *options)

    assert done.returncode == 1
    assert "Instructions: AGENTS.md cannot be written: Is a directory. Correct that, then run the command again." in done.stdout
    assert (tmp_path / "CLAUDE.md").read_text() == PARAGRAPH
    assert not (tmp_path / "AGENTS.md").exists()
