"""Generated shells: records folded from any events, and what a sandbox might say about them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from fidelio.ledger.redaction import EventView
from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord, fold
from fidelio.runtime.shell.live import CommandAnswer, CurrentCommand, LiveShell, Observation

IDS = st.sampled_from(["cmd_1", "cmd_2", "cmd_3"])
SHELLS = st.sampled_from(["shell_1", "shell_2"])
BOXES = st.sampled_from(["box_1", "box_2"])
NAMES = st.sampled_from(["ONE", "TWO", "THREE"])
PATHS = st.sampled_from(["/workspace", "/workspace/src", "/tmp"])
STATES = st.sampled_from(["completed", "lost", "refused"])
TOOLS = st.sampled_from(["shell_exec", "shell_run", "bash"])

BODIES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    e.SHELL_OPEN: st.fixed_dictionaries({"shell_id": SHELLS, "incarnation": BOXES, "pty": st.booleans()}),
    e.SHELL_CLOSED: st.fixed_dictionaries({"shell_id": SHELLS, "reason": st.just("closed")}),
    e.SHELL_CWD: st.fixed_dictionaries({"cwd": PATHS, "by_command": st.booleans()}),
    e.SHELL_ENV: st.fixed_dictionaries(
        {"set": st.dictionaries(NAMES, st.sampled_from(["d1", "d2"])), "unset": st.lists(NAMES), "by_command": st.booleans()}
    ),
    e.COMMAND_STARTED: st.fixed_dictionaries(
        {"command_id": IDS, "tool": TOOLS, "command": st.text(max_size=5), "cwd": PATHS, "incarnation": BOXES}
    ),
    e.COMMAND_ENDED: st.fixed_dictionaries({"command_id": IDS, "state": STATES, "exit_code": st.integers(0, 255)}),
}
EVENTS = st.lists(st.sampled_from(sorted(BODIES)).flatmap(lambda kind: st.tuples(st.just(kind), BODIES[kind])), max_size=30)


def number(events: list[tuple[str, dict[str, Any]]], first: int = 1) -> list[EventView]:
    return [EventView(seq, kind, 1_000 * seq, body) for seq, (kind, body) in enumerate(events, first)]


def fold_all(events: list[tuple[str, dict[str, Any]]]) -> RuntimeRecord:
    return fold(RuntimeRecord(), number(events))


RECORDS = EVENTS.map(fold_all)
CURRENT = st.builds(CurrentCommand, IDS, st.text(max_size=5), st.none(), st.text(max_size=5), st.text(max_size=5))
LIVE = st.builds(LiveShell, SHELLS, st.booleans(), st.booleans(), current_command=st.none() | CURRENT)


def answer_of(command_id: str) -> st.SearchStrategy[CommandAnswer | None]:
    statuses = st.sampled_from(["running", "completed"])
    return st.none() | st.builds(
        CommandAnswer, st.just(command_id), statuses, st.integers(0, 255), lost=st.booleans(), shell=st.none() | LIVE
    )


@st.composite
def observations(draw: st.DrawFn, record: RuntimeRecord) -> Observation:
    """What a sandbox might say about the commands of a record."""
    asked = [command.id for command in record.shell.unsettled if draw(st.booleans())]
    answers = {command_id: draw(answer_of(command_id)) for command_id in asked}
    return Observation(draw(BOXES | st.just("")), draw(st.none() | LIVE), answers, draw(st.booleans()))
