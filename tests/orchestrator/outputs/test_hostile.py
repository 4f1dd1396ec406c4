"""Results and schemas that would take for ever to compare: the run ends, and nothing that was said is lost."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.errors import ExecutorFailure
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import OrchestratorHarness, start, wait_until_finished
from tests.orchestrator.outputs.test_schemas import answers
from tests.support import proves

VICTIM = "a" * 60 + "!"


@proves("blueprints.bounded-schemas", "orchestrator.output-schema")
@pytest.mark.parametrize(
    ("schema", "said", "why"),
    [
        ({"pattern": "^(a+)+$"}, VICTIM, "takes more than 2 seconds to check"),
        ({"$ref": "#/nowhere"}, "La.", "refers to what is not there"),
    ],
)
async def test_a_schema_that_cannot_be_used_fails_the_run_and_keeps_its_result(
    harness: OrchestratorHarness, hosted: AgentService, schema: Any, said: str, why: str
) -> None:
    harness.blueprints.add("strict", output_schema=schema)
    harness.actor.part = answers(said)
    await start(hosted, "aria", blueprint="strict")
    (session,) = await wait_until_finished(hosted, "aria")

    assert (session.run.state, session.run.reason, len(harness.actor.turns)) == ("failed", "output.schema", 1)
    with pytest.raises(ExecutorFailure, match=why) as failure:
        await hosted.result("aria")
    assert failure.value.partial == said


@proves("orchestrator.output-schema")
async def test_a_result_that_is_nested_without_end_is_a_text(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.blueprints.add("plain", output_schema={"type": "string"})
    harness.actor.part = answers("[" * 100_000)
    await start(hosted, "aria", blueprint="plain")
    (session,) = await wait_until_finished(hosted, "aria")

    assert session.run.state == "succeeded"
