"""A call that is made again, because its reply was lost: it never acts on what came later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from tests.dialects.conftest import Opens
from tests.dialects.navigator.conftest import Guide
from tests.dialects.navigator.sample_workflows import write_sample_workflows
from tests.support import proves

TWICE = """
id: twice
version: 1.0.0
title: The same names in two activities, and a way back
variables: [{name: more, type: boolean}, {name: parts, type: array}]
initialActivity: read
activities:
  - id: read
    version: 1.0.0
    name: Read
    checkpoints: [{id: confirm, name: Confirm, message: Read it?, options: [{id: yes, label: "Yes"}, {id: no, label: "No"}]}]
    steps: [{id: review, name: Review, required: false}]
    transitions: [{to: erase}]
  - id: erase
    version: 1.0.0
    name: Erase
    checkpoints:
      - {id: confirm, name: Confirm, message: ERASE it?, options: [{id: yes, label: "Yes"}, {id: no, label: "No"}]}
      - {id: each, name: Each, message: "And {part}?", options: [{id: yes, label: "Yes"}, {id: no, label: "No"}]}
    steps: [{id: review, name: Review}]
    loops:
      - {id: all, name: All, type: forEach, over: parts, variable: part, steps: [{id: wipe, name: Wipe, checkpoint: each}]}
      - {id: rounds, name: Rounds, type: forEach, over: laps, steps: [{id: run, name: Run, required: false}]}
    transitions: [{to: read, condition: {type: simple, variable: more, operator: "==", value: true}}]
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = write_sample_workflows(tmp_path / "workflows")
    (root / "twice.yaml").write_text(TWICE.lstrip())
    return root


async def confirmed(guide: Guide, **variables: object) -> str:
    """The state before the first question, which is answered then."""
    await guide.start("twice", **variables)
    old = guide.state
    await guide.say("confirm", "yes")
    return old


async def answer(guide: Guide, state: str, checkpoint: str, option: str) -> Guide:
    late = Guide(guide.play, state)
    return await late.do("respond_to_checkpoint", checkpoint_id=checkpoint, option_id=option)


@proves("navigator.repeated")
async def test_a_repeated_answer_is_confirmed_and_never_answers_the_question_of_another_activity(
    memory: Opens, settings: Settings
) -> None:
    async with memory() as play:
        guide = Guide(play)
        old = await confirmed(guide)
        assert (await answer(guide, old, "confirm", "yes")).last["success"]
        await guide.go("erase")

        again = await answer(guide, old, "confirm", "yes")
        assert again.last["success"]
        assert again.last["message"] == "Checkpoint 'confirm' is answered: yes"
        assert again.last["checkpoint"]["message"] == "ERASE it?"
        assert (await answer(guide, old, "confirm", "no")).code == "CHECKPOINT_ALREADY_RESPONDED"
        assert (await guide.look()).last["checkpoint"]["message"] == "ERASE it?"
    async with await open_ledger(settings.ledger) as ledger:
        assert len(await ledger.events(types=["request.answered"])) == 1


@proves("navigator.repeated")
async def test_a_repeated_answer_never_answers_the_question_of_another_visit(guide: Guide) -> None:
    old = await confirmed(guide, more=True)
    await guide.go("erase")
    await guide.say("confirm", "yes")
    await guide.step("review")
    await guide.go("read")
    assert guide.last["checkpoint"]["message"] == "Read it?"

    assert (await answer(guide, old, "confirm", "no")).code == "CHECKPOINT_ALREADY_RESPONDED"
    assert (await answer(guide, old, "confirm", "yes")).last["checkpoint"]["id"] == "confirm"
    assert (await guide.look()).last["status"] == "blocked"


