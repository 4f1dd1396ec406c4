"""The project's own checks find what they are there to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import changelog, check_docs, line_budget
from tests.support import proves
from tests.support.parts import require_part

ROOT = Path(__file__).resolve().parents[1]


@proves("project.line-budget")
def test_a_file_past_its_budget_is_found(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "fits.py").write_text("\n" * 400, "utf-8")
    (tmp_path / "src" / "bursts.py").write_text("\n" * 401, "utf-8")

    assert list(line_budget.offenders(tmp_path)) == [(Path("src/bursts.py"), 401)]


@proves("project.small-files")
def test_small_modules_are_counted_without_package_files(tmp_path: Path) -> None:
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    for name, lines in {"__init__.py": 1, "__main__.py": 1, "small.py": 59, "fits.py": 60}.items():
        (package / name).write_text("\n" * lines, "utf-8")

    assert line_budget.small_modules(tmp_path) == [Path("src/package/small.py")]


@proves("project.missing-parts")
def test_a_missing_part_skips_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIDELIO_REQUIRE_ALL", raising=False)

    with pytest.raises(pytest.skip.Exception, match=r"The organ is missing\. Build one\."):
        require_part("The organ", "Build one.")


@proves("project.missing-parts")
def test_a_missing_part_fails_where_everything_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIDELIO_REQUIRE_ALL", "1")

    with pytest.raises(pytest.fail.Exception, match=r"The organ is missing\. Build one\."):
        require_part("The organ", "Build one.")


# Changelog


@proves("project.changelog")
def test_the_fragments_of_this_project_are_in_order() -> None:
    assert list(changelog.problems(ROOT / "changelog.d")) == []


@proves("project.changelog")
@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("gate.md", "A sentence.", "call it what-changed.kind.md"),
        ("gate.invented.md", "A sentence.", "with one of the kinds"),
        ("The_Gate.added.md", "A sentence.", "call it what-changed.kind.md"),
        ("gate.added.md", "", "at least one whole sentence"),
        ("gate.added.md", "no full stop", "at least one whole sentence"),
        ("gate.added.md", "# A heading.", "one paragraph"),
        ("gate.added.md", "One.\n\nTwo.", "one paragraph"),
    ],
)
def test_a_fragment_of_another_form_is_refused(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")

    (found,) = changelog.problems(tmp_path)

    assert found.startswith(f"{name}: ")
    assert problem in found


@proves("project.changelog")
def test_a_release_collects_the_fragments_by_kind_above_the_older_ones(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n{changelog.MARK}\n## 0.1.0 (2026-01-01)\n", "utf-8")
    folder = tmp_path / "changelog.d"
    folder.mkdir()
    fragments = {"README.md": "How.", "b.fixed.md": "Mended\nthis.\n", "a.added.md": "New.\n", "c.breaking.md": "Look out.\n"}
    for name, text in fragments.items():
        (folder / name).write_text(text, "utf-8")

    changelog.assemble(tmp_path, "0.2.0", "2026-02-01")

    assert (tmp_path / "CHANGELOG.md").read_text("utf-8") == (
        f"# Changes\n\n{changelog.MARK}\n## 0.2.0 (2026-02-01)\n\n"
        "### Changes that need your attention\n\n- Look out.\n\n### Added\n\n- New.\n\n### Fixed\n\n- Mended this.\n"
        "\n## 0.1.0 (2026-01-01)\n"
    )
    assert [file.name for file in folder.iterdir()] == ["README.md"]


# Documentation


@proves("project.docs-links")
def test_the_links_of_this_project_lead_somewhere() -> None:
    assert check_docs.problems(ROOT) == []


@proves("project.docs-links")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[a](gone.md)", "docs/index.md: the link to gone.md leads nowhere."),
        ("[a](index.md#gone)", "docs/index.md: index.md#gone names a heading that is not there."),
        ("[a](../src/missing.py)", "docs/index.md: the link to ../src/missing.py leads nowhere."),
        ("[a](#gone)", "docs/index.md: #gone names a heading that is not there."),
        ("`[a](gone.md)`", None),
        ("```\n[a](gone.md)\n```", None),
        ("[a](https://example.org/gone)", None),
        ("## What it `is`, then\n\n[a](index.md#what-it-is-then)", None),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, text: str, problem: str | None) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(text, "utf-8")

    assert check_docs.problems(tmp_path) == ([problem] if problem else [])


@proves("project.docs-links")
def test_a_page_that_no_link_leads_to_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs" / "guides").mkdir(parents=True)
    (tmp_path / "docs" / "index.md").write_text("[guides](guides/first.md)", "utf-8")
    (tmp_path / "docs" / "guides" / "first.md").write_text("[next](second.md)", "utf-8")
    (tmp_path / "docs" / "guides" / "second.md").write_text("The end.", "utf-8")
    (tmp_path / "docs" / "guides" / "lost.md").write_text("[first](first.md)", "utf-8")

    assert check_docs.problems(tmp_path) == ["docs/guides/lost.md: no link leads here from docs/index.md."]
