"""The short form of a token: in the text of replies, accepted like a handle, with agent and visit of the sealed token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.ids import ALPHABET, ShortToken, is_short_handle, parse_short_token
from tests.dialects.conftest import Opens, Player
from tests.support import proves

parts = st.text(ALPHABET, min_size=12, max_size=12)
requests = st.just("") | parts.map("r_{}".format)


@proves("tokens.short")
@given(session=parts.map("s_{}".format), agent=st.integers(1, 9999), visit=st.integers(0, 999_999_999), request=requests)
def test_a_short_token_is_read_as_it_was_written(session: str, agent: int, visit: int, request: str) -> None:
    token = ShortToken(session, agent, visit, request)

    assert parse_short_token(str(token)) == token
    assert not is_short_handle(str(token))


@proves("tokens.short")
@pytest.mark.parametrize(
    "tail", ["", ".", ".1", ".0.1", ".01.1", ".1.01", ".1.-1", ".1.1.", ".1.1.x", ".1.1.r_1", ".1.1 ", ".\u0661.1"]
)
def test_nothing_else_is_a_short_token(tail: str) -> None:
    assert parse_short_token(f"s_0123456789ab{tail}") is None


@proves("tokens.short")
@pytest.mark.every_transport
async def test_the_text_of_a_reply_has_the_short_token_and_its_metadata_the_sealed_one(play: Player) -> None:
    begun = await play("start_session", workflow_id="score", agent_id="conductor")
    entered = await play("next_activity", session_token=begun.text_token, activity_id="tune")
    inherited = await play("start_session", session_token=entered.text_token, agent_id="second")
    read = await play("get_activity", session_token=inherited.text_token)

    session = begun.text_token.partition(".")[0]
    assert [reply.text_token for reply in (begun, entered, inherited, read)] == [
        f"{session}.1.0",
        f"{session}.1.1",
        f"{session}.2.1",
        f"{session}.2.1",
    ]
    assert all(reply.token.startswith("f1.") for reply in (begun, entered, inherited, read))


@proves("tokens.short")
async def test_a_short_token_names_the_agent_whose_reply_it_was_in(play: Player) -> None:
    first = await play("start_session", workflow_id="score", agent_id="one")
    other = await play("start_session", session_token=first.text_token, agent_id="two")
    await play("next_activity", session_token=other.text_token, activity_id="tune")
    await play("get_skills", session_token=first.text_token)
    events = (await play("get_trace", session_token=first.text_token)).json["events"]

    assert other.warnings == ["agent_id 'two' does not match the inherited session token's agent_id 'one'."]
    assert [(event["name"], event["aid"]) for event in events[-2:]] == [("next_activity", "two"), ("get_skills", "one")]


@proves("tokens.short", "sessions.two-agents")
async def test_a_move_with_a_short_token_of_another_activity_is_stale(play: Player) -> None:
    start = await play("start_session", workflow_id="score")
    tune = await play("next_activity", session_token=start.text_token, activity_id="tune")
    stale = await play("next_activity", session_token=start.text_token, activity_id="bow")
    moved = await play("next_activity", session_token=tune.text_token, activity_id="bow")
    late = await play("next_activity", session_token=tune.text_token, activity_id="tune")

    assert not moved.is_error
    assert "made at 'the start'" in stale.text
    assert "made at 'tune'" in late.text


@proves("tokens.short", "sessions.answer-once")
async def test_the_short_form_of_a_handle_answers_its_own_question(play: Player) -> None:
    start = await play("start_session", workflow_id="score")
    tune = await play("next_activity", session_token=start.text_token, activity_id="tune")
    yielded = await play("yield_checkpoint", session_token=tune.text_token, checkpoint_id="how")
    handle = yielded.text_token
    presented = await play("present_checkpoint", checkpoint_handle=handle)
    answered = await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")
    again = await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")
    other = await play("respond_checkpoint", checkpoint_handle=handle, option_id="piano")

    assert handle == presented.text_token == answered.text_token
    assert handle.split(".")[3].startswith("r_")
    assert not again.is_error
    assert other.is_error


@proves("tokens.short")
@pytest.mark.parametrize("tail", [".2.0", ".1.7"])
async def test_an_agent_or_a_visit_that_the_session_does_not_have_is_refused(play: Player, tail: str) -> None:
    token = (await play("start_session", workflow_id="score")).text_token
    session = token.partition(".")[0]
    refused = await play("get_workflow_status", session_token=session + tail)

    assert refused.is_error
    assert "has no agent" in refused.text


@proves("tokens.short")
async def test_where_handles_open_nothing_the_text_has_the_sealed_token(memory: Opens) -> None:
    async with memory() as play:
        short = (await play("start_session", workflow_id="score")).text_token
    async with memory(handles=False) as play:
        reply = await play("start_session", workflow_id="score")
        refused = await play("get_workflow_status", session_token=short)

    assert reply.text_token == reply.token
    assert "does not accept short handles" in refused.text


@proves("tokens.short")
async def test_a_session_has_a_bounded_number_of_agents_with_a_number(play: Player) -> None:
    token = (await play("start_session", workflow_id="score")).token
    replies = [await play("start_session", session_token=token, agent_id=f"worker-{number}") for number in range(101)]

    assert replies[98].text_token.split(".")[1] == "100"
    assert [reply.text_token == reply.token for reply in replies[98:]] == [False, True, True]
