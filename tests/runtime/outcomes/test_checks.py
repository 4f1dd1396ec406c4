"""Checks that the runtime carries out itself, on the files of a session. Commands with a real sandbox are in test_isolation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import SandboxUnavailable
from fidelio.ledger.model import NewEvent
from fidelio.runtime import events as e
from fidelio.runtime.outcomes.checks import DiffPathsCheck
from fidelio.runtime.outcomes.record import CriterionResult
from fidelio.runtime.ports import ActivityStatus, RuntimePorts
from fidelio.sandbox.model import LevelReport, SandboxSpec
from tests.runtime.outcomes.support import OutcomeBench
from tests.support import proves


async def run_check(bench: OutcomeBench, session: str, check: Mapping[str, Any]) -> CriterionResult:
    await bench.define(session, "Ship it", {"text": "It is so", "check": check})
    run = await bench.evaluate(session)
    (result,) = run.verdicts[0].results
    assert result.by == "check"
    return result


@proves("outcomes.checks")
@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        ({"type": "file_exists", "path": "a.txt"}, "met"),
        ({"type": "file_exists", "path": "/workspace/folder"}, "met"),
        ({"type": "file_exists", "path": "missing.txt"}, "not_met"),
        ({"type": "file_exists", "path": "a.txt/b"}, "not_met"),
        ({"type": "file_matches", "path": "a.txt", "pattern": "^two"}, "met"),
        ({"type": "file_matches", "path": "a.txt", "pattern": "^TWO"}, "not_met"),
        ({"type": "file_matches", "path": "a.txt", "pattern": "o", "min": 2, "max": 2}, "met"),
        ({"type": "file_matches", "path": "a.txt", "pattern": "o", "max": 1}, "not_met"),
        ({"type": "file_matches", "path": "a.txt", "pattern": "TODO", "min": 0, "max": 0}, "met"),
        ({"type": "file_matches", "path": "b.bin", "pattern": ".", "min": 0}, "not_met"),
        ({"type": "file_matches", "path": "folder", "pattern": "."}, "not_met"),
        ({"type": "json_schema", "path": "c.json", "schema": {"required": ["a"]}}, "met"),
        ({"type": "json_schema", "path": "c.json", "schema": {"required": ["b"]}}, "not_met"),
        ({"type": "json_schema", "path": "a.txt", "schema": {}}, "not_met"),
        ({"type": "json_schema", "path": "deep.json", "schema": {}}, "not_met"),
        ({"type": "json_schema", "path": "missing.json", "schema": {}}, "not_met"),
    ],
)
async def test_a_file_is_checked_as_it_is(bench: OutcomeBench, check: dict[str, Any], verdict: str) -> None:
    session = await bench.open()
    workspace = await bench.workspace(session)
    (workspace / "a.txt").write_text("one\ntwo\n")
    (workspace / "b.bin").write_bytes(b"\0\1")
    (workspace / "c.json").write_text('{"a": 1}')
    (workspace / "deep.json").write_text("[" * 200_000)
    (workspace / "folder").mkdir()

    assert (await run_check(bench, session, check)).verdict == verdict


@proves("outcomes.checks", "outcomes.isolation")
async def test_a_planted_link_leads_nowhere(bench: OutcomeBench, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("password\n")
    session = await bench.open()
    workspace = await bench.workspace(session)
    (workspace / "link").symlink_to(tmp_path / "secret.txt")
    (workspace / "loop").symlink_to("loop")

    for path in ("link", "loop"):
        result = await run_check(bench, session, {"type": "file_matches", "path": path, "pattern": "password"})
        assert result.verdict == "not_met"
        assert (await run_check(bench, session, {"type": "file_exists", "path": path})).verdict == "not_met"


@proves("outcomes.checks")
@pytest.mark.parametrize(("status", "verdict"), [(0, "not_met"), (3, "met"), (137, "not_met")])
async def test_a_command_is_met_by_its_exit_status_alone(bench: OutcomeBench, status: int, verdict: str) -> None:
    session = await bench.open()
    bench.sandboxes.run = lambda _, __: status
    check = {"type": "command", "command": "make test", "expectExit": 3}

    assert (await run_check(bench, session, check)).verdict == verdict


@proves("outcomes.checks")
async def test_a_person_sees_what_a_failed_command_printed_and_an_agent_only_learns_whether_its_own_is_met(
    bench: OutcomeBench,
) -> None:
    session, other = await bench.open(), await bench.open("other")
    await bench.append(other, NewEvent(type=e.CONFIGURED, body={"policies": {"shell_run": "always_allow"}}))
    bench.sandboxes.run = lambda _, __: 65
    check = {"type": "command", "command": "cat /workspace/agent/x; exit 65"}

    assert "said this" in (await run_check(bench, session, check)).reason
    await bench.call(other, "outcome_define", title="mine", successCriteria=[{"text": "c", "check": check}])
    (result,) = (await bench.evaluate(other)).verdicts[0].results
    assert (result.verdict, result.by) == ("not_met", "check")
    assert "said this" not in result.reason
    assert "65" not in result.reason
    seen = str(await bench.call(other, "outcome_evaluate")).replace(check["command"], "")
    assert "exit status" not in seen


@proves("outcomes.own-commands")
async def test_a_command_that_an_agent_defined_itself_is_not_run_where_commands_need_an_approval(bench: OutcomeBench) -> None:
    session = await bench.open()
    ran: list[str] = []

    def run(_: SandboxSpec, command: str) -> int:
        ran.append(command)
        return 0

    bench.sandboxes.run = run
    check = {"type": "command", "command": "head -c1 agent/secret | exit"}
    await bench.call(session, "outcome_define", title="mine", successCriteria=[{"text": "c", "check": check}])

    verdict = (await bench.call(session, "outcome_evaluate"))["evaluation"]
    assert (verdict["status"], verdict["criteria"][0]["verdict"]) == ("uncertain", "unverified")
    assert "a person has to" in verdict["criteria"][0]["reason"]
    assert (ran, bench.sandboxes.specs) == ([], [])
    # What a person defines counts, and so does what a person decides.
    await bench.define(session, "mine", {"text": "c", "check": check})
    assert (await bench.evaluate(session)).verdict["status"] == "pass"
    assert ran == [check["command"]]


@proves("outcomes.checks")
async def test_an_agent_without_commands_cannot_define_a_check_that_runs_one(bench: OutcomeBench) -> None:
    session = await bench.open()
    criteria = [{"text": "c", "check": {"type": "command", "command": "true"}}]
    tools = frozenset({"outcome_define", "read"})

    refused = await bench.refuse(session, "outcome_define", tools=tools, title="t", successCriteria=criteria)

    assert refused["error"]["code"] == "command_unavailable"


@proves("outcomes.isolation")
async def test_a_command_gets_a_sandbox_of_its_own_without_network_that_is_ended_and_removed(bench: OutcomeBench) -> None:
    session = await bench.open()
    (await bench.workspace(session) / "a.txt").write_text("one\n")
    await bench.define(session, "t", *({"text": f"c{n}", "check": {"type": "command", "command": "true"}} for n in range(2)))
    await bench.evaluate(session)
    seen = bench.sandboxes.specs

    assert len({spec.session for spec in seen}) == 2
    assert session not in {spec.session for spec in seen}
    assert set(bench.sandboxes.stopped) >= {spec.session for spec in seen}
    real = str(await bench.workspace(session))
    assert list((await bench.workspace(session)).parent.joinpath("checks").iterdir()) == []
    for spec in seen:
        assert spec.network == "none"
        assert all(mount.access == "read_only" for mount in spec.mounts if mount.source == real)


@proves("outcomes.checks")
@pytest.mark.parametrize("problem", ["no level", "lost", "time"])
async def test_what_cannot_be_decided_is_unverified_and_never_a_pass(
    bench: OutcomeBench, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await bench.open()
    seconds = 0.0 if problem == "time" else 60.0
    if problem == "no level":

        async def level() -> LevelReport:
            return LevelReport("landlock", "no namespaces", "Install bubblewrap.")

        monkeypatch.setattr(bench.sandboxes, "level", level)
    if problem == "lost":

        def lose(_: SandboxSpec, __: str) -> int:
            raise SandboxUnavailable("It ended.")

        bench.sandboxes.run = lose
    await bench.define(session, "t", {"text": "c", "check": {"type": "command", "command": "true"}})
    run = await bench.evaluate(session, seconds=seconds)

    assert run.verdicts[0].results[0].verdict == "unverified"
    assert (run.verdict["status"], run.verdict["promotionReady"]) == ("uncertain", False)


@proves("outcomes.checks")
async def test_changes_of_a_project_are_limited_to_paths(bench: OutcomeBench) -> None:
    project = Path(bench.project)
    (project / "src").mkdir(parents=True)
    (project / "src/code.py").write_text("1\n")
    (project / "README.md").write_text("hello\n")
    session = await bench.open(mount=".")
    only_source = {"type": "diff_paths", "paths": ["src/**", "*.toml"]}
    assert (await run_check(bench, session, only_source)).verdict == "met"

    copy = (await bench.workspace(session)).parent / "project"
    (copy / "src/new").mkdir()
    (copy / "src/new/code.py").write_text("2\n")
    assert (await run_check(bench, session, only_source)).verdict == "met"

    (copy / "README.md").unlink()
    result = await run_check(bench, session, only_source)
    assert (result.verdict, "README.md" in result.reason) == ("not_met", True)


@proves("outcomes.checks")
async def test_without_a_copy_of_a_project_its_changes_are_not_known(bench: OutcomeBench) -> None:
    check = DiffPathsCheck(paths=("**",))
    result = await run_check(bench, await bench.open(), {"type": "diff_paths", "paths": list(check.paths)})

    assert (result.verdict, "no copy" in result.reason) == ("unverified", True)


@proves("outcomes.checks")
async def test_a_workflow_is_judged_from_the_ledger_with_the_event_that_shows_it(bench: OutcomeBench) -> None:
    asked: list[tuple[dict[str, Any], str]] = []

    async def find(check: Mapping[str, Any], project: str) -> ActivityStatus:
        asked.append((dict(check), project))
        return ActivityStatus(is_completed=True, reason="Release is completed.", citation="evt_9")

    ports = RuntimePorts(find_activity=find)
    other = OutcomeBench(bench.context.home, bench.context.ledger, ports)
    check = {"type": "workflow_activity", "workflow": "release", "activity": "build"}
    result = await run_check(other, await other.open(), check)

    assert (result.verdict, result.citations) == ("met", ("evt_9",))
    ((wanted, project),) = asked
    assert wanted.pop("since") > 0
    assert (wanted, project) == ({"workflow": "release", "session": "", "activity": "build"}, bench.project)
