"""A full run of the bundled workflow work-packages: every package is a session of work-package."""

from __future__ import annotations

import pytest

from fidelio.conductor.context import ProgressEvent
from fidelio.engine.record import CHILD_FINISHED, CHILD_STARTED
from tests.conductor.run_setup import RunSetup, list_workers, report
from tests.support import proves

PACKAGES = [{"slug": "hull", "title": "A hull"}, {"slug": "sail", "title": "A sail"}]
ANSWERS = {
    "confirm-scope": "confirmed",
    "choose-order": "value",
    "approve-roadmap": "approve-without-issues",
    # A scripted worker builds nothing, so each package ends at the checkpoint for its requirements.
    "confirm-requirements": "return-issue",
    "choose-next": "continue",
}


@pytest.mark.timeout(180)
@proves("conductor.loop-children", "conductor.child-results", "conductor.carries-out")
async def test_work_packages_runs_a_session_of_work_package_for_every_package(setup: RunSetup) -> None:
    setup.write_agent("cutter", report("list-results", "cut-packages", "link-packages", packages=PACKAGES))
    seen: list[ProgressEvent] = []
    inputs = {"goal": "A boat", "issue": "The brief"}
    plan = setup.plan("work-packages", inputs=inputs, activity_agents={"find-packages": "cutter"})
    record = await setup.execute(plan, seen, ANSWERS, seconds=170)

    assert (record.status, record.completed[-1]) == ("completed", "wrap-up")
    assert (record.variables["outcome"], record.variables["packages"]) == ("returned", PACKAGES)
    session = seen[0].session
    async with setup.app() as app:
        unit = (await app.workflows()).unit
        started = await unit.ledger.events(session, types=(CHILD_STARTED, CHILD_FINISHED))
        assert [event.type for event in started] == [CHILD_STARTED, CHILD_FINISHED] * len(PACKAGES)
        for event in started[::2]:
            child = await unit.load_record(await unit.ledger.session(event.body["session"]))
            assert (child.workflow, child.status, child.variables["outcome"]) == ("work-package", "completed", "returned")
            assert child.parent is not None
            assert (child.parent.session, child.parent.activity) == (session, "carry-out")
        names = [worker.name.removeprefix(f"{session}-6") for worker in await list_workers(app, f"{session}-6")]
    assert names == [f"{part}-carry-out" for part in ("", "-1-1-0", "-1-1-1", "-1-2-0", "-1-2-1")]
