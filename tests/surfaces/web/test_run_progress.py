"""The page of a run in a loop, with variables that nobody has set, and with agents that cannot go on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.conductor.context import ignore_event
from fidelio.conductor.plan import Plan, acquire_run_lock
from fidelio.locks import FileLock
from fidelio.settings import load_settings
from fidelio.surfaces.mcp.dialects import load_tools
from fidelio.toolkit import Done
from tests.support import proves
from tests.support.tool_calls import call_tool
from tests.surfaces.web.conftest import Site
from tests.surfaces.web.test_acting import post, wait_for
from tests.surfaces.web.test_runs import read

PARCELS = """id: parcels
version: 1.0.0
title: Weigh parcels
initialActivity: weigh
variables:
  - {name: parcels, type: array}
  - {name: unit, type: string, defaultValue: kilograms}
activities:
  - id: weigh
    version: 1.0.0
    name: Weigh the parcels
    steps:
      - {id: open, name: Open the scale}
    loops:
      - id: each
        name: Each parcel
        type: forEach
        variable: parcel
        over: parcels
        steps:
          - {id: put, name: Put it on the scale}
          - {id: note, name: Note the weight}
"""


@pytest.fixture
async def application(tmp_path: Path) -> AsyncIterator[Application]:
    directory = tmp_path / "workflows"
    directory.mkdir()
    (directory / "parcels.yaml").write_text(PARCELS)
    settings = load_settings(str(tmp_path / "home"), environ={})
    settings.home.ensure()
    async with Application(settings, [str(directory)], with_bundled=True) as opened:
        yield opened


class Walk:
    """A session in the dialect of the navigator."""

    def __init__(self, application: Application) -> None:
        self._tools = load_tools("navigator", application)
        self._state = ""

    async def start(self, **variables: Any) -> None:
        await self._call("nav_start", workflow_id="parcels", initial_variables=variables)

    async def act(self, action: str, **arguments: str) -> None:
        await self._call("nav_action", state=self._state, action=action, **arguments)

    async def _call(self, tool: str, **arguments: Any) -> None:
        done = await call_tool(self._tools, tool, arguments)
        assert isinstance(done, Done)
        self._state = json.loads(done.text)["state"]


async def read_newest(site: Site) -> str:
    session = (await (await site.application.records()).sessions(limit=1)).items[0]
    return await read(site, f"/sessions/{session.id}")


def find_steps(page: str) -> str:
    return page.partition("Steps of")[2].partition("</section>")[0]


@proves("web.run-state")
async def test_a_run_shows_the_iteration_of_a_loop_with_its_item_and_steps(site: Site) -> None:
    walk = Walk(site.application)
    await walk.start(parcels=["A-17", "B-2"])
    before = find_steps(await read_newest(site))
    await walk.act("complete_step", step_id="open")
    await walk.act("advance_loop", loop_id="each")
    await walk.act("complete_step", step_id="put", output="A-17 lies on it.")
    await walk.act("complete_step", step_id="note", output="4.2 kg")
    await walk.act("advance_loop", loop_id="each")
    await walk.act("complete_step", step_id="put", output="B-2 lies on it.")
    page = await read_newest(site)

    assert 'Each parcel</strong> <span class="muted">for each of parcels' in before
    steps = find_steps(page)
    assert "iteration 2 of 2, B-2" in steps
    assert "B-2 lies on it." in steps
    # What was reported for the iteration before is not that of this.
    assert "4.2 kg" not in steps
    assert steps.count('<li class="done">') == 2
    assert steps.count('<li class="next">') == 1
    assert "began iteration 2 of each" in page


@proves("web.run-state")
async def test_a_variable_that_nobody_has_set_is_shown_with_its_default(site: Site) -> None:
    await Walk(site.application).start(parcels=[])
    page = (await read_newest(site)).partition("Variables</h2>")[2]

    assert "kilograms" in page
    assert page.count("the default, nobody has set it") == 1


@proves("web.run")
async def test_a_run_whose_agents_cannot_go_on_says_why_and_lets_them_try_again(tmp_path: Path, site: Site) -> None:
    async with site.visit() as client:
        shown = await post(client, "/workflows/hello", agent="echo", project=str(tmp_path))
        session = shown.url.path.rpartition("/")[2]
        await wait_for(site, session, "conductor.failed")
        page = (await client.get(f"/sessions/{session}")).text
        again = await post(client, f"/sessions/{session}/act", act="continue")
        await wait_for(site, session, "conductor.failed", 2)

    assert "The agents do not go on." in page
    assert "echo did not finish greet" in page
    assert 'value="continue"' in page
    assert "Its agents go on." in again.text


@proves("web.run")
async def test_a_run_whose_process_has_ended_goes_on_here(tmp_path: Path, site: Site) -> None:
    conductor = await site.application.conductor(ignore_event)
    session = await conductor.start(Plan(workflow="hello", project=str(tmp_path), agent="echo"))
    async with site.visit() as client:
        page = (await client.get(f"/sessions/{session}")).text
        with closing_lock(acquire_run_lock(site.application.settings.home, session)):
            refused = await post(client, f"/sessions/{session}/act", act="continue")
        continued = await post(client, f"/sessions/{session}/act", act="continue")
        await wait_for(site, session, "conductor.failed")

    assert "Another process carries out this run." in page
    assert "is being carried out by another process" in refused.text
    assert "Its agents go on." in continued.text


@contextmanager
def closing_lock(lock: FileLock) -> Iterator[None]:
    yield
    lock.release()


@proves("web.run")
async def test_only_a_run_of_agents_can_be_continued(site: Site) -> None:
    await Walk(site.application).start(parcels=[])
    session = (await (await site.application.records()).sessions(limit=1)).items[0]
    async with site.visit() as client:
        answered = await post(client, f"/sessions/{session.id}/act", act="continue")

    assert answered.status_code == 400
    assert "No agents carry out session" in answered.text
