"""The bundled work-packages, carried out to its end: every package is a session of work-package."""

from __future__ import annotations

import pytest

from fidelio.conductor.context import Happening
from fidelio.engine.record import CHILD_FINISHED, CHILD_STARTED
from tests.conductor.orchestra import Orchestra, report, workers_of
from tests.support import proves

PACKAGES = [{"slug": "hull", "title": "A hull"}, {"slug": "sail", "title": "A sail"}]
ANSWERS = {
    "confirm-scope": "confirmed",
    "choose-order": "value",
    "approve-roadmap": "approve-without-issues",
    # A worker without a mind builds nothing, so each package ends where its requirements are to be confirmed.
    "confirm-requirements": "return-issue",
    "choose-next": "continue",
}


@pytest.mark.timeout(180)
@proves("conductor.loop-children", "conductor.child-results", "conductor.carries-out")
async def test_work_packages_runs_a_session_of_work_package_for_every_package(orchestra: Orchestra) -> None:
    orchestra.says("cutter", report("list-results", "cut-packages", "link-packages", packages=PACKAGES))
    seen: list[Happening] = []
    plan = orchestra.plan("work-packages", inputs={"goal": "A boat"}, activity_agents={"find-packages": "cutter"})
    record = await orchestra.play(plan, seen, ANSWERS, seconds=170)

    assert (record.status, record.completed[-1]) == ("completed", "wrap-up")
    assert (record.variables["outcome"], record.variables["packages"]) == ("returned", PACKAGES)
    session = seen[0].session
    async with orchestra.house() as house:
        desk = (await house.workflows()).unit
        started = await desk.ledger.events(session, types=(CHILD_STARTED, CHILD_FINISHED))
        assert [event.type for event in started] == [CHILD_STARTED, CHILD_FINISHED] * len(PACKAGES)
        for event in started[::2]:
            child = await desk.load_record(await desk.ledger.session(event.body["session"]))
            assert (child.workflow, child.status, child.variables["outcome"]) == ("work-package", "completed", "returned")
            assert child.parent is not None
            assert (child.parent.session, child.parent.activity) == (session, "carry-out")
        names = [worker.name.removeprefix(f"{session}-6") for worker in await workers_of(house, f"{session}-6")]
    assert names == [f"{part}-carry-out" for part in ("", "-1-1-0", "-1-1-1", "-1-2-0", "-1-2-1")]
