"""Loops that the worker of an activity does by itself, and inputs that a run cannot do without."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fidelio.engine.record import ENTERED
from fidelio.errors import ConductorFailure, UsageProblem
from fidelio.workflows.report import report_session
from tests.conductor.fake_workers import open_fake_runs
from tests.conductor.run_setup import RunSetup, activity, write_workflow
from tests.support import proves

ITEMS = {"items": ["swan", "dragon"]}


def write_parade(setup: RunSetup, **loop: Any) -> None:
    each = {
        "id": "each",
        "name": "Each",
        "type": "forEach",
        "over": "items",
        "steps": [{"id": "paint", "name": "Paint"}],
        **loop,
    }
    march = activity("march", loops=[each], transitions=[{"to": "rest", "isDefault": True}])
    variables = ({"name": "items", "type": "array", "required": True},)
    write_workflow(setup.workflows, "parade", march, activity("rest"), variables=variables)


def painted(*iterations: int, **variables: Any) -> str:
    steps: list[dict[str, Any]] = [{"step_id": "march-step", "output": "Done."}]
    steps += [{"step_id": "paint", "output": "Done.", "iteration": number} for number in iterations]
    return json.dumps({"steps": steps, "variables": variables})


@proves("conductor.loops-are-work")
async def test_a_report_that_lacks_iterations_is_handed_back(setup: RunSetup) -> None:
    write_parade(setup)
    reports = iter([painted(), painted(1), painted(1, 2)])

    async def lazy(name: str, _: str) -> str:
        return next(reports) if name == "march" else json.dumps({"steps": [{"step_id": "rest-step", "output": "Done."}]})

    async with open_fake_runs(setup, lazy) as runs:
        record = await runs.execute("parade", inputs=ITEMS)
        prompts = [prompt for name, prompt in runs.workers.prompts if name == "march"]
        report = await report_session(await runs.ledger(), await runs.session("parade"))

    assert record.status == "completed"
    assert '"iteration": 1' in prompts[0]
    assert "Missing iterations of loop 'each' in manifest: [1-2: paint]" in prompts[1]
    assert "[2: paint]" in prompts[2]
    assert report.differences == []


@proves("conductor.loops-are-work")
@pytest.mark.parametrize("last", [painted(), painted(items=[]), painted(1, 1), painted(3)])
async def test_a_run_does_not_leave_a_loop_that_nobody_does(setup: RunSetup, last: str) -> None:
    write_parade(setup)

    async def lazy(_: str, __: str) -> str:
        return last

    async with open_fake_runs(setup, lazy) as runs:
        with pytest.raises(ConductorFailure, match="iteration"):
            await runs.execute("parade", inputs=ITEMS, tries=2)
        assert (await runs.record(await runs.session("parade"))).activity == "march"


@proves("conductor.loops-are-work")
@pytest.mark.parametrize("loop", [{}, {"type": "doWhile", "over": None}, {"maxIterations": 1}])
async def test_the_scripted_worker_does_loops(setup: RunSetup, loop: dict[str, Any]) -> None:
    write_parade(setup, **loop)

    record = await setup.execute(setup.plan("parade", inputs=ITEMS))
    async with setup.app() as app:
        ledger = (await app.workflows()).unit.ledger
        (session,) = (await ledger.sessions(kind="workflow")).items
        moves = await ledger.events(session.id, types=(ENTERED,))

    assert record.status == "completed"
    iterations = [entry.get("iteration") for entry in moves[1].body["manifest"]]
    assert iterations == ([None, 1] if loop else [None, 1, 2])


@proves("conductor.required-inputs")
async def test_a_run_does_not_start_without_its_required_inputs(setup: RunSetup) -> None:
    write_parade(setup)
    async with open_fake_runs(setup) as runs:
        conductor = await runs.conductor()
        for inputs in ({}, {"items": None}):
            with pytest.raises(UsageProblem, match="--input items=VALUE"):
                await conductor.find_or_start(setup.plan("parade", inputs=inputs), force_new=False)
        assert await runs.sessions("parade") == []

        started = await conductor.find_or_start(setup.plan("parade", inputs=ITEMS), force_new=False)
        resumed = await conductor.find_or_start(setup.plan("parade"), force_new=False)
    assert (resumed.session, resumed.is_resumed) == (started.session, True)
