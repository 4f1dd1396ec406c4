"""`fidelio report` and `trace` of runtime sessions, and what the commands for sandboxes say at 80 columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fidelio.errors import UsageProblem
from fidelio.runtime.project.changes import ProjectChange, ProjectDiff
from fidelio.surfaces.cli.project_diff import select_paths
from fidelio.surfaces.cli.sandbox import LONGEST, explain_limit
from tests.support import proves
from tests.surfaces.sandbox.local import RunFidelio, open_command_line


@pytest.fixture
def fidelio(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFidelio:
    return open_command_line(environ, tmp_path, monkeypatch)


@proves("sandbox-cli.records")
def test_a_trace_lists_the_calls_of_a_runtime_session(fidelio: RunFidelio) -> None:
    fidelio("sandbox", "run", "exit 3")
    fidelio("sandbox", "run", "--cwd", "/nowhere", "true")

    printed, found = fidelio("trace", "default"), json.loads(fidelio("trace", "default", "--json").stdout)

    assert printed.returncode == 0, printed.stderr
    assert [call["name"] for call in found["items"]] == ["shell_run"] * len(found["items"])
    assert found["items"][0]["s"] == "ok"
    assert len(printed.stdout.splitlines()) == len(found["items"]) > 0
    assert "shell_run: ok, " in printed.stdout


@proves("sandbox-cli.records")
def test_a_report_lists_what_a_person_has_let_through(fidelio: RunFidelio, tmp_path: Path) -> None:
    fidelio("sandbox", "run", "--mount", ".", "echo new > project/new.txt")
    unchanged = json.loads(fidelio("report", "default", "--json").stdout)
    fidelio("sandbox", "policy", "shell_exec", "always_allow")
    fidelio("sandbox", "allow", "pytest *")
    fidelio("vaults", "add", "github", text="value\n")
    fidelio("vaults", "attach", "github")
    fidelio("vaults", "attach", "github", "--detach")
    fidelio("sandbox", "apply", "--yes")

    printed, found = fidelio("report", "default").stdout, json.loads(fidelio("report", "default", "--json").stdout)

    assert [unchanged[part] for part in ("policies", "allowed", "vaults", "applied")] == [[], [], [], []]
    assert [(entry["tool"], entry["policy"]) for entry in found["policies"]] == [("shell_exec", "always_allow")]
    assert [entry["pattern"] for entry in found["allowed"]] == ["pytest *"]
    assert found["allowed"][0]["expires"] > found["allowed"][0]["at"]
    assert [entry["vaults"] for entry in found["vaults"]] == [["github"], []]
    assert [(entry["count"], entry["paths"]) for entry in found["applied"]] == [(1, ["new.txt"])]
    assert all(entry["by"].startswith("person:") for part in ("policies", "vaults", "applied") for entry in found[part])
    for words in (
        "Changed policies",
        "shell_exec: always_allow, by person:",
        "Allowed patterns",
        '"pytest *" until',
        "Attached vaults",
        "github, by person:",
        "Changes brought back into the project",
        "new.txt, by person:",
    ):
        assert words in printed, words
    assert (tmp_path / "project" / "new.txt").exists()


@proves("sandbox-cli.records")
def test_the_report_of_a_deleted_session_says_so(fidelio: RunFidelio) -> None:
    fidelio("sandbox", "run", "true")
    session = json.loads(fidelio("sandbox", "mounts", "--json").stdout)["session"]
    fidelio("sandbox", "end")
    fidelio("sessions", "--delete", session, "--reason", "done", "--yes")

    printed, found = fidelio("report", session).stdout, json.loads(fidelio("report", session, "--json").stdout)

    assert "This session was deleted." in printed
    assert "by person:" in printed
    assert "1970" not in printed
    assert '""' not in printed
    assert found["deleted"] is True
    assert found["started_at"] > 0


@proves("sandbox-cli.records")
def test_the_report_of_a_store_says_what_it_holds(fidelio: RunFidelio) -> None:
    fidelio("sandbox", "run", "true")
    fidelio("vaults", "add", "github", text="value\n")
    listed = json.loads(fidelio("sessions", "--all", "--kind", "runtime", "--json").stdout)["items"]

    for about in ("shared files of default", "vaults"):
        (store,) = [entry["id"] for entry in listed if entry["about"] == about]
        printed = fidelio("report", store).stdout
        assert f"Session {store} is a store: {about}" in printed
        assert "of a sandbox" not in printed


@proves("sandbox-cli.describe")
@pytest.mark.parametrize("group", ["sandbox", "vaults", "environments"])
def test_the_summary_of_every_command_fits_on_its_line(fidelio: RunFidelio, group: str) -> None:
    commands = fidelio(group, "--help", COLUMNS="80").stdout.split("Commands:\n")[1]

    assert commands
    assert "..." not in commands


@proves("sandbox-cli.describe")
def test_the_doctor_says_that_a_level_is_forced(fidelio: RunFidelio) -> None:
    chosen, forced = fidelio("doctor", "--json"), fidelio("doctor", "--json", FIDELIO_SANDBOX_LEVEL="landlock")

    sentences = [
        check["sentence"]
        for done in (chosen, forced)
        for check in json.loads(done.stdout)["checks"]
        if check["name"] == "sandbox"
    ]
    assert "FIDELIO_SANDBOX_LEVEL" not in sentences[0]
    assert "forced by FIDELIO_SANDBOX_LEVEL" in sentences[1]


@proves("sandbox-cli.run")
def test_at_the_longest_time_the_message_names_another_way() -> None:
    assert explain_limit(LONGEST - 1) == "Raise --timeout, up to 60."
    assert "shell_exec" in explain_limit(LONGEST)


def make_diff(**texts: str) -> ProjectDiff:
    changes = tuple(ProjectChange(path, "modified", size=1) for path in texts)
    return ProjectDiff(changes, "".join(texts.values()), "digest")


def hunk(path: str, old: str, new: str) -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n"


@proves("sandbox-cli.changes")
def test_a_line_that_looks_like_a_header_hides_nothing_of_a_file() -> None:
    # The removed line and the added line read `--- a/b` and `+++ b/b` in the diff.
    forged = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n--- a/b\n+++ b/b\n-x\n+evil\n\\ No newline at end of file\n"
    whole = make_diff(a=forged, b=hunk("b", "1", "2"), c="# c: modified, 1 bytes, executable.\n")

    assert [select_paths(whole, [path]).text for path in "abc"] == [
        forged,
        hunk("b", "1", "2"),
        "# c: modified, 1 bytes, executable.\n",
    ]
    assert select_paths(whole, ["c", "a"]).digest == whole.digest
    assert [change.path for change in select_paths(whole, ["c", "a"]).changes] == ["c", "a"]


@proves("sandbox-cli.changes")
def test_a_diff_that_does_not_fit_its_changes_is_shown_as_a_whole() -> None:
    for text in ("anything\n", "--- a/a\n+++ b/a\n@@ -1,9 +1,9 @@\n-x\n", hunk("a", "1", "2") + "more\n", ""):
        whole = make_diff(a=text)
        assert select_paths(whole, ["a"]) == whole


@proves("sandbox-cli.changes")
def test_paths_that_a_long_diff_leaves_out_and_unknown_ones_are_named() -> None:
    whole = make_diff(a=hunk("a", "1", "2"), b="... and 1 more changed paths.\n")
    conflict = "# a was changed on the host since it was copied.\n" + hunk("a", "1", "2")

    assert select_paths(whole, ["b"]).text == "# b is not shown: the diff is too long.\n"
    assert select_paths(make_diff(a=conflict), ["a"]).text == conflict
    with pytest.raises(UsageProblem, match="is not changed"):
        select_paths(whole, ["c"])
