"""A person's yes: to one execution, of exactly what was shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fidelio.errors import PersonNeeded, RequestClosed
from fidelio.inbox import RequestChange
from fidelio.runtime import events as e
from fidelio.runtime.calls import Finished
from fidelio.runtime.journal import Journal
from tests.runtime.calls.conftest import ServiceSession
from tests.support import proves

RUN = {"command": "make install", "cwd": "/workspace"}
DAY_MS = 24 * 60 * 60 * 1000


@proves("runtime.waits", "runtime.approval-once")
async def test_a_call_that_asks_runs_after_the_yes_and_only_once(session: ServiceSession) -> None:
    request = await session.ask("shell_run", **RUN)
    assert session.ran == []

    await session.answer(request, "allow")
    done = await session.finish("shell_run", **RUN)

    assert done.output["output"]["stdout"] == "ran\n"
    assert session.ran == ["make install"]
    assert await session.ask("shell_run", **RUN) != request
    assert session.ran == ["make install"]


@proves("runtime.waits")
async def test_the_same_call_again_waits_for_the_answer(session: ServiceSession) -> None:
    request = await session.ask("shell_run", **RUN)
    waiting = asyncio.create_task(session.repeat("shell_run", **RUN))

    await session.answer(request, "allow")
    done = await asyncio.wait_for(waiting, 20)

    assert isinstance(done, Finished)
    assert session.ran == ["make install"]


@proves("runtime.approval-once")
async def test_of_equal_calls_that_race_for_one_approval_one_runs(session: ServiceSession) -> None:
    request = await session.ask("shell_run", **RUN)
    await session.answer(request, "allow")

    outcomes = await asyncio.gather(*(session.call("shell_run", waits=False, **RUN) for _ in range(6)))

    assert session.ran == ["make install"]
    assert [type(outcome) for outcome in outcomes].count(Finished) == 1
    assert len({outcome.request for outcome in outcomes if not isinstance(outcome, Finished)}) == 1


@proves("runtime.approval-once")
async def test_equal_calls_that_ask_at_once_open_one_request(session: ServiceSession) -> None:
    requests = await asyncio.gather(*(session.ask("shell_run", **RUN) for _ in range(6)))

    assert len(set(requests)) == 1
    assert len((await session.ledger.requests(session=session.id)).items) == 1


@proves("runtime.approval-digest")
@pytest.mark.parametrize(
    "changed", [{"command": "make  install"}, {"cwd": "/tmp"}, {"timeoutMs": 1}, {"maxOutputChars": 1}], ids=str
)
async def test_other_arguments_are_another_request(session: ServiceSession, changed: dict[str, object]) -> None:
    await session.answer(await session.ask("shell_run", **RUN), "allow")

    await session.ask("shell_run", **{**RUN, **changed})

    assert session.ran == []


@proves("runtime.approval-digest")
async def test_a_variable_that_was_set_meanwhile_voids_the_approval(session: ServiceSession) -> None:
    request = await session.ask("shell_run", **RUN)
    await session.answer(request, "allow")
    await session.finish("shell_set_env", key="TARGET", value="/elsewhere")

    assert await session.ask("shell_run", **RUN) != request
    assert session.ran == []


@proves("runtime.approval-digest")
async def test_the_directory_that_the_command_would_run_in_is_part_of_the_approval(session: ServiceSession) -> None:
    request = await session.ask("shell_run", command="make")
    await session.answer(request, "allow")
    await session.finish("shell_set_cwd", path="/tmp")

    assert await session.ask("shell_run", command="make") != request
    assert session.ran == []


@proves("runtime.approval-once")
async def test_a_denial_reaches_the_agent_once_with_its_message(session: ServiceSession) -> None:
    await session.answer(await session.ask("shell_run", **RUN), "deny", "Use pip instead.")

    denied = await session.finish("shell_run", **RUN)

    assert denied.is_error
    assert denied.output["error"]["code"] == "permission_denied"
    assert "Use pip instead." in denied.output["error"]["message"]
    assert session.ran == []
    await session.ask("shell_run", **RUN)


@proves("runtime.approval-once")
async def test_nobody_answering_for_a_day_is_a_denial_that_says_so(session: ServiceSession) -> None:
    request = await session.ask("shell_run", **RUN)
    session.clock.now += DAY_MS

    with pytest.raises(RequestClosed):
        await session.answer(request, "allow")
    expired = await session.finish("shell_run", **RUN)

    assert expired.output["error"]["code"] == "permission_expired"
    assert (await session.ledger.request(request)).state == "expired"


@proves("runtime.approval-once")
async def test_an_answer_just_before_the_expiry_wins_over_a_call_that_saw_none(
    session: ServiceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = await session.ask("shell_run", **RUN)
    session.clock.now += DAY_MS
    commit_result = Journal.commit_result

    async def answer_first(journal: Journal, *values: Any, closes: tuple[RequestChange, ...] = ()) -> None:
        if closes and (await session.ledger.request(request)).state == "open":
            session.clock.now -= 1
            await session.answer(request, "allow")
            session.clock.now += 1
        await commit_result(journal, *values, closes=closes)

    monkeypatch.setattr(Journal, "commit_result", answer_first)
    ended = await session.finish("shell_run", **RUN)

    assert "A person allowed this call" in ended.output["error"]["message"]
    assert (await session.ledger.request(request)).state == "answered"
    assert session.ran == []


@proves("runtime.approval-once")
async def test_an_approval_that_is_never_used_runs_nothing(session: ServiceSession) -> None:
    await session.answer(await session.ask("shell_run", **RUN), "allow")

    await session.finish("read", path="a")

    assert session.ran == []


@proves("runtime.approval-once")
async def test_an_answer_that_a_model_passes_on_is_never_taken(session: ServiceSession) -> None:
    request = await session.ask("shell_run", **RUN)

    with pytest.raises(PersonNeeded):
        await session.answer(request, "allow", channel="relayed")

    assert await session.ask("shell_run", **RUN) == request
    assert session.ran == []


@proves("runtime.approval-once")
async def test_the_holder_of_the_key_of_the_api_may_answer(session: ServiceSession) -> None:
    request = await session.ask("shell_run", **RUN)

    await session.answer(request, "allow", channel="api")
    await session.finish("shell_run", **RUN)

    assert (await session.ledger.request(request)).assurance == "local"
    assert session.ran == [RUN["command"]]


@proves("runtime.approval-once")
async def test_several_calls_may_wait_and_are_decided_apart(session: ServiceSession) -> None:
    first, second = await session.ask("shell_run", command="one"), await session.ask("shell_run", command="two")

    await session.answer(second, "allow")
    await session.answer(first, "deny")
    await session.finish("shell_run", command="two")
    denied = await session.finish("shell_run", command="one")

    assert session.ran == ["two"]
    assert denied.is_error


@proves("runtime.approval-shown")
async def test_the_request_shows_the_exact_command_the_directory_and_what_it_may_touch(session: ServiceSession) -> None:
    command = "printf '%s' \"$HOME\" > 'a b'"
    request = await session.ledger.request(await session.ask("shell_run", command=command, cwd="/workspace/x"))

    assert command in request.question.splitlines()
    assert "Directory: /workspace/x" in request.question
    assert "It can write to: /workspace. Network: none." in request.question
    assert request.detail["command"] == command


@proves("runtime.approval-shown")
async def test_a_waiting_call_says_how_it_is_answered(session: ServiceSession) -> None:
    outcome = await session.repeat("shell_run", **RUN)

    assert outcome.output["status"] == "waiting"
    assert f"request {outcome.output['requestId']} is in the inbox" in outcome.output["message"]


@proves("runtime.intent", "runtime.approval-once")
async def test_the_approval_is_used_up_before_the_effect(session: ServiceSession) -> None:
    def die(_: object) -> dict[str, object]:
        raise KeyboardInterrupt

    await session.answer(await session.ask("shell_run", **RUN), "allow")
    session.sandboxes.replies["run_shell"] = die
    with pytest.raises(KeyboardInterrupt):
        await session.repeat("shell_run", **RUN)

    record = (await session.service.load(session.id)).record
    types = await session.types()
    assert record.approvals == {}
    assert types.index(e.APPROVAL_USED) < types.index(e.TOOL_USE) < types.index(e.COMMAND_STARTED)
    await session.ask("shell_run", **RUN)
    assert session.ran == ["make install"]


@proves("runtime.approval-shown")
async def test_a_person_sees_that_a_command_ends_the_present_shell(session: ServiceSession) -> None:
    request = await session.ask("shell_exec", command="make", restart=True)

    shown = (await session.ledger.request(request)).question.splitlines()

    assert "restart: True" in shown
    assert not [line for line in shown if line.startswith(("timeoutMs", "maxOutputChars"))]
