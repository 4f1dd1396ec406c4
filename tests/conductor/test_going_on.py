"""What a call means when a run of the workflow is there already."""

from __future__ import annotations

import pytest

from fidelio.conductor.plan import plan_of
from fidelio.errors import UsageProblem
from tests.conductor.orchestra import Orchestra, activity, write_workflow
from tests.support import proves

LANGUAGE = {"name": "language", "type": "string", "description": "Which."}


@proves("conductor.goes-on", "conductor.checks-plans")
async def test_who_does_the_work_can_change_and_what_was_given_cannot(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "single", activity("one"), variables=(LANGUAGE,))
    orchestra.says("other", "x")
    async with orchestra.house() as house:
        conductor = await house.conductor(lambda _: None)
        ledger = (await house.workflows()).unit.ledger
        first = await conductor.find_or_begin(orchestra.plan("single", inputs={"language": "de"}), anew=False)
        again = await conductor.find_or_begin(orchestra.plan("single", agent="other"), anew=False)
        assert (again.session, again.goes_on) == (first.session, True)
        plan = await plan_of(ledger, first.session)
        assert plan is not None
        assert (plan.agent, plan.inputs) == ("other", {"language": "de"})
        with pytest.raises(UsageProblem, match="inputs are for its beginning"):
            await conductor.find_or_begin(orchestra.plan("single", inputs={"language": "fr"}), anew=False)
        strange = orchestra.plan("single", activity_agents={"zz": "other"})
        with pytest.raises(UsageProblem, match="no activity 'zz'"):
            await conductor.find_or_begin(strange, anew=False)
        anew = await conductor.find_or_begin(orchestra.plan("single"), anew=True)
        assert (anew.session != first.session, anew.goes_on) == (True, False)
