"""Whatever is left of a stored event, what is sent of it validates against the SDK's types."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from anthropic.types.beta.sessions import BetaManagedAgentsSessionEvent
from hypothesis import given
from hypothesis import strategies as st

from fidelio.ledger.model import Event
from fidelio.ledger.redaction import EventView
from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord, fold
from fidelio.surfaces.http.v1.events.history import TypeSelection
from fidelio.surfaces.http.v1.events.rendering import (
    WireView,
    list_stored_types,
    render,
    render_own,
    render_posted,
    render_usage,
)
from fidelio.surfaces.http.v1.events.types import OWN_PREFIX, POSTED, VENDOR_TYPES, strip_suffix, to_call, to_event_id
from tests.support import proves
from tests.surfaces.v1.strict import check_json

TEXT = {"type": "text", "text": "Text"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}}
USAGE = {
    "input_tokens": 1,
    "output_tokens": 2,
    "cache_read_tokens": 3,
    "cache_write_tokens": 4,
    "cost_micros": 5,
    "active_ms": 6,
}
NAMED = {"outcome_id": "outc_a", "iteration": 1, "wake_id": "wake_a"}
# A whole body for each stored type that is rendered; some of its keys are left out below.
BODIES: dict[str, dict[str, Any]] = {
    e.USER_MESSAGE: {"content": [TEXT, IMAGE], "from_session": "s_0123456789ab"},
    e.SYSTEM_MESSAGE: {"content": [TEXT]},
    e.USER_INTERRUPT: {},
    e.USER_CONFIRMATION: {"tool_use_id": "toolu_a", "result": "deny", "deny_message": "No."},
    e.USER_TOOL_RESULT: {"custom_tool_use_id": "toolu_a", "content": [TEXT, IMAGE], "is_error": True},
    "user.tool_result": {"tool_use_id": "toolu_a", "content": [TEXT], "is_error": False},
    e.USER_OUTCOME: {
        "title": "Title",
        "detail": "Detail",
        "criteria": [{"text": "One"}],
        "description": "Title",
        "rubric": "- One",
        "max_iterations": 4,
        **NAMED,
    },
    e.AGENT_MESSAGE: {"content": [TEXT], "directive": {"blob": "0", "size": 1}},
    e.AGENT_THINKING: {"text": "Hm.", "signature": "x"},
    e.TOOL_USE: {
        "id": "toolu_a",
        "name": "tool_call",
        "tool": "mcp__server__search",
        "input": {"arguments": {"query": "x"}},
        "permission": "ask",
        "policy": "auto",
    },
    e.TOOL_RESULT: {"tool_use_id": "toolu_a", "name": "mcp__server__search", "is_error": True, "result": "{}"},
    e.CUSTOM_TOOL_USE: {"id": "toolu_a", "name": "lookup", "input": {"a": 1}},
    e.CONTEXT_COMPACTED: {"through_seq": 3},
    e.STATUS_RUNNING: {"wake_id": "wake_a"},
    e.STATUS_IDLE: {"stop_reason": {"type": "requires_action", "event_ids": ["toolu_a"]}, "summary": "Waits."},
    e.STATUS_RESCHEDULED: {"due": 1, "reason": "follow_up"},
    e.ENDED: {"reason": "ended by a person"},
    e.SESSION_ERROR: {
        "error": {"type": "turn_limit_error", "message": "No end.", "remedy": "Stop.", "retry_status": {"type": "terminal"}}
    },
    e.MODEL_REQUEST_STARTED: {"model": "m"},
    e.MODEL_REQUEST_ENDED: {"model_request_start_id": "evt_a", "is_error": False, "model_usage": {"input_tokens": 1}},
    e.EVALUATION_STARTED: NAMED,
    e.EVALUATION_ENDED: {
        **NAMED,
        "outcome_evaluation_start_id": "evt_a",
        "result": "satisfied",
        "explanation": "Done.",
        "usage": {"input_tokens": 1, "cache_read_tokens": 2},
    },
    e.CHILD_CREATED: {"childSessionId": "s_0123456789ab", "message": "Do it."},
    e.CONFIGURED: {"updated": {"title": None, "metadata": {"a": "b"}}},
    e.SPAN_COMPLETED: {"span_kind": "wake", "usage": USAGE},
    "session.deleted": {},
}
REASONS = ("end_turn", "requires_action", "retries_exhausted", "budget_reached", "refusal", "unheard of")


@st.composite
def events(draw: st.DrawFn, types: tuple[str, ...] = tuple(BODIES)) -> tuple[Event, dict[str, Any]]:
    """A stored event, of which a redaction may have left some keys, or nothing."""
    type_ = draw(st.sampled_from(types))
    whole = BODIES[type_]
    kept = draw(st.sets(st.sampled_from(sorted(whole)))) if whole else set()
    body = {name: value for name, value in whole.items() if name in kept}
    if type_ == e.STATUS_IDLE and draw(st.booleans()):
        body["stop_reason"] = {"type": draw(st.sampled_from(REASONS))}
    raw = None if draw(st.booleans()) else "{}"
    prefix = draw(st.sampled_from(["evt_", "toolu_", "e_"]))
    return Event(7, "s_a", 3, f"{prefix}abc", type_, "agent", 1_700_000_000_000, raw, b"", b"", b""), body


VIEWS = st.builds(
    WireView,
    thread=st.just("sthr_0123456789ab"),
    agent=st.just("helper"),
    is_child=st.booleans(),
    processed=st.sampled_from([{}, {"evt_abc": 1_700_000_000_001}]),
)


@proves("v1.events-life")
@given(events(), VIEWS)
def test_every_rendered_event_is_one_of_the_sdk(stored: tuple[Event, dict[str, Any]], view: WireView) -> None:
    found = render(*stored, view)

    for item in found:
        check_json(BetaManagedAgentsSessionEvent, item)
        assert item["type"] in VENDOR_TYPES
        assert strip_suffix(item["id"]) == to_event_id(stored[0].id)
        assert item["type"] in ("user.message", "system.message") or item["processed_at"]
    assert len({item["id"] for item in found}) == len(found)


@proves("v1.threads-posted")
@given(events(tuple(type_ for type_ in POSTED if type_ in BODIES)), VIEWS)
def test_every_event_of_a_child_that_is_posted_is_one_of_the_sdk(stored: tuple[Event, dict[str, Any]], view: WireView) -> None:
    for item in render_posted(*stored, view):
        check_json(BetaManagedAgentsSessionEvent, item)
        assert item["session_thread_id"].startswith("sthr_")


@proves("v1.events-list")
@given(events(), VIEWS)
def test_a_type_is_found_in_the_stored_types_that_are_read_for_it(stored: tuple[Event, dict[str, Any]], view: WireView) -> None:
    for item in render(*stored, view):
        assert stored[0].type in list_stored_types({item["type"]})
        assert TypeSelection(frozenset({item["type"]})).accepts(item["type"])


@proves("v1.own-events")
@given(events())
def test_an_event_of_ours_has_a_prefix_and_no_directory(stored: tuple[Event, dict[str, Any]]) -> None:
    event, body = stored
    view = WireView("sthr_0123456789ab", hide=lambda text: text.replace("/home/me", "HOME"))

    shown = render_own(event, {**body, "project": "/home/me/p", "directory": "x", "note": "in /home/me/p"}, view)

    assert shown["type"] == f"{OWN_PREFIX}{event.type}"
    assert "/home/me" not in str(shown)
    assert not TypeSelection().accepts(shown["type"])


@proves("v1.confirmations")
@pytest.mark.parametrize("stored", ["toolu_abc"])
def test_the_id_of_a_call_on_the_wire_names_the_call(stored: str) -> None:
    assert to_call(to_event_id(stored)) == to_call(stored) == stored


@proves("v1.session")
def test_requests_to_the_web_are_counted_in_the_usage() -> None:
    results = [
        {"tool_use_id": f"t{at}", "name": name} for at, name in enumerate(("web_fetch", "bash", "web_fetch", "web_search"))
    ]
    views = [EventView(number, e.TOOL_RESULT, 1, body) for number, body in enumerate(results, 1)]

    usage = render_usage(msgspec.structs.asdict(fold(RuntimeRecord(), views).wakes.usage))

    assert usage["server_tool_use"] == {"web_fetch_requests": 2, "web_search_requests": 1}
