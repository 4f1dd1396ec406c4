"""The durable shell follows from its events alone, whatever their order."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fidelio.runtime import events as e
from fidelio.runtime.durable_shell import RECENT_COMMANDS
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords, fold
from tests.runtime.shell.strategies import EVENTS, fold_all, number
from tests.support import proves

Events = list[tuple[str, dict[str, Any]]]


@proves("runtime.shell-fold")
@given(EVENTS)
def test_a_shell_is_read_back_as_it_was_stored(events: Events) -> None:
    record = fold_all(events)

    assert RuntimeRecords().read(msgspec.json.encode(record).decode()) == record


@proves("runtime.shell-fold")
@given(EVENTS)
def test_the_variables_are_those_that_were_set_last_and_not_removed_since(events: Events) -> None:
    expected: dict[str, str] = {}
    for kind, body in events:
        if kind == e.SHELL_ENV:
            expected = {name: digest for name, digest in expected.items() if name not in body["unset"]} | body["set"]

    assert fold_all(events).shell.variables == expected


@proves("runtime.shell-fold")
@given(EVENTS)
def test_the_directory_is_that_of_the_last_change(events: Events) -> None:
    changes = [body["cwd"] for kind, body in events if kind == e.SHELL_CWD]

    assert fold_all(events).shell.cwd == (changes[-1] if changes else "/workspace")


@proves("runtime.shell-variables")
def test_the_late_end_of_a_command_does_not_move_a_shell_that_a_call_has_moved_since() -> None:
    started = (e.COMMAND_STARTED, {"command_id": "cmd_1", "tool": "shell_exec", "cwd": "/workspace"})
    by_call = (e.SHELL_CWD, {"cwd": "/tmp"})
    by_command = (e.SHELL_CWD, {"cwd": "/workspace/src", "by_command": True, "command_id": "cmd_1"})

    assert fold_all([started, by_call, by_command]).shell.cwd == "/tmp"
    assert fold_all([by_call, started, by_command]).shell.cwd == "/workspace/src"


@proves("runtime.shell-fold")
@given(EVENTS)
def test_a_live_shell_forgets_exactly_what_was_removed_and_not_set_again(events: Events) -> None:
    shell = fold_all(events).shell

    assert not set(shell.removed) & set(shell.variables)
    assert shell.is_open or not shell.removed


@proves("runtime.shell-fold")
@given(EVENTS, st.data())
def test_the_first_end_of_a_command_counts_and_repeating_events_changes_nothing(events: Events, data: st.DataObject) -> None:
    record = fold_all(events)
    ends = [(kind, body) for kind, body in events if kind in (e.COMMAND_ENDED, e.SHELL_CLOSED)]
    repeated = data.draw(st.lists(st.sampled_from(ends), max_size=3)) if ends else []

    after = fold(record, number(repeated, record.seq + 1))
    settled = {command.id: command.state for command in record.shell.commands if command.state in ("completed", "refused")}

    assert settled.items() <= {command.id: command.state for command in after.shell.commands}.items()


@proves("runtime.shell-fold")
def test_a_lost_command_can_turn_out_to_have_ended_and_never_the_other_way_round() -> None:
    started = (e.COMMAND_STARTED, {"command_id": "cmd_1", "tool": "shell_exec", "cwd": "/tmp"})
    lost = (e.COMMAND_ENDED, {"command_id": "cmd_1", "state": "lost"})
    done = (e.COMMAND_ENDED, {"command_id": "cmd_1", "state": "completed", "exit_code": 0})

    assert fold_all([started, lost, done]).shell.commands[0].state == "completed"
    assert fold_all([started, done, lost]).shell.commands[0].state == "completed"
    assert fold_all([started, lost, done]).shell.commands[0].seq == 3
    assert fold_all([started, done, lost]).shell.commands[0].seq == 2


@proves("runtime.shell-fold")
def test_a_running_command_stays_however_many_follow_it() -> None:
    events: Events = [(e.COMMAND_STARTED, {"command_id": "server", "tool": "shell_exec", "cwd": "/tmp"})]
    for each in range(100):
        events.append((e.COMMAND_STARTED, {"command_id": f"cmd_{each}", "tool": "bash", "cwd": "/tmp"}))
        events.append((e.COMMAND_ENDED, {"command_id": f"cmd_{each}", "state": "completed"}))
    shell = fold_all(events).shell

    assert shell.running is not None
    assert shell.running.id == "server"
    assert len(shell.commands) == RECENT_COMMANDS
    assert shell.commands[0].id == "cmd_99"


@proves("runtime.shell-fold")
def test_the_record_stays_small_whatever_commands_and_outputs_are() -> None:
    events: Events = []
    for each in range(100):
        body = {"command_id": f"cmd_{each}", "tool": "bash", "command": "x" * 4_000, "cwd": "/", "args": ["y" * 4_000] * 100}
        events += [
            (e.COMMAND_STARTED, body),
            (e.COMMAND_ENDED, {"command_id": f"cmd_{each}", "state": "completed", "stdout": {"text": "z" * 4_000}}),
        ]

    assert len(msgspec.json.encode(fold_all(events).shell)) < 250_000
    assert fold(RuntimeRecord(), []).shell.commands == ()


@proves("runtime.shell-fold")
def test_a_shell_that_another_call_replaced_is_not_closed_by_news_of_the_old_one() -> None:
    first = (e.SHELL_OPEN, {"shell_id": "shell_1", "incarnation": "box_1"})
    second = (e.SHELL_OPEN, {"shell_id": "shell_2", "incarnation": "box_1"})
    closed = (e.SHELL_CLOSED, {"shell_id": "shell_1", "reason": "shell_exited"})

    assert fold_all([first, second, closed]).shell.is_open
    assert fold_all([first, second, second]).shell == fold_all([first, second, second]).shell
    assert fold_all([first, second, second]).shell.opened_at == fold_all([first, second]).shell.opened_at
