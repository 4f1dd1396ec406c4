"""Checks of a plan before a session exists."""

from __future__ import annotations

import pytest

from fidelio.conductor.plan import Plan, check_plan, parse_inputs
from fidelio.definitions.models import Workflow
from fidelio.errors import UsageProblem
from tests.support import proves

WORKFLOW = Workflow.model_validate(
    {
        "id": "greeting",
        "version": "1.0.0",
        "title": "Greeting",
        "initialActivity": "greet",
        "variables": [
            {"name": "guest", "type": "string", "description": "Who."},
            {"name": "times", "type": "number", "description": "How often."},
        ],
        "activities": [{"id": "greet", "version": "1.0.0", "name": "Greet"}],
    }
)


@proves("conductor.checks-plans")
def test_inputs_are_read_as_the_workflow_declares_them() -> None:
    assert parse_inputs(["guest=3", "times=3"], WORKFLOW) == {"guest": "3", "times": 3}


@proves("conductor.checks-plans")
@pytest.mark.parametrize(
    ("pair", "said"), [("guest", "NAME=VALUE"), ("=x", "NAME=VALUE"), ("times=often", "declared as number")]
)
def test_an_input_that_cannot_be_read_is_refused(pair: str, said: str) -> None:
    with pytest.raises(UsageProblem, match=said):
        parse_inputs([pair], WORKFLOW)


@proves("conductor.checks-plans")
@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(workflow="greeting", project="/", inputs={"gest": "x"}), "Its variables are: guest"),
        (Plan(workflow="greeting", project="/", inputs={"times": "3"}), "times"),
        (Plan(workflow="greeting", project="/", activity_agents={"great": "echo"}), "Its activities are: greet"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(plan: Plan, said: str) -> None:
    with pytest.raises(UsageProblem, match=said):
        check_plan(plan, WORKFLOW)


@proves("conductor.checks-plans")
def test_a_plan_names_the_agent_of_every_activity() -> None:
    plan = Plan(workflow="greeting", project="/", agent="writer", activity_agents={"greet": "echo"})
    check_plan(plan, WORKFLOW)
    assert (plan.agent_for("greet"), plan.agent_for("other")) == ("echo", "writer")
