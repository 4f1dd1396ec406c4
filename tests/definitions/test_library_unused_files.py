"""What lies in a library and is not served: never without a word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fidelio.definitions.lint import lint, lint_directory
from tests.definitions.libraries import activity, library, manifest, save, skill
from tests.support import proves

_ODD = pytest.mark.parametrize(
    ("name", "shown"),
    [(b"a\nb", r"a\nb"), (b"end\n", r"end\n"), (b"\x1b[31mred", r"\x1b[31mred"), (b"caf\xe9", r"caf\xe9"), (b"a:b", "a:b")],
)


def write(directory: Path, name: bytes, text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    place = os.path.join(os.fsencode(directory), name)  # noqa: PTH118  # paths of bytes are what this is about
    os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120  # paths of bytes are what this is about
    with open(place, "wb") as file:  # noqa: PTH123  # paths of bytes are what this is about
        file.write(text.encode())


def sound(root: Path) -> Path:
    return save(root, {"w/workflow.yaml": manifest("w"), "w/activities/01-a.yaml": activity("a")})


@proves("library.odd-files")
def test_a_link_to_itself_hides_nothing(tmp_path: Path) -> None:
    sound(tmp_path)
    for place in ("self", "self.yaml", "w/self", "w/activities/self", "w/skills"):
        (tmp_path / place).symlink_to(Path(place).name)
    shelf = library(tmp_path)

    assert [(entry.id, entry.broken) for entry in shelf.list()] == [("self", True), ("w", False)]
    assert [found.id for found in shelf.workflow("w").activities] == ["a"]
    assert {Path(finding.file).name for finding in lint(shelf)} == {"self.yaml"}


@proves("library.passed-over")
@_ODD
def test_a_workflow_with_a_name_that_nobody_can_ask_for_is_a_finding(name: bytes, shown: str, tmp_path: Path) -> None:
    sound(tmp_path)
    write(tmp_path, name + b"/workflow.yaml", manifest("x"))
    write(tmp_path, name + b".yaml", manifest("x"))
    shelf = library(tmp_path)

    assert [entry.id for entry in shelf.list()] == ["w"]
    assert [(f.rule, f.severity, f.file) for f in lint(shelf)] == [
        ("bad-name", "error", f"{tmp_path}/{shown}"),
        ("bad-name", "error", f"{tmp_path}/{shown}.yaml"),
    ]
    assert all(str(finding).isprintable() and shown in finding.sentence for finding in shelf.root_findings())
    assert shelf.root_findings() == lint(shelf)


@proves("library.passed-over")
@_ODD
def test_a_part_with_a_name_that_nobody_can_ask_for_is_a_finding(name: bytes, shown: str, tmp_path: Path) -> None:
    sound(tmp_path)
    write(tmp_path / "w/activities", b"02-" + name + b".yaml", activity("x"))
    write(tmp_path / "w/skills", name + b".yaml", skill("x"))
    shelf = library(tmp_path)

    assert [found.id for found in shelf.workflow("w").activities] == ["a"]
    assert list(shelf.workflow("w").broken) == [f"02-{shown}.yaml"]
    assert [(finding.rule, Path(finding.file).name) for finding in lint(shelf)] == [
        ("bad-name", f"02-{shown}.yaml"),
        ("bad-name", f"{shown}.yaml"),
    ]
    assert shelf.content_hash("w")


@proves("library.passed-over")
def test_linting_a_directory_with_such_a_name_says_so(tmp_path: Path) -> None:
    save(tmp_path, {"a\nb/workflow.yaml": manifest("x")})

    assert [finding.rule for finding in lint_directory(tmp_path / "a\nb")] == ["bad-name"]


@proves("library.passed-over")
def test_what_is_hidden_on_purpose_is_no_finding(tmp_path: Path) -> None:
    save(sound(tmp_path), {".git/workflow.yaml": "x", ".hidden.yaml": "x", "w/activities/.x.yaml": "x", "no\nworkflow/a": ""})

    assert lint(library(tmp_path)) == ()


@proves("library.passed-over")
@pytest.mark.parametrize(
    ("hidden", "used", "words"),
    [
        ("w/workflow.yaml", "w/workflow.toon", "both workflow.yaml and workflow.toon; workflow.toon is used"),
        ("w/workflow.json", "w/workflow.yaml", "both workflow.json and workflow.yaml; workflow.yaml is used"),
        ("w.yaml", "w/workflow.yaml", "both w.yaml and w/; w/ is used"),
        ("w.toon", "w.yaml", "both w.toon and w.yaml; w.yaml is used"),
    ],
)
def test_of_two_files_for_one_workflow_it_is_said_which_one_is_used(hidden: str, used: str, words: str, tmp_path: Path) -> None:
    head = "id: w\nversion: 1.0.0\ntitle: {}\nactivities[1]: v/01-a\n"
    yaml = head.replace("[1]: v/01-a", ": [v/01-a]")
    files = {name: (head if name.endswith("toon") else yaml) for name in (hidden, used)}
    save(tmp_path, {name: text.format(name) for name, text in files.items()})
    save(tmp_path, {"v/workflow.yaml": manifest("v"), "v/activities/01-a.yaml": activity("a")})
    shelf = library(tmp_path)
    [finding] = lint(shelf)

    assert shelf.entry("w").title == used
    assert (finding.rule, finding.severity, finding.file) == ("hidden-file", "warning", f"{tmp_path}/{hidden}")
    assert words in finding.sentence


@proves("library.passed-over")
def test_a_second_file_of_global_rules_is_warned_about(tmp_path: Path) -> None:
    rules = "id: r\nversion: 1.0.0\ntitle: Rules\n"
    save(tmp_path, {"meta/workflow.yaml": manifest("meta"), "meta/rules.toon": rules, "meta/rules.yaml": rules})

    assert [(f.rule, Path(f.file).name) for f in lint(library(tmp_path))] == [("hidden-file", "rules.yaml")]


@proves("library.passed-over", "library.roots")
def test_a_workflow_that_a_later_root_has_too_is_no_finding(tmp_path: Path) -> None:
    assert library(sound(tmp_path / "one"), sound(tmp_path / "two")).findings() == ()


@proves("library.passed-over")
def test_a_root_that_cannot_be_listed_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shut, good = tmp_path / "shut", sound(tmp_path / "good")
    shut.mkdir()
    real = os.scandir

    def scandir(path: str) -> object:
        # Permissions bind everybody but root, and tests often run as root: the refusal is played here.
        if path == str(shut):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    shelf = library(shut, good)
    [finding] = shelf.root_findings()

    assert [entry.id for entry in shelf.list()] == ["w"]
    assert (finding.rule, finding.file, "denied" in finding.sentence) == ("unreadable", str(shut), True)


@proves("library.broken", "models.faults")
def test_an_entry_that_is_neither_a_file_nor_an_activity_costs_only_itself(tmp_path: Path) -> None:
    files = {"ok/workflow.yaml": manifest("ok"), "ok/activities/01-a.yaml": activity("a")}
    save(tmp_path, files | {"w/workflow.yaml": manifest("w", activities=["ok/01-a", 5])})
    shelf = library(tmp_path)
    [finding] = lint(shelf)

    assert [found.id for found in shelf.workflow("w").activities] == ["a"]
    assert finding.sentence == "`activities.2` has to be text or a mapping, but is a number."
    assert finding.line == 6


@proves("reading.bounded")
def test_a_file_that_is_too_large_is_not_measured_wrongly(tmp_path: Path) -> None:
    save(tmp_path, {"w.yaml": "# " + "x" * 3_000_000})
    [finding] = library(tmp_path).findings()

    assert (finding.rule, finding.sentence) == ("too-large", "The file has more than 2000000 bytes.")
