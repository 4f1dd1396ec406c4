"""The requirements check: it passes on this repository and fails when promises and tests do not match."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.requirements import ROOT, Report, check, table
from tests.support import proves

PROMISE = "- id: ferry.gate\n  promise: A sailing is offered while its gate is open.\n  source: harbour.md\n"
TEST = '@proves("ferry.gate")\ndef test_the_gate(): ...\n'


def checked(tmp_path: Path, promises: str = PROMISE, tests: str = TEST, **more_promises: str) -> Report:
    for folder in ("requirements", "tests"):
        (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / "harbour.md").write_text("# Harbour rules\n\n## Gates, and `piers`\n", "utf-8")
    for name, text in {"ferry": promises, **more_promises}.items():
        (tmp_path / "requirements" / f"{name}.yaml").write_text(text, "utf-8")
    (tmp_path / "tests" / "test_ferry.py").write_text(tests, "utf-8")
    return check(tmp_path / "requirements", tmp_path / "tests")


@proves("project.promises-proved")
def test_every_promise_of_this_project_is_proved_and_every_proof_is_of_a_promise() -> None:
    report = check(ROOT / "requirements", ROOT / "tests")

    if report.problems:
        pytest.fail("\n".join(["promises and tests do not fit together:", *report.problems]), pytrace=False)


@proves("project.promises-proved")
def test_a_promise_with_a_test_is_fine(tmp_path: Path) -> None:
    report = checked(tmp_path)

    assert report.problems == ()
    assert "ferry.gate    1  A sailing" in table(report)


@proves("project.promises-proved")
@pytest.mark.parametrize(
    ("promises", "tests", "problem"),
    [
        (PROMISE, "", 'ferry.yaml: no test proves ferry.gate ("A sailing is offered while its gate is open.").'),
        (
            "",
            TEST,
            "tests/test_ferry.py:1: test_the_gate proves ferry.gate, which requirements/ does not promise.",
        ),
        (PROMISE * 2, TEST, "The id ferry.gate stands in ferry.yaml and in ferry.yaml; keep one."),
        ("- id: ferry.gate\n  promise: x\n", "", "ferry.yaml: ferry.gate has no source."),
        ("- promise: x\n  source: ''\n", "", "ferry.yaml: entry 1 has no id and no source."),
        (PROMISE + "  owner: x\n", TEST, "ferry.yaml: ferry.gate has the unknown field owner; there are id, promise, source."),
        ("ferry.gate: x\n", "", "ferry.yaml: is not a list of entries with id, promise, source."),
        (
            PROMISE,
            TEST + "@proves()\ndef test_b(): ...\n",
            "tests/test_ferry.py:3: test_b says that it proves something, but not what.",
        ),
        (
            PROMISE,
            TEST + "@proves(GATE)\ndef test_b(): ...\n",
            "tests/test_ferry.py:3: test_b names its promise by an expression; write the id itself.",
        ),
        (
            PROMISE,
            TEST + '@proves("ferry.gate")\ndef helper(): ...\n',
            "tests/test_ferry.py:3: helper is no test, so it proves nothing.",
        ),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, promises: str, tests: str, problem: str) -> None:
    assert checked(tmp_path, promises, tests).problems == (problem,)


@proves("project.promises-proved")
@pytest.mark.parametrize("id_", ["ferry", "Ferry.gate", "ferry.the_gate", "ferry.gate.shut", "ferry.-gate", "ferry.gate-"])
def test_an_id_of_another_form_is_refused(tmp_path: Path, id_: str) -> None:
    report = checked(tmp_path, PROMISE.replace("ferry.gate", id_), TEST.replace("ferry.gate", id_))

    assert report.problems == (f"ferry.yaml: the id {id_!r} is not of the form area.name, in lower case with hyphens.",)


@proves("project.promises-proved")
def test_an_id_in_two_files_is_refused(tmp_path: Path) -> None:
    report = checked(tmp_path, harbour=PROMISE)

    assert report.problems == ("The id ferry.gate stands in ferry.yaml and in harbour.yaml; keep one.",)


@proves("project.promises-proved")
@pytest.mark.parametrize("source", ["harbour.md#harbour-rules", "harbour.md#gates-and-piers", "harbour.md, the last section"])
def test_a_source_may_name_a_heading_or_a_part_of_a_file(tmp_path: Path, source: str) -> None:
    assert checked(tmp_path, PROMISE.replace("harbour.md", source)).problems == ()


@proves("project.promises-proved")
@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("harbour rules", "'harbour rules', is not a file of the repository."),
        ("requirements", "'requirements', is not a file of the repository."),
        ("harbour.md#gate", "'harbour.md', has no heading 'gate'."),
    ],
)
def test_a_source_that_nobody_can_open_is_refused(tmp_path: Path, source: str, problem: str) -> None:
    report = checked(tmp_path, PROMISE.replace("harbour.md", source))

    assert report.problems == (f"ferry.yaml: the source of ferry.gate, {problem}",)


@proves("project.promises-proved")
def test_promises_in_folders_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "requirements" / "boats").mkdir(parents=True)
    (tmp_path / "requirements" / "boats" / "small.yaml").write_text(PROMISE, "utf-8")

    assert checked(tmp_path).problems == ("The id ferry.gate stands in boats/small.yaml and in ferry.yaml; keep one.",)


@proves("project.promises-proved")
def test_methods_and_async_tests_prove_too(tmp_path: Path) -> None:
    tests = 'class TestFerry:\n    @proves("ferry.gate")\n    async def test_the_gate(self): ...\n'

    assert checked(tmp_path, tests=tests).problems == ()
