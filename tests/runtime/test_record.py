"""The record of a runtime session follows from its events alone."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fidelio.ledger.redaction import EventView, blank_body
from fidelio.runtime import events as e
from fidelio.runtime.durable_shell import RECENT_COMMANDS
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords, fold
from tests.support import proves

IDS = st.sampled_from(["one", "two", "three"])
TEXTS = st.text(max_size=5)
NUMBERS = st.integers(0, 9)

BODIES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    e.CONFIGURED: st.fixed_dictionaries({"policies": st.dictionaries(IDS, IDS), "vaults": st.lists(IDS)}),
    e.ENDED: st.just({}),
    e.SANDBOX_STARTED: st.fixed_dictionaries({"level": IDS, "incarnation": IDS}),
    e.SANDBOX_CLOSED: st.fixed_dictionaries({"reason": TEXTS}),
    e.APPROVAL_REQUESTED: st.fixed_dictionaries(
        {"request": IDS, "digest": IDS, "tool": IDS, "expires": NUMBERS, "command": TEXTS}
    ),
    e.REQUEST_ANSWERED: st.fixed_dictionaries(
        {
            "request": IDS,
            "option": st.sampled_from(["allow", "deny"]),
            "assurance": st.sampled_from(["local", "elicited", "relayed", "timer"]),
            "text": TEXTS,
            "by": TEXTS,
        }
    ),
    e.APPROVAL_USED: st.fixed_dictionaries({"request": IDS}),
    e.APPROVAL_ENDED: st.fixed_dictionaries({"request": IDS}),
    e.PERMISSION_ALLOWED: st.fixed_dictionaries({"pattern": IDS, "expires": NUMBERS, "by": IDS}),
    e.SHELL_OPEN: st.fixed_dictionaries({"shell_id": IDS, "pty": st.booleans()}),
    e.SHELL_CLOSED: st.fixed_dictionaries({"reason": TEXTS}),
    e.SHELL_CWD: st.fixed_dictionaries({"cwd": TEXTS, "by_command": st.booleans()}),
    e.SHELL_ENV: st.fixed_dictionaries({"set": st.dictionaries(IDS, TEXTS), "unset": st.lists(IDS)}),
    e.COMMAND_STARTED: st.fixed_dictionaries(
        {"command_id": IDS, "tool": st.sampled_from(["bash", "shell_exec"]), "command": TEXTS, "cwd": TEXTS}
    ),
    e.COMMAND_ENDED: st.fixed_dictionaries(
        {
            "command_id": IDS,
            "state": st.sampled_from(["completed", "lost"]),
            "exit_code": NUMBERS,
            "stdout": st.fixed_dictionaries({"text": TEXTS}),
        }
    ),
    e.STAGED: st.fixed_dictionaries(
        {"source_path": IDS, "source_digest": IDS, "target_digest": IDS, "target_path": IDS, "bytes": NUMBERS}
    ),
    "agent.tool_use": st.just({"id": "toolu_1"}),
}
EVENTS = st.lists(st.sampled_from(sorted(BODIES)).flatmap(lambda kind: st.tuples(st.just(kind), BODIES[kind])), max_size=25)


def number(events: list[tuple[str, dict[str, Any]]]) -> list[EventView]:
    return [EventView(seq, kind, 1_000 + seq, body) for seq, (kind, body) in enumerate(events, 1)]


@proves("runtime.record")
@given(EVENTS, st.integers(0, 25))
def test_folding_in_two_parts_is_folding_at_once(events: list[tuple[str, dict[str, Any]]], cut: int) -> None:
    views = number(events)

    assert fold(fold(RuntimeRecord(), views[:cut]), views[cut:]) == fold(RuntimeRecord(), views)


@proves("runtime.record")
@given(EVENTS)
def test_a_record_is_read_back_as_it_was_stored(events: list[tuple[str, dict[str, Any]]]) -> None:
    record = fold(RuntimeRecord(), number(events))

    assert RuntimeRecords().read(msgspec.json.encode(record).decode()) == record
    assert record.seq == len(events)
    assert len(record.shell.commands) <= RECENT_COMMANDS


@proves("runtime.record")
@given(EVENTS)
def test_a_redacted_record_still_follows_and_keeps_where_the_session_is(events: list[tuple[str, dict[str, Any]]]) -> None:
    whole = fold(RuntimeRecord(), number(events))
    blanked = [(kind, blank_body(body, RuntimeRecords.structure)) for kind, body in events]
    left = fold(RuntimeRecord(), number(blanked))

    assert left.shell.cwd
    assert (left.status, left.approvals.keys(), left.drafts, left.sandbox.incarnation) == (
        whole.status,
        whole.approvals.keys(),
        whole.drafts,
        whole.sandbox.incarnation,
    )


@proves("runtime.approval-once")
@given(EVENTS)
def test_only_the_answer_of_a_person_allows_a_call(events: list[tuple[str, dict[str, Any]]]) -> None:
    record = fold(RuntimeRecord(), number(events))
    answered = {
        body["request"] for kind, body in events if kind == e.REQUEST_ANSWERED and body["assurance"] in ("local", "elicited")
    }

    assert {name for name, approval in record.approvals.items() if approval.state != "open"} <= answered
