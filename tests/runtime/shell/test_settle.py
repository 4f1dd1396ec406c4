"""Reconciling the record with the live shell: what ended, what was lost, which shell lives."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fidelio.ledger.redaction import EventView
from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord, fold
from fidelio.runtime.shell.history import describe_end, describe_unknown_end
from fidelio.runtime.shell.live import CommandAnswer, LiveShell, Observation
from fidelio.runtime.shell.settle import GRACE_MS, describe_shells, is_storable_path, reconcile
from fidelio.sandbox.model import SandboxState
from tests.runtime.shell.double import ShellDouble
from tests.runtime.shell.strategies import RECORDS, fold_all, observations
from tests.runtime.support import ToolBench
from tests.support import proves
from tests.support.ledgers import MovingClock

LATE = 1_000_000_000


def settle(record: RuntimeRecord, seen: Observation) -> RuntimeRecord:
    """The record after everything that was found is committed."""
    found = reconcile(record.shell, seen, now=LATE)
    events = [
        *(describe_unknown_end(command, "lost", "gone") for command in found.lost),
        *(describe_end(str(answer.command_id), answer).event for answer in found.ended),
        *describe_shells(record.shell, found, seen),
    ]
    return fold(record, [EventView(record.seq + n, each.type, LATE, dict(each.body)) for n, each in enumerate(events, 1)])


@proves("runtime.shell-settle")
@given(st.data(), RECORDS)
def test_what_was_settled_once_needs_no_settling_again(data: st.DataObject, record: RuntimeRecord) -> None:
    seen = data.draw(observations(record))
    after = settle(record, seen)
    again = reconcile(after.shell, seen, now=LATE)

    assert (again.lost, again.ended, again.closed) == ((), (), "")
    assert again.started is None or not after.shell.is_open


@proves("runtime.shell-settle")
@given(st.data(), RECORDS)
def test_after_settling_nothing_of_another_sandbox_runs_or_is_open(data: st.DataObject, record: RuntimeRecord) -> None:
    seen = data.draw(observations(record))
    shell = settle(record, seen).shell

    assert all(command.incarnation == seen.incarnation for command in shell.unsettled)
    assert not shell.is_open or shell.incarnation == seen.incarnation
    if seen.is_shell_known and shell.is_open:
        assert seen.shell is not None
        assert (seen.shell.alive, seen.shell.shell_id) == (True, shell.shell_id)


@proves("runtime.shell-settle")
@given(st.data(), RECORDS)
def test_settling_never_changes_a_command_that_has_ended(data: st.DataObject, record: RuntimeRecord) -> None:
    after = settle(record, data.draw(observations(record)))
    ended = {command.id: command for command in record.shell.commands if command.state in ("completed", "refused")}
    running = {command.id for command in record.shell.unsettled}

    assert all(after.shell.find(name) == command for name, command in ended.items() if name not in running)


def _open(**command: Any) -> RuntimeRecord:
    opened = (e.SHELL_OPEN, {"shell_id": "shell_1", "incarnation": "box_1"})
    body = {"command_id": "cmd_1", "tool": "shell_exec", "cwd": "/tmp", "incarnation": "box_1", **command}
    return fold_all([opened, (e.COMMAND_STARTED, body)])


@proves("runtime.shell-settle")
def test_a_command_that_another_call_is_about_to_send_is_not_lost() -> None:
    shell = _open().shell
    seen = Observation("box_1", LiveShell("shell_1", True), {"cmd_1": None})

    assert reconcile(shell, seen, now=shell.commands[0].started_at + GRACE_MS).lost == ()
    assert reconcile(shell, seen, now=shell.commands[0].started_at + GRACE_MS + 1).lost == ("cmd_1",)


@proves("runtime.shell-settle")
def test_a_command_that_nobody_asked_for_is_left_alone() -> None:
    assert reconcile(_open().shell, Observation("box_1", is_shell_known=False), now=LATE).lost == ()


@proves("runtime.shell-settle")
def test_a_command_that_nobody_saw_end_is_lost_with_what_it_printed() -> None:
    answer = CommandAnswer("cmd_1", "completed", lost=True, stdout="so far")
    record = settle(_open(), Observation("box_1", LiveShell("shell_1", False), {"cmd_1": answer}))

    assert (record.shell.commands[0].state, record.shell.commands[0].stdout) == ("lost", "so far")
    assert record.shell.closed_because == "shell_exited"


@proves("runtime.shell-settle")
@given(st.text(max_size=20))
def test_a_directory_that_could_not_be_named_again_is_not_kept(path: str) -> None:
    if is_storable_path(path):
        assert path.startswith("/")
        assert b"\0" not in path.encode()


@proves("runtime.shell-truth")
async def test_after_a_restart_of_the_host_everything_that_ran_is_lost(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="export COLOUR=blue")
    running = await bench.use("shell_exec", command="sleep")
    sandbox.crash(bench.session)
    sandbox._live[bench.session] = SandboxState(bench.session, "box_other", "bubblewrap", 1)
    described = await bench.use("shell_describe")
    waited = await bench.use("shell_wait", commandId=running["commandId"])

    assert described["persistentShell"]["closedBecause"] == "sandbox_restarted"
    assert described["busyPlan"] is None
    assert (waited["status"], waited["error"]["code"]) == ("error", "command_lost")
    assert sandbox.runs[-1] == "sleep"


@proves("runtime.shell-truth")
async def test_reading_starts_no_sandbox(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="print x")
    sandbox.crash(bench.session)
    started = len(sandbox.starts)
    for tool in ("shell_describe", "shell_history", "shell_read_last_output", "shell_wait", "shell_close", "shell_interrupt"):
        await bench.use(tool)

    assert len(sandbox.starts) == started
    assert [each.body["reason"] for each in await bench.events(e.SHELL_CLOSED)] == ["sandbox_ended"]


@proves("runtime.shell-cheap")
async def test_nothing_is_asked_when_the_record_leaves_nothing_open(bench: ToolBench, sandbox: ShellDouble) -> None:
    for tool in ("shell_describe", "shell_history", "shell_read_last_output", "shell_wait", "shell_close", "shell_interrupt"):
        await bench.use(tool)
    await bench.use("shell_set_env", key="COLOUR", value="blue")

    assert (sandbox.starts, sandbox.calls) == ([], [])


@proves("runtime.shell-truth")
async def test_a_call_that_died_before_it_sent_its_command_is_lost_after_a_while(
    bench: ToolBench, sandbox: ShellDouble, clock: MovingClock
) -> None:
    never_sent = await bench.prepare("shell_exec", command="print x")
    await never_sent.commit_intent()
    soon = await bench.use("shell_describe")
    clock.now += GRACE_MS + 1
    later = await bench.use("shell_describe")

    assert soon["shellState"]["recentCommands"][0]["status"] == "running"
    assert later["shellState"]["recentCommands"][0]["status"] == "lost"
    assert sandbox.runs == []


@proves("runtime.shell-truth")
async def test_a_call_that_comes_late_after_all_corrects_what_was_thought_lost(
    bench: ToolBench, sandbox: ShellDouble, clock: MovingClock
) -> None:
    slow = await bench.prepare("shell_exec", command="print late")
    await slow.commit_intent()
    clock.now += GRACE_MS + 1
    await bench.use("shell_describe")
    result = await slow.commit(await slow.run())
    (command,) = (await bench.record()).shell.commands

    assert not result.is_error
    assert (command.state, command.stdout) == ("completed", "late")


@proves("runtime.shell-settle")
async def test_a_shell_whose_opening_was_never_committed_is_adopted(bench: ToolBench, sandbox: ShellDouble) -> None:
    cut_off = await bench.prepare("shell_exec", command="sleep")
    await cut_off.commit_intent()
    await cut_off.run()
    described = await bench.use("shell_describe")

    assert described["persistentShell"]["shellId"] == "shell_1"
    assert described["persistentShell"]["busy"] is True
    assert described["busyPlan"]["tool"] == "shell_wait"
