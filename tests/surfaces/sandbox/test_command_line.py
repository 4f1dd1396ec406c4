"""`fidelio sandbox`, `environments` and `vaults`, and runtime sessions in the commands over the record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import proves
from tests.surfaces.sandbox.local import RunFidelio, open_command_line


@pytest.fixture
def fidelio(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFidelio:
    return open_command_line(environ, tmp_path, monkeypatch)


def session_of(fidelio: RunFidelio) -> str:
    found: str = json.loads(fidelio("sandbox", "mounts", "--json").stdout)["session"]
    return found


@proves("sandbox-cli.run")
def test_a_person_runs_a_command_and_gets_output_and_exit_code(fidelio: RunFidelio) -> None:
    line = fidelio("sandbox", "run", "--mount", ".", "echo out; echo err >&2; exit 3")
    words = fidelio(
        "sandbox", "run", "--cwd", "/workspace/project", "--", "python3", "-c", "print('a b', open('adder.py').read(3))"
    )

    assert (line.returncode, line.stdout, line.stderr) == (3, "out\n", "err\n")
    assert (words.returncode, words.stdout) == (0, "a b def\n")


@proves("sandbox-cli.run")
def test_a_command_that_takes_too_long_and_one_that_a_signal_ends_are_told_apart(fidelio: RunFidelio) -> None:
    late = fidelio("sandbox", "run", "--timeout", "1", "sleep 30")
    killed = fidelio("sandbox", "run", "--json", "kill -9 $$")

    assert late.returncode == 124
    assert "ended after 1 s. Raise --timeout, up to 60." in late.stderr
    assert fidelio("sandbox", "run", "--timeout", "61", "true").returncode == 2
    assert killed.returncode == 137


@proves("sandbox-cli.run")
def test_control_characters_of_a_command_do_not_reach_the_terminal(fidelio: RunFidelio) -> None:
    done = fidelio("sandbox", "run", r"printf 'a\033[2Jb\n'")

    assert "\x1b" not in done.stdout
    assert done.stdout.startswith("a")


@proves("sandbox-cli.run", "sandbox-cli.records")
def test_the_person_who_typed_a_command_is_on_record_as_the_one_who_allowed_it(fidelio: RunFidelio) -> None:
    fidelio("sandbox", "run", "true")

    report = json.loads(fidelio("report", "default", "--json").stdout)
    (approval,) = report["approvals"]
    (command,) = report["commands"]
    assert (approval["state"], approval["channel"], approval["assurance"], approval["used"]) == ("allow", "cli", "local", True)
    assert approval["by"].startswith("person:")
    assert (command["command"], command["exit_code"], command["state"]) == ("true", 0, "completed")
    assert report["tools"]["shell_run"]["calls"] == 1


@proves("sandbox-cli.describe")
def test_describe_and_mounts_say_what_the_sandbox_is(fidelio: RunFidelio, tmp_path: Path) -> None:
    fidelio("sandbox", "run", "--mount", ".", "true")

    described, mounts = fidelio("sandbox", "describe"), fidelio("sandbox", "mounts")
    # The session has its own name, whatever it was called by.
    assert described.stdout == fidelio("sandbox", "describe", "--session", "last").stdout

    assert "network none" in described.stdout
    assert "Asks a person: " in described.stdout
    # Sentences of Fidelio's own stand without quotes.
    assert '"' not in described.stdout.split("path")[0]
    assert "/workspace/project" in mounts.stdout
    assert f"project: │ {tmp_path}"[:20] in " ".join(mounts.stdout.split())


@proves("sandbox-cli.describe")
def test_an_unknown_session_is_named_with_the_command_that_lists_them(fidelio: RunFidelio) -> None:
    fidelio("sandbox", "run", "true")

    missing = fidelio("sandbox", "describe", "--session", "nobody")

    assert missing.returncode != 0
    assert "There is no sandbox session 'nobody' here." in missing.stderr
    assert "sessions --kind runtime" in missing.stderr


@proves("sandbox-cli.changes")
def test_changes_of_the_copy_are_shown_and_applied_by_a_person(fidelio: RunFidelio, tmp_path: Path) -> None:
    file = tmp_path / "project" / "adder.py"
    fidelio("sandbox", "run", "--mount", ".", "cd project && sed -i 's/a - b/a + b/' adder.py && echo new > new.txt")

    shown = fidelio("sandbox", "diff")
    unasked = fidelio("sandbox", "apply")
    before = file.read_text()
    applied = fidelio("sandbox", "apply", "--yes", "adder.py")

    assert "-    return a - b\n+    return a + b\n" in shown.stdout
    assert "new.txt" in shown.stdout
    assert unasked.returncode == 2
    assert "return a - b" in before
    assert applied.returncode == 0, applied.stderr
    # Only what is written is shown.
    assert "+    return a + b" in applied.stdout
    assert "new.txt" not in applied.stdout
    assert "return a + b" in file.read_text()
    assert not (tmp_path / "project" / "new.txt").exists()


@proves("sandbox-cli.changes")
def test_a_file_that_the_person_has_changed_meanwhile_is_not_overwritten(fidelio: RunFidelio, tmp_path: Path) -> None:
    file = tmp_path / "project" / "adder.py"
    fidelio("sandbox", "run", "--mount", ".", "echo agent > project/adder.py")
    file.write_text("mine\n")

    applied = fidelio("sandbox", "apply", "--yes")

    assert applied.returncode == 1
    assert file.read_text() == "mine\n"


@proves("sandbox-cli.allow")
def test_a_pattern_is_allowed_for_a_time_and_on_record(fidelio: RunFidelio) -> None:
    fidelio("sandbox", "run", "true")

    allowed = fidelio("sandbox", "allow", "python3 *", "--for", "2h")
    wrong = [fidelio("sandbox", "allow", pattern, "--for", time) for pattern, time in (("*", "1h"), ("x", "soon"), ("x", "0s"))]

    assert allowed.returncode == 0, allowed.stderr
    assert all(done.returncode == 2 for done in wrong)
    assert "python3 *" in fidelio("report", "default").stdout
    checked = json.loads(fidelio("events", "default", "--type", "permission.allowed", "--json").stdout)
    assert checked["body"]["pattern"] == "python3 *"


@proves("sandbox-cli.allow")
def test_an_agent_does_nothing_that_only_a_person_may(fidelio: RunFidelio) -> None:
    fidelio("sandbox", "run", "true")
    for arguments in (
        ("sandbox", "run", "true"),
        ("sandbox", "allow", "x *"),
        ("sandbox", "policy", "shell_run", "always_allow"),
        ("sandbox", "apply", "--yes"),
        ("sandbox", "end"),
        ("environments", "define", "x", "-"),
        ("vaults", "add", "x"),
        ("vaults", "remove", "x"),
    ):
        refused = fidelio(*arguments, text="{}", FIDELIO_AGENT="s_000000000000.1")
        assert refused.returncode == 2, (arguments, refused.stdout, refused.stderr)
        assert "only a person may do this" in refused.stderr


@proves("sandbox-cli.allow")
def test_a_policy_changes_when_a_tool_asks(fidelio: RunFidelio) -> None:
    fidelio("sandbox", "run", "true")

    changed = fidelio("sandbox", "policy", "shell_run", "always_allow")
    fidelio("sandbox", "run", "echo unasked")
    unknown = fidelio("sandbox", "policy", "format_disk", "always_ask")

    assert changed.returncode == 0, changed.stderr
    report = json.loads(fidelio("report", "default", "--json").stdout)
    assert (len(report["commands"]), len(report["approvals"])) == (2, 1)
    assert unknown.returncode == 2


@proves("sandbox-cli.allow")
def test_a_policy_of_an_agent_holds_for_its_later_sessions(fidelio: RunFidelio) -> None:
    changed = fidelio("sandbox", "policy", "shell_run", "always_allow", "--agent", "default")
    fidelio("sandbox", "run", "echo unasked")

    assert changed.returncode == 0, changed.stderr
    report = json.loads(fidelio("report", "default", "--json").stdout)
    assert (len(report["commands"]), len(report["approvals"])) == (1, 0)


@proves("sandbox-cli.records")
def test_runtime_sessions_are_listed_reported_and_verified_like_every_other(fidelio: RunFidelio) -> None:
    fidelio("sandbox", "run", "--mount", ".", "echo hello; exit 4")

    listed, everything = (
        {entry["about"] for entry in json.loads(fidelio("sessions", "--kind", "runtime", "--json", *more).stdout)["items"]}
        for more in ((), ("--all",))
    )
    printed = fidelio("report", "default").stdout

    assert listed == {"default"}
    assert {"default", "shared files of default"} <= everything
    for words in (
        "Tools",
        "shell_run: 1 call",
        "Commands",
        "exit code 4",
        "│ echo hello; exit 4",
        "Approvals",
        "local over cli",
    ):
        assert words in printed, words
    assert fidelio("report", "default", "--check").returncode == 0
    assert fidelio("events", "default").returncode == 0
    assert fidelio("verify", "--all").returncode == 0


@proves("sandbox-cli.stores")
def test_stores_are_verified_but_do_not_fill_the_pages_of_the_list(fidelio: RunFidelio) -> None:
    for name in ("one", "two", "three"):
        fidelio("sandbox", "run", "--session", name, "--project", ".", "true")
        fidelio("environments", "define", f"tools-{name}", "-", text="packages: [python3]\n")
    first = json.loads(fidelio("sessions", "--limit", "2", "--json").stdout)
    second = json.loads(fidelio("sessions", "--limit", "2", "--after", first["next"], "--json").stdout)
    everything = json.loads(fidelio("sessions", "--all", "--json").stdout)["items"]
    verified = json.loads(fidelio("verify", "--all", "--json").stdout)

    assert [entry["about"] for entry in (*first["items"], *second["items"])] == ["three", "two", "one"]
    assert len(everything) > 3
    assert len(verified["sessions"]) == len(everything)


@proves("sandbox-cli.environments")
def test_environments_are_defined_listed_shown_and_checked(fidelio: RunFidelio) -> None:
    content = "packages: [python3]\nsetup: echo made > made.txt\nvariables: {TINT: blue}\n"
    defined = fidelio("environments", "define", "tools", "-", text=content)
    checked = fidelio("environments", "check", "tools")
    listed = json.loads(fidelio("environments", "list", "--json").stdout)
    shown = fidelio("environments", "show", "tools")
    used = fidelio("sandbox", "run", "--session", "other", "--environment", "tools", "cat /environment/made.txt; echo $TINT")
    broken = fidelio("environments", "define", "tools", "-", text="network: everything\n")
    missing = fidelio("environments", "check", "nothing")

    assert defined.returncode == 0, defined.stderr
    assert checked.returncode == 0, checked.stderr
    assert [(entry["name"], entry["version"]) for entry in listed["items"]] == [("default", 0), ("tools", 1)]
    assert "setup: echo made > made.txt" in shown.stdout
    assert used.stdout == "made\nblue\n"
    assert broken.returncode == 1
    assert "network" in broken.stderr
    assert "There is no environment nothing" in missing.stderr


@proves("sandbox-cli.environments")
def test_a_program_that_is_missing_inside_is_named(fidelio: RunFidelio) -> None:
    fidelio("environments", "define", "rare", "-", text="packages: [no-such-program]\n")

    checked = fidelio("environments", "check", "rare")

    assert checked.returncode == 1
    assert "no-such-program" in checked.stderr


@proves("sandbox-cli.vaults")
def test_the_value_of_a_vault_is_read_from_standard_input_and_never_printed(fidelio: RunFidelio, home: Path) -> None:
    fidelio("sandbox", "run", "true")
    added = fidelio("vaults", "add", "github", text="ghp_secret_value\n")
    again = fidelio("vaults", "add", "github", text="other\n")
    replaced = fidelio("vaults", "add", "github", "--replace", text="newer_secret\n")
    attached = fidelio("vaults", "attach", "github")
    seen = fidelio("sandbox", "run", "ls -A /vaults/github; ls /vaults")
    listed = fidelio("vaults", "list", "--json")
    removed = fidelio("vaults", "remove", "github")
    empty = fidelio("vaults", "add", "nothing", text="")

    assert [done.returncode for done in (added, again, replaced, attached, removed, empty)] == [0, 1, 0, 0, 0, 2], added.stderr
    assert seen.stdout == "github\n"
    assert json.loads(listed.stdout)["items"][0]["displayName"] == "github"
    printed = "".join(done.stdout + done.stderr for done in (added, again, replaced, attached, listed, removed))
    stored = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert "secret" not in printed
    assert b"ghp_secret_value" not in stored
    assert b"newer_secret" not in stored


@proves("sandbox-cli.end")
def test_an_ended_session_takes_no_calls_and_a_deleted_one_leaves_no_files(fidelio: RunFidelio, home: Path) -> None:
    fidelio("sandbox", "run", "echo kept > /workspace/file")
    session = session_of(fidelio)
    (directory,) = [path for path in (home / "sandboxes").iterdir() if (path / "workspace" / "file").exists()]

    ended = fidelio("sandbox", "end")
    refused = fidelio("sandbox", "run", "true")
    deleted = fidelio("sessions", "--delete", session, "--reason", "done", "--yes")

    assert ended.returncode == 0, ended.stderr
    assert refused.returncode != 0
    assert "has ended" in refused.stderr
    assert deleted.returncode == 0, deleted.stderr
    assert not directory.exists()
    assert fidelio("verify", session).returncode == 0
    # The name is free again, and the new session does not have the files of the old one.
    assert fidelio("sandbox", "run", "ls /workspace").stdout.split() == ["agent"]


@proves("sandbox-cli.end")
def test_a_redacted_output_is_in_no_file_of_the_session_either(fidelio: RunFidelio, home: Path) -> None:
    fidelio("sandbox", "run", "echo hunter2-secret")
    files = list((home / "sandboxes").glob("*/runtime/shell-last-output.json"))
    assert "hunter2" in files[0].read_text()

    redacted = fidelio("redact", session_of(fidelio), "--text", "hunter2-secret", "--reason", "a secret", "--yes")

    assert redacted.returncode == 0, redacted.stderr
    assert not [file for file in (home / "sandboxes").glob("*/runtime/*") if "hunter2" in file.read_text()]
    assert fidelio("sandbox", "run", "echo again").stdout == "again\n"


@proves("sandbox-cli.end")
def test_a_session_is_ended_by_its_id_too(fidelio: RunFidelio) -> None:
    fidelio("sandbox", "run", "true")
    session = session_of(fidelio)

    ended = fidelio("sessions", "--end", session, "--json")

    assert json.loads(ended.stdout)["status"] == "terminated"
    assert "Nothing waits for you" in fidelio("inbox").stdout
