"""Results that have to fit a schema."""

from __future__ import annotations

from typing import Any

from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import Usage
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import OrchestratorHarness, TurnFunction, start, wait_until_finished
from tests.support import proves

SCHEMA = {"type": "object", "properties": {"tempo": {"type": "integer"}}, "required": ["tempo"]}


def answers(*texts: str, data: Any = None, conversation: bool = True) -> TurnFunction:
    given = iter(texts)

    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        if conversation:
            await reporter.report_conversation(turn.conversation or turn.fresh)
        await reporter.report_usage(Usage(turns=1, input_tokens=10))
        return TurnResult(text=next(given), data=data)

    return part


@proves("orchestrator.output-schema")
async def test_a_result_that_fits_is_read_as_data(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.blueprints.add("strict", output_schema=SCHEMA)
    for name, text in {"plain": '{"tempo": 3}', "fenced": '```json\n{"tempo": 3}\n```'}.items():
        harness.actor.part = answers(text)
        await start(hosted, name, blueprint="strict")
        await wait_until_finished(hosted, name)

        assert (await hosted.result(name)).data == {"tempo": 3}


@proves("orchestrator.output-schema")
async def test_data_that_the_agent_returned_itself_is_used(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.blueprints.add("strict", output_schema=SCHEMA)
    harness.actor.part = answers("Three.", data={"tempo": 3})
    await start(hosted, "aria", blueprint="strict")
    await wait_until_finished(hosted, "aria")
    result = await hosted.result("aria")

    assert (result.text, result.data) == ("Three.", {"tempo": 3})


@proves("orchestrator.output-schema")
async def test_a_result_that_does_not_fit_is_asked_for_once_more(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.blueprints.add("strict", output_schema=SCHEMA)
    harness.actor.part = answers("Presto!", '{"tempo": 3}')
    await start(hosted, "aria", blueprint="strict")
    (session,) = await wait_until_finished(hosted, "aria")

    first, again = harness.actor.turns
    assert (session.run.state, session.run.number) == ("succeeded", 1)
    assert (await hosted.result("aria")).data == {"tempo": 3}
    assert again.conversation == first.fresh
    assert '"tempo"' in again.prompt
    assert again.spool != first.spool
    assert session.run.usage == Usage(turns=2, input_tokens=20)


@proves("orchestrator.output-schema")
async def test_a_result_that_never_fits_is_an_error(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.blueprints.add("strict", output_schema=SCHEMA)
    harness.actor.part = answers("Presto!", "Largo!")
    await start(hosted, "aria", blueprint="strict")
    (session,) = await wait_until_finished(hosted, "aria")

    assert (session.run.state, session.run.reason) == ("failed", "output.schema")
    assert len(harness.actor.turns) == 2


@proves("orchestrator.output-schema")
async def test_an_agent_without_a_conversation_is_not_asked_again(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.blueprints.add("strict", output_schema=SCHEMA)
    harness.actor.part = answers("Presto!", conversation=False)
    await start(hosted, "aria", blueprint="strict")
    (session,) = await wait_until_finished(hosted, "aria")

    assert session.run.reason == "output.schema"
    assert len(harness.actor.turns) == 1
