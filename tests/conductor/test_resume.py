"""Start of a workflow that has an unfinished run."""

from __future__ import annotations

import pytest

from fidelio.conductor.plan import load_plan
from fidelio.errors import ConductorFailure, UsageProblem
from tests.conductor.run_setup import RunSetup, activity, report, write_workflow
from tests.support import proves

LANGUAGE = {"name": "language", "type": "string", "description": "Which."}


@proves("conductor.goes-on", "conductor.checks-plans")
async def test_a_resumed_run_may_change_its_agents_but_not_its_inputs(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "single", activity("one"), variables=(LANGUAGE,))
    setup.write_agent("other", "x")
    async with setup.app() as app:
        conductor = await app.conductor(lambda _: None)
        ledger = (await app.workflows()).unit.ledger
        first = await conductor.find_or_start(setup.plan("single", inputs={"language": "de"}), force_new=False)
        again = await conductor.find_or_start(setup.plan("single", agent="other"), force_new=False)
        assert (again.session, again.is_resumed) == (first.session, True)
        plan = await load_plan(ledger, first.session)
        assert plan is not None
        assert (plan.agent, plan.inputs) == ("other", {"language": "de"})
        with pytest.raises(UsageProblem, match="inputs can only be given at its start"):
            await conductor.find_or_start(setup.plan("single", inputs={"language": "fr"}), force_new=False)
        strange = setup.plan("single", activity_agents={"zz": "other"})
        with pytest.raises(UsageProblem, match="no activity 'zz'"):
            await conductor.find_or_start(strange, force_new=False)
        anew = await conductor.find_or_start(setup.plan("single"), force_new=True)
        assert (anew.session != first.session, anew.is_resumed) == (True, False)


@proves("conductor.goes-on", "interrupts.same-input")
async def test_an_input_that_is_the_declared_default_goes_on(setup: RunSetup) -> None:
    async with setup.app() as app:
        conductor = await app.conductor(lambda _: None)
        first = await conductor.find_or_start(setup.plan("hello"), force_new=False)
        again = await conductor.find_or_start(setup.plan("hello", inputs={"tone": "warm"}), force_new=False)
        with pytest.raises(UsageProblem, match='In this run tone has the value "warm"'):
            await conductor.find_or_start(setup.plan("hello", inputs={"tone": "brief"}), force_new=False)

    assert again.session == first.session


@proves("conductor.goes-on", "interrupts.same-input")
async def test_an_input_that_has_changed_since_is_named_with_its_value_now(setup: RunSetup) -> None:
    later = activity("two")
    write_workflow(setup.workflows, "pair", activity("one", transitions=[{"to": "two"}]), later, variables=(LANGUAGE,))
    setup.write_agent("translator", report("one-step", language="fr"))
    setup.write_agent("lost", "I do not know.")
    agents = {"one": "translator", "two": "lost"}
    plan = setup.plan("pair", inputs={"language": "de"}, activity_agents=agents, tries=1)
    async with setup.app() as app:
        conductor = await app.conductor(lambda _: None)
        first = await conductor.find_or_start(plan, force_new=False)
        with pytest.raises(ConductorFailure):
            await conductor.run(first.session)
        again = await conductor.find_or_start(plan, force_new=False)
        with pytest.raises(UsageProblem, match='In this run language has the value "fr"'):
            await conductor.find_or_start(setup.plan("pair", inputs={"language": "en"}), force_new=False)

    assert again.session == first.session
