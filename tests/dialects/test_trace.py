"""The trace of the `sessions` dialect, and what hostile calls leave in it."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.ledger import open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.settings import Settings
from tests.dialects.conftest import Opens, Player
from tests.support import proves

AN_HOUR = 3_600_000
KEYS = {"traceId", "spanId", "name", "ts", "ms", "s", "wf", "act", "aid"}


@proves("sessions.trace")
async def test_every_call_is_in_the_trace_and_looking_is_not(play: Player) -> None:
    token = await play.at("tune")
    handle = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
    await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")
    await play("get_workflow_status", session_token=token)
    await play("next_activity", session_token=token, activity_id="coda")
    trace = (await play("get_trace", session_token=token)).json

    assert trace["source"] == "memory"
    assert [(event["name"], event["s"]) for event in trace["events"]] == [
        ("start_session", "ok"),
        ("next_activity", "ok"),
        ("yield_checkpoint", "ok"),
        ("respond_checkpoint", "ok"),
        ("next_activity", "error"),
    ]
    assert all(set(event) >= KEYS for event in trace["events"])
    assert all(0 <= event["ms"] < AN_HOUR for event in trace["events"])
    assert trace["events"][-1]["err"]
    assert "session_token" not in str(trace["events"])


@proves("sessions.trace")
async def test_trace_tokens_commit_to_their_stretch_and_resolve(play: Player) -> None:
    token = await play.start()
    first = await play("next_activity", session_token=token, activity_id="tune")
    await play("get_activity", session_token=first.token)
    second = await play("next_activity", session_token=first.token, activity_id="bow")
    tokens = [first.meta["trace_token"], second.meta["trace_token"]]
    trace = (await play("get_trace", session_token=token, trace_tokens=[*tokens, "broken"])).json

    assert all(len(text) <= 300 for text in tokens)
    assert trace["source"] == "tokens"
    assert [event["name"] for event in trace["events"]] == ["start_session", "next_activity", "get_activity", "next_activity"]
    assert len(trace["token_errors"]) == 1
    assert "trace_tokens[2]" in trace["token_errors"][0]


@proves("sessions.trace")
async def test_trace_tokens_of_other_sessions_are_marked_foreign(opens: Opens) -> None:
    async with opens() as play:
        other = await play("next_activity", session_token=await play.start(), activity_id="tune")
        trace = (await play("get_trace", session_token=await play.start(), trace_tokens=[other.meta["trace_token"]])).json

    assert trace["event_count"] == 2
    assert all(event["foreign"] for event in trace["events"])


@proves("sessions.trace")
async def test_the_calls_of_a_child_are_not_foreign_to_its_parent(opens: Opens) -> None:
    async with opens() as play:
        parent = await play.at("tune")
        child = await play(
            "next_activity", session_token=await play.start("solo", parent_session_token=parent), activity_id="alone"
        )
        trace = (await play("get_trace", session_token=parent, trace_tokens=[child.meta["trace_token"]])).json

    assert trace["event_count"] == 2
    assert not any("foreign" in event for event in trace["events"])


@proves("sessions.hostile", "sessions.trace")
async def test_more_than_a_record_can_hold_is_refused_with_one_error_event(memory: Opens) -> None:
    async with memory() as play:
        token = await play.at("tune")
        much = {f"v{number}": "x" * 10_000 for number in range(100)}
        refused = await play("next_activity", session_token=token, activity_id="play", variables=much)
        trace = (await play("get_trace", session_token=token)).json

    assert refused.is_error
    assert "together have at most" in refused.text
    assert trace["events"][-1]["err"] == "variables.too-large"


@proves("sessions.trace", "workflows.record")
@pytest.mark.every_transport
async def test_the_trace_survives_a_restart_and_verifies(opens: Opens, settings: Settings) -> None:
    async with opens() as play:
        moved = await play("next_activity", session_token=await play.start(), activity_id="tune")
    async with opens() as play:
        trace = (await play("get_trace", session_token=moved.token, trace_tokens=[moved.meta["trace_token"]])).json
    async with await open_ledger(settings.ledger) as ledger:
        verdict = await verify_session(ledger, trace["traceId"])

    assert trace["event_count"] == 2
    assert verdict.events > 2


@proves("sessions.trace")
async def test_a_trace_token_does_not_resolve_when_its_events_were_changed(opens: Opens, settings: Settings) -> None:
    import apsw

    async with opens() as play:
        moved = await play("next_activity", session_token=await play.start(), activity_id="tune")
    database = apsw.Connection(settings.ledger)
    database.execute("UPDATE events SET hash = zeroblob(32) WHERE seq = (SELECT max(seq) FROM events)")
    database.close()
    async with opens() as play:
        trace = (await play("get_trace", session_token=moved.token, trace_tokens=[moved.meta["trace_token"]])).json

    assert trace["event_count"] == 0
    assert len(trace["token_errors"]) == 1


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("next_activity", {"activity_id": "../tune"}),
    ("next_activity", {"activity_id": "tune/../../meta"}),
    ("next_activity", {"activity_id": "\0"}),
    ("get_resource", {"resource_id": "../../../../etc/passwd"}),
    ("get_resource", {"resource_id": "meta/../score/01"}),
    ("get_skill", {"step_id": "../hear"}),
    ("yield_checkpoint", {"checkpoint_id": "../how"}),
    ("next_activity", {"activity_id": "play", "step_manifest": "all of them"}),
    ("next_activity", {"activity_id": "play", "step_manifest": [{"step_id": 1}]}),
    ("next_activity", {"activity_id": "play", "variables": ["loud"]}),
    ("next_activity", {"activity_id": "play", "variables": {"mood": "x" * 100_000}}),
]


@proves("sessions.hostile")
@pytest.mark.parametrize(("tool", "arguments"), HOSTILE)
async def test_a_hostile_call_changes_nothing_except_one_error_event(
    opens: Opens, tool: str, arguments: dict[str, Any]
) -> None:
    async with opens() as play:
        token = await play.at("tune")
        before = (await play("get_workflow_status", session_token=token)).json
        calls = (await play("get_trace", session_token=token)).json["event_count"]
        refused = await play(tool, session_token=token, **arguments)
        after = (await play("get_workflow_status", session_token=token)).json
        trace = (await play("get_trace", session_token=token)).json

    assert refused.is_error
    assert len(refused.text) < 1000
    assert {**before, "session_token": ""} == {**after, "session_token": ""}
    assert trace["event_count"] == calls + 1
    assert trace["events"][-1]["s"] == "error"


@proves("sessions.hostile")
async def test_a_manifest_of_ten_megabytes_is_refused(memory: Opens, settings: Settings) -> None:
    async with memory() as play:
        token = await play.at("tune")
        manifest = [{"step_id": "hear", "output": "x" * 10_000} for _ in range(1000)]
        moved = await play("next_activity", session_token=token, activity_id="play", step_manifest=manifest)
        status = await play("get_workflow_status", session_token=token)
    async with await open_ledger(settings.ledger) as ledger:
        recorded = sum(len(event.raw or "") for event in await ledger.events())

    assert len(status.text) < 10_000
    assert moved.is_error
    assert "step_manifest" in moved.text
    assert status.json["current_activity"] == "tune"
    assert recorded < 1_000_000


@proves("sessions.hostile")
@pytest.mark.parametrize("token", ["", "x", "f1.x", "x" * 1_000_000, "s_000000000000", "é", "f1.aaaaaa.e30.AAAA"])
async def test_no_bad_token_opens_anything(opens: Opens, token: str) -> None:
    async with opens() as play:
        for tool, more in (("get_workflow", {}), ("next_activity", {"activity_id": "tune"}), ("get_trace", {})):
            refused = await play(tool, session_token=token, **more)
            assert refused.is_error
            assert len(refused.text) < 500
