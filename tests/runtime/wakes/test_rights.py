"""What people allow a session, and when it ends: policies, budgets, what is sent, and effects after the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import PersonNeeded, SessionNotFound, UsageProblem
from fidelio.providers.model import ModelInfo, ModelReply, ModelRequest
from fidelio.runtime import events as e
from fidelio.runtime.journal import Journal
from tests.runtime.wakes.support import (
    PROJECT,
    RUN,
    WRITE,
    Runtime,
    make_sandboxes,
    open_runtime,
    replies,
    results_of,
    say,
    texts_of,
    use,
)
from tests.support import proves

TOOL = {"name": "measure", "description": "Measure."}


async def wait_for_call(runtime: Runtime) -> tuple[str, str, str]:
    """A session whose model has called a tool that waits: its id, that of the call and that of the request."""
    runtime.script(replies(use(RUN)))
    session = await runtime.begin()
    await runtime.tell(session, "Build.")
    await runtime.work()
    (waiting,) = (await runtime.record(session)).wakes.blocking
    return session, waiting.id, waiting.request


def end_around(runtime: Runtime, session: str, monkeypatch: pytest.MonkeyPatch, commit: str, *, before: bool) -> None:
    """Let a person end the session right before or after a commit of a call."""
    original = getattr(Journal, commit)

    async def commit_and_end(*given: Any, **named: Any) -> None:
        if before:
            await runtime.service.end_session(session, by="person:test")
        await original(*given, **named)
        if not before:
            await runtime.service.end_session(session, by="person:test")

    monkeypatch.setattr(Journal, commit, commit_and_end)


@proves("runtime.agent-policies")
async def test_a_policy_that_a_person_sets_for_an_agent_wins_over_its_definition(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        await runtime.define(tools={"policies": {"shell_run": "always_allow", "write": "always_ask"}})
        await runtime.service.set_agent_policy(PROJECT, "helper", "shell_run", "always_ask", by="person:test")
        session = await runtime.start()
        asked = await runtime.start(policies={"shell_run": "auto"})

        assert (await runtime.record(session)).policies == {"shell_run": "always_ask", "write": "always_ask"}
        assert (await runtime.record(asked)).policies["shell_run"] == "auto"


@proves("runtime.no-effect-after-end")
@pytest.mark.parametrize("tool", [WRITE, ("read", {"path": "a.txt"})], ids=["effect", "read"])
async def test_a_call_of_a_session_that_ends_has_no_effect_and_no_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: tuple[str, Mapping[str, Any]]
) -> None:
    sandboxes, commit = make_sandboxes(), "commit_intent" if tool == WRITE else "commit_result"
    async with open_runtime(tmp_path, sandboxes=sandboxes) as runtime:
        session = await runtime.begin()
        end_around(runtime, session, monkeypatch, commit, before=True)
        with pytest.raises(SessionNotFound):
            await runtime.service.call(session, *tool)

        assert "write_text" not in sandboxes.actions
        assert await sandboxes.state(session) is None
        assert await runtime.events(session, e.TOOL_USE, e.TOOL_RESULT) == ()


@proves("runtime.no-effect-after-end")
async def test_an_effect_that_began_before_the_end_is_recorded_and_its_sandbox_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandboxes = make_sandboxes()
    async with open_runtime(tmp_path, sandboxes=sandboxes) as runtime:
        session = await runtime.begin()
        end_around(runtime, session, monkeypatch, "commit_intent", before=False)
        await runtime.service.call(session, *WRITE)

        assert sandboxes.starts
        assert await sandboxes.state(session) is None
        assert len(await runtime.events(session, e.TOOL_RESULT)) == 1
        assert (await runtime.record(session)).status == "terminated"


@proves("runtime.no-effect-after-end")
async def test_a_session_that_has_ended_begins_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_runtime(tmp_path, replies(use(("session_delegate", {"message": "Help."})))) as runtime:
        session = await runtime.begin()
        end_around(runtime, session, monkeypatch, "commit_intent", before=False)
        await runtime.tell(session, "Go.")
        # Whether the wake ends with an error is a matter of its runner.
        await asyncio.gather(runtime.run(await runtime.claim()), return_exceptions=True)

        assert (await runtime.ledger.sessions(kind="runtime", parent=session)).items == ()


@proves("runtime.archive-dismisses")
async def test_archiving_a_session_dismisses_what_it_asks_for(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=make_sandboxes()) as runtime:
        session, _, request = await wait_for_call(runtime)
        await runtime.service.archive_session(session, by="person:test")

        assert (await runtime.ledger.request(request)).state == "dismissed"
        about = await runtime.service.describe(session)
        assert (about["waiting"], about["requiresAction"]) == ([], False)
        await runtime.service.archive_session(session, by="person:test")


@proves("runtime.budget-change")
async def test_a_session_that_stopped_at_its_budget_goes_on_after_it_was_raised(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, lambda _: use(("permissions_describe", {}))) as runtime:
        session = await runtime.begin(limits={"tokens": 3_000})
        await runtime.tell(session, "Loop.")
        await runtime.work()
        used = len(runtime.requests)
        assert (await runtime.record(session)).wakes.stop_reason == "budget_reached"

        runtime.script(lambda _: say("Done.", {"outcome": "sleep"}))
        await runtime.service.set_budget(session, {"tokens": 1_000_000}, by="person:test")
        await runtime.work()

        assert len(runtime.requests) == used + 1
        assert results_of(runtime.requests[-1])
        assert (await runtime.record(session)).wakes.stop_reason == "end_turn"
        (changed,) = await runtime.events(session, e.CONFIGURED)
        assert (changed.body, changed.actor) == ({"budget": {"tokens": 1_000_000}}, "person:test")


@proves("runtime.budget-change")
async def test_what_was_sent_to_a_stopped_session_is_processed_after_the_change(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin(limits={"wakes_per_day": 1})
        for text in ("One.", "Two."):
            await runtime.tell(session, text)
            await runtime.work()
        assert len(runtime.requests) == 1

        await runtime.service.set_budget(session, {"wakes_per_day": 5}, by="person:test")
        await runtime.work()

        assert "Two." in texts_of(runtime.requests[-1])
        assert (await runtime.service.describe(session))["budget"]["wakes_per_day"] == 5


@proves("runtime.budget-change")
@pytest.mark.parametrize(
    "budget", [{}, {"tokens": -1}, {"usd": float("nan")}, {"seconds": 5}, {"usd": 3.0}, {"tokens": 1.5}, {"tokens": "many"}]
)
async def test_a_budget_that_cannot_be_kept_is_refused(tmp_path: Path, budget: dict[str, Any]) -> None:
    async with open_runtime(tmp_path, info=ModelInfo(price=None)) as runtime:
        session = await runtime.begin()
        with pytest.raises(UsageProblem):
            await runtime.service.set_budget(session, budget, by="person:test")
        assert (await runtime.record(session)).budget == {}


@proves("runtime.budget-change")
async def test_an_idle_session_is_not_woken_by_a_change_of_its_budget(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        await runtime.tell(session, "Hi.")
        await runtime.work()
        await runtime.service.set_budget(session, {"tokens": 5_000_000}, by="person:test")
        assert await runtime.work() == 0


def message(text: str) -> dict[str, Any]:
    return {"type": "user.message", "content": text}


@proves("runtime.send-whole")
async def test_a_relayed_confirmation_stores_nothing_of_what_was_sent_with_it(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=make_sandboxes()) as runtime:
        session, call, request = await wait_for_call(runtime)
        before = await runtime.types(session)
        confirmation = {"type": "user.tool_confirmation", "tool_use_id": call, "result": "allow"}
        for events in ([message("And more."), confirmation], [confirmation, message("And more.")]):
            with pytest.raises(PersonNeeded):
                await runtime.service.send(session, events, by="agent:other", channel="relayed")

        assert await runtime.types(session) == before
        assert (await runtime.ledger.request(request)).state == "open"


@proves("runtime.send-whole")
async def test_two_answers_to_a_call_or_an_unknown_call_store_nothing(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=make_sandboxes()) as runtime:
        session, call, _ = await wait_for_call(runtime)
        before = await runtime.types(session)
        confirmation = {"type": "user.tool_confirmation", "tool_use_id": call, "result": "allow"}
        with pytest.raises(UsageProblem, match="same call"):
            await runtime.send(session, message("More."), confirmation, {**confirmation, "result": "deny"})
        with pytest.raises(UsageProblem, match="does not wait"):
            await runtime.send(session, message("More."), {**confirmation, "tool_use_id": "toolu_none"})

        assert await runtime.types(session) == before


@proves("runtime.send-whole")
async def test_what_is_sent_together_comes_back_in_its_order(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=make_sandboxes()) as runtime:
        session, call, _ = await wait_for_call(runtime)
        outcome = {"type": "user.define_outcome", "title": "Built", "successCriteria": ["It is built."]}
        confirmation = {"type": "user.tool_confirmation", "tool_use_id": call, "result": "allow"}
        sent = await runtime.send(session, message("One."), confirmation, outcome, message("Two."))

        assert [event.type for event in sent] == [e.USER_MESSAGE, e.USER_CONFIRMATION, e.USER_OUTCOME, e.USER_MESSAGE]
        assert [event.body["content"][0]["text"] for event in (sent[0], sent[3])] == ["One.", "Two."]


@proves("runtime.send-spelling")
@pytest.mark.parametrize("allowed", [True, False])
async def test_a_confirmation_may_name_the_request(tmp_path: Path, allowed: bool) -> None:
    sandboxes = make_sandboxes()
    async with open_runtime(tmp_path, sandboxes=sandboxes) as runtime:
        session, _, request = await wait_for_call(runtime)
        answer = {"type": "user.tool_confirmation", "requestId": request, "toolName": "shell_run", "allowed": allowed}
        for wrong in ({**answer, "toolName": "write"}, {**answer, "allowed": "yes"}, {**answer, "requestId": "req_none"}):
            with pytest.raises(UsageProblem):
                await runtime.send(session, wrong)
        await runtime.send(session, {**answer, "note": "Because."})
        await runtime.work()

        assert ("run_shell" in sandboxes.actions) is allowed
        (result,) = results_of(runtime.requests[-1])
        assert ("Because." in str(result.content)) is not allowed


@proves("runtime.send-spelling")
@pytest.mark.parametrize(("output", "seen"), [("21 degrees", "21 degrees"), ({"degrees": 21}, '"degrees":21')])
async def test_a_message_and_a_result_have_a_short_spelling(tmp_path: Path, output: Any, seen: str) -> None:
    def reply(request: ModelRequest) -> ModelReply:
        return say("Thanks.") if results_of(request) else use(("measure", {}))

    async with open_runtime(tmp_path, reply) as runtime:
        session = await runtime.begin(tools={"custom": [TOOL]})
        await runtime.send(session, {"type": "user.message", "message": "How warm is it?"})
        await runtime.work()
        (waiting,) = (await runtime.record(session)).wakes.blocking
        await runtime.send(session, {"type": "user.custom_tool_result", "requestId": waiting.request, "output": output})
        await runtime.work()

        assert "How warm is it?" in texts_of(runtime.requests[0])
        assert seen in str(results_of(runtime.requests[-1])[0].content)
