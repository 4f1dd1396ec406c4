"""What holds beyond the moves themselves: where they are enforced, and where somebody else moves the session."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from tests.dialects.conftest import Opens
from tests.dialects.navigator.conftest import Guide
from tests.dialects.navigator.sample_workflows import write_sample_workflows
from tests.support import proves

STRICT = """
id: strict
version: 1.0.0
title: Nothing is left open
fidelity: enforce
variables: [{name: wet, type: boolean}]
initialActivity: look
activities:
  - id: look
    version: 1.0.0
    name: Look
    steps: [{id: see, name: See}]
    transitions:
      - {to: swim, condition: {type: simple, variable: wet, operator: "==", value: true}}
      - {to: walk, isDefault: true}
  - {id: swim, version: 1.0.0, name: Swim}
  - {id: walk, version: 1.0.0, name: Walk}
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = write_sample_workflows(tmp_path / "workflows")
    (root / "strict.yaml").write_text(STRICT.lstrip())
    (root / "loose.yaml").write_text(STRICT.lstrip().replace("strict", "loose").replace("enforce", "advise"))
    return root


@proves("navigator.enforced", "navigator.offers")
async def test_a_way_of_which_nobody_has_said_whether_it_holds_is_blocked_and_refused(guide: Guide) -> None:
    await guide.start("strict")
    await guide.step("see", output="Clouds.")
    assert guide.required == []
    for target in ("swim", "walk"):
        assert "[wet] without a value. Report wet in `variables`." in guide.blocked["transition", target]
        refused = await guide.do("transition", activity_id=target)
        assert refused.code == "NOT_KNOWN"
        assert "wet" in refused.last["error"]["message"]

    assert (await guide.do("transition", activity_id="swim", variables={"wet": False})).code == "INVALID_TRANSITION"
    await guide.go("walk", variables={"wet": False})


@proves("navigator.enforced", "navigator.steps")
@pytest.mark.every_transport
async def test_a_step_without_an_output_is_not_complete_where_moves_are_enforced(guide: Guide) -> None:
    await guide.start("strict")
    assert guide.last["availableActions"]["required"][0]["needs"] == "output"
    for output in ("", "  "):
        assert (await guide.do("complete_step", step_id="see", output=output)).code == "OUTPUT_REQUIRED"
        assert "`output`" in guide.last["message"]
    await guide.step("see", output="Clouds.")


@proves("navigator.worker", "navigator.offers")
async def test_a_worker_does_its_activity_and_does_not_move_the_session(memory: Opens) -> None:
    async with memory(worker=True) as play:
        guide = await Guide(play).start("crossing")
        await guide.step("steer")
        assert guide.required == []
        assert "the agent that assigned it to you moves the session" in guide.blocked["transition", "__terminal__"]
        refused = await guide.do("transition", activity_id="__terminal__")

        assert refused.code == "NOT_YOURS"
        assert "the agent that assigned it to you moves the session" in refused.last["message"]
        assert (await guide.look()).last["status"] == "active"


@proves("navigator.server-enforces")
async def test_a_server_that_enforces_leads_strictly_what_was_begun_elsewhere(memory: Opens, settings: Settings) -> None:
    async with memory() as play:
        guide = await Guide(play).start("loose")
        assert "needs" not in guide.last["availableActions"]["required"][0]
    async with memory(fidelity="enforce") as play:
        guide.play = play
        await guide.look()
        assert guide.last["availableActions"]["required"][0]["needs"] == "output"
        assert (await guide.do("complete_step", step_id="see")).code == "OUTPUT_REQUIRED"
        await guide.step("see", output="Clouds.")
        assert guide.required == []
        assert "Report wet in `variables`." in guide.blocked["transition", "walk"]
        assert (await guide.do("transition", activity_id="walk")).code == "NOT_KNOWN"
    async with memory() as play:
        guide.play = play
        await guide.go("walk")
    async with await open_ledger(settings.ledger) as ledger:
        (session,) = (await ledger.sessions()).items

    assert session.record.get("fidelity", "advise") == "advise"