@proves("navigator.repeated")
async def test_a_repeated_answer_never_answers_the_question_of_another_pass(guide: Guide) -> None:
    await confirmed(guide, parts=["a", "b"])
    await guide.go("erase")
    await guide.say("confirm", "yes")
    await guide.step("review")
    await guide.advance("all")
    first = guide.state
    await guide.say("each", "yes")
    await guide.step("wipe")
    await guide.advance("all")
    assert guide.last["checkpoint"]["message"] == "And b?"

    assert (await answer(guide, first, "each", "no")).code == "CHECKPOINT_ALREADY_RESPONDED"
    assert (await answer(guide, first, "each", "yes")).last["success"]
    assert (await Guide(guide.play, first).do("complete_step", step_id="wipe")).code == "STALE_STATE"
    assert (await Guide(guide.play, first).do("advance_loop", loop_id="all")).code == "STALE_STATE"
    assert (await guide.look()).last["checkpoint"]["message"] == "And b?"


@proves("navigator.repeated")
async def test_a_repeated_step_never_completes_the_step_of_another_activity(guide: Guide) -> None:
    await confirmed(guide)
    old = guide.state
    await guide.go("erase")
    await guide.say("confirm", "yes")

    late = await Guide(guide.play, old).do("complete_step", step_id="review")
    assert late.code == "STALE_STATE"
    assert "it was made at 'read', visit 1, the session is at 'erase', visit 2" in late.last["message"]
    assert late.required == [("complete_step", "review")]
    # The reply to a stale state goes on where the session stands.
    await late.step("review")


@proves("navigator.repeated", "navigator.loops")
async def test_a_repeated_advance_goes_into_one_pass_only(guide: Guide) -> None:
    await confirmed(guide, laps=[1, 2, 3])
    await guide.go("erase")
    await guide.say("confirm", "yes")
    await guide.step("review")
    state = guide.state
    for _ in range(3):
        await Guide(guide.play, state).do("advance_loop", loop_id="rounds")

    assert (await guide.look()).last["position"]["loop"]["iteration"] == 1


@proves("navigator.repeated", "navigator.state")
async def test_a_state_that_only_reads_have_superseded_still_acts(guide: Guide) -> None:
    await confirmed(guide)
    state = guide.state
    await guide.look()
    await guide.play("nav_checkpoint", state=state)

    assert (await Guide(guide.play, state).do("transition", activity_id="erase")).last["success"]


@proves("navigator.repeated", "navigator.state")
@pytest.mark.usefixtures("settled")
async def test_the_state_that_was_shown_last_is_stale_once_another_server_has_moved_the_session(memory: Opens) -> None:
    async with memory() as play, memory() as other:
        guide = Guide(play)
        await confirmed(guide)
        await Guide(other, guide.state).go("erase")

        again = {"checkpoint_id": "confirm", "option_id": "yes", "variables": {"more": True}}
        assert (await guide.do("respond_to_checkpoint", **again)).code == "STALE_STATE"
        assert (await guide.look()).last["checkpoint"]["message"] == "ERASE it?"


@proves("navigator.repeated")
async def test_a_session_token_stands_by_its_activity_and_a_handle_anywhere(memory: Opens, settings: Settings) -> None:
    async with memory() as play:
        guide = Guide(play)
        await confirmed(guide)
        token = guide.token
        await guide.go("erase")
        assert (await answer(guide, token, "confirm", "yes")).code == "STALE_STATE"
        async with await open_ledger(settings.ledger) as ledger:
            (session,) = (await ledger.sessions()).items
        assert (await answer(guide, session.id, "confirm", "yes")).last["success"]


@proves("navigator.repeated")
async def test_of_different_answers_at_once_one_counts_and_only_its_like_are_confirmed(memory: Opens) -> None:
    async with memory() as play, memory() as other:
        state = (await Guide(play).start("twice")).state
        tries = [
            answer(Guide(server), state, "confirm", option) for server in (play, other) for option in ("yes", "no", "yes", "no")
        ]
        async with asyncio.timeout(30):
            replies = [one.last for one in await asyncio.gather(*tries)]

    assert sum(reply["success"] for reply in replies) == 4
    assert len({reply["message"] for reply in replies if reply["success"]}) == 1
