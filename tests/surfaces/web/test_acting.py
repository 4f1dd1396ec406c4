"""What a person does on the page: start, write to, stop, run, delete, search; and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fidelio.app.application import Application, open_bundled
from fidelio.definitions.models import Workflow
from fidelio.ledger.model import Session
from fidelio.orchestrator.blueprints.servers import AGENT_HEADER
from fidelio.orchestrator.record.model import StartAgent
from fidelio.settings import load_settings
from fidelio.surfaces.web.inputs import find_known_values, make_fields, read_inputs
from fidelio.surfaces.web.session_views import SessionView
from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent, read_form_token


async def post(client: httpx2.AsyncClient, path: str, **fields: str) -> httpx2.Response:
    return await client.post(path, data={"form_token": await read_form_token(client), **fields})


async def wait_for(site: Site, session: str, type_: str, count: int = 1) -> None:
    """Wait until a session has so many events of a type."""
    async with asyncio.timeout(60):
        async for _ in (await site.application.records()).follow(session, types=(type_,)):
            count -= 1
            if not count:
                return


@proves("web.agents")
async def test_an_agent_of_the_runtime_is_started_and_answered_on_the_page(site: Site) -> None:
    await site.application.host_runtime()
    async with site.visit() as client:
        shown = await post(client, "/agents", kind="runtime", agent="default", message="Good morning.")
        session = shown.url.path.rpartition("/")[2]
        await wait_for(site, session, "session.status_idle")
        await post(client, f"/sessions/{session}/act", act="send", message="And good night.")
        await wait_for(site, session, "session.status_idle", 2)
        page = (await client.get(f"/sessions/{session}")).text

    assert page.count("And good night.") >= 2
    assert "finished its turn" in page
    assert "scripted:echo" in page


@proves("web.agents")
async def test_an_agent_of_a_blueprint_is_started_on_the_page(site: Site) -> None:
    async with site.visit() as client:
        shown = await post(client, "/agents", kind="blueprint", agent="echo", name="first", message="Say hello.")
        session = shown.url.path.rpartition("/")[2]
        await wait_for(site, session, "run.succeeded")
        page = (await client.get(f"/sessions/{session}")).text

    assert "succeeded" in page
    # The task and what the agent said are in the time line, as the agent host stores them.
    assert page.count("Say hello.") >= 2


@proves("web.agents")
async def test_an_agent_works_although_the_page_of_another_was_shown_first(site: Site) -> None:
    async with open_bundled(site.application.settings) as earlier:
        service = await earlier.agents(host=False)
        stopped = await service.start(StartAgent(name="before", prompt="Say hello.", blueprint="echo"))
        await service.stop(stopped.id)

    async with site.visit() as client:
        # Showing it opens the agents without hosting them.
        page = (await client.get(f"/sessions/{stopped.id}")).text
        shown = await post(client, "/agents", kind="blueprint", agent="echo", name="after", message="Say hello.")
        await wait_for(site, shown.url.path.rpartition("/")[2], "run.succeeded")

    assert "stopped" in page


@proves("web.agents")
async def test_an_agent_whose_run_has_ended_is_resumed_with_a_message(site: Site) -> None:
    async with site.visit() as client:
        shown = await post(client, "/agents", kind="blueprint", agent="echo", name="again", message="Say hello.")
        session = shown.url.path.rpartition("/")[2]
        await wait_for(site, session, "run.succeeded")
        page = (await client.get(f"/sessions/{session}")).text
        resumed = await post(client, f"/sessions/{session}/act", act="resume", message="Say goodbye.")
        await wait_for(site, session, "run.succeeded", 2)
        after = (await client.get(f"/sessions/{session}")).text

    assert 'name="act" value="resume"' in page
    assert 'value="stop"' not in page
    assert "It goes on with your message." in resumed.text
    assert "Say goodbye." in after
    assert "2, the last succeeded" in after


@proves("web.agents")
@pytest.mark.parametrize(
    ("status", "offered"),
    [
        ("running", {"stop", "send"}),
        ("waiting", {"stop", "send"}),
        ("failed", {"resume", "delete"}),
        ("stopped", {"resume", "delete"}),
        ("lost", {"resume", "delete"}),
    ],
)
def test_only_what_can_be_done_is_offered(status: str, offered: set[str]) -> None:
    view = SessionView(make_session(status))

    found = {view.message_act, "stop" if view.can_stop else "", "delete" if view.can_delete else ""} - {""}
    assert found == offered


def make_session(status: str) -> Session:
    empty = dict.fromkeys(Session.__struct_fields__, "")
    return Session(**{**empty, "kind": "agent", "name": "one", "status": status, "raw": '{"blueprint": "writer"}'})  # type: ignore[arg-type]  # of no table


@proves("web.agents")
async def test_a_form_that_is_refused_keeps_what_was_typed(site: Site) -> None:
    async with site.visit() as client:
        page = await post(client, "/agents", kind="blueprint", agent="echo", name="no way", message="A long task.")

    assert page.status_code == 400
    assert 'role="alert"' in page.text
    assert ">A long task.</textarea>" in page.text
    assert '<option value="echo" selected>' in page.text


@proves("web.agents")
@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"kind": "runtime", "agent": "default", "message": " "}, "The message is empty."),
        ({"kind": "runtime", "agent": "nobody", "message": "x"}, "There is no agent nobody."),
        ({"kind": "runtime", "agent": "../x", "message": "x"}, "is not a name of an agent"),
        ({"kind": "blueprint", "agent": "nobody", "message": "x"}, "nobody"),
        ({"kind": "blueprint", "agent": "echo", "name": "--help x", "message": "x"}, "--help x"),
    ],
)
async def test_what_cannot_be_started_is_refused_with_the_reason(site: Site, fields: dict[str, str], sentence: str) -> None:
    async with site.visit() as client:
        answered = await post(client, "/agents", **fields)

    assert (answered.status_code, sentence in answered.text) == (400, True)


@proves("web.agents", "web.person")
@pytest.mark.parametrize("path", ["/agents", "/workflows/hello", "/sessions/{session}/act"])
async def test_an_agent_starts_and_ends_nothing_on_the_page(site: Site, agent: WaitingAgent, path: str) -> None:
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "act": "stop", "message": "x", "kind": "runtime"}
        headers = {AGENT_HEADER: "s_000000000000.1"}
        answered = await client.post(path.format(session=agent.session), data=fields, headers=headers)

    assert (answered.status_code, "An agent sent this request" in answered.text) == (400, True)
    assert (await (await site.application.records()).find(agent.session)).status == "blocked"


@proves("web.end", "inbox.erased")
async def test_a_session_is_ended_and_then_deleted_after_a_question(site: Site, agent: WaitingAgent) -> None:
    async with site.visit() as client:
        await post(client, f"/sessions/{agent.session}/act", act="stop")
        ended = (await (await site.application.records()).find(agent.session)).status
        confirm = await client.get(f"/sessions/{agent.session}/delete")
        deleted = await post(client, f"/sessions/{agent.session}/act", act="delete")
        proof = await client.get(f"/sessions/{agent.session}/proof")

        all_ = await client.get("/inbox?state=all")
        shown = await client.get(f"/sessions/{agent.session}")

    assert ended == "cancelled"
    for page in (all_, shown):
        assert "Its session was deleted, and its text with it." in page.text
        assert "changed outside of Fidelio" not in page.text
    assert "The session was deleted." in deleted.text
    assert "Delete this session for good?" in confirm.text
    assert "The record holds" in proof.text
    assert (await (await site.application.inbox()).list_requests()).items == ()


@proves("web.run")
async def test_a_workflow_is_run_from_its_form_until_it_asks(site: Site) -> None:
    async with site.visit() as client:
        form = (await client.get("/workflows/hello")).text
        shown = await post(client, "/workflows/hello", agent="echo")
        session = shown.url.path.rpartition("/")[2]
        await wait_for(site, session, "activity.entered")

    assert 'name="input-project_name"' in form
    assert (await (await site.application.records()).find(session)).kind == "workflow"


WORKFLOW = """id: typed
version: 1.0.0
title: Variables of every type
initialActivity: first
variables:
  - {name: topic, type: string, required: true, description: What it is about.}
  - {name: count, type: number, defaultValue: 3}
  - {name: fast, type: boolean, defaultValue: false}
  - {name: files, type: array}
activities:
  - id: first
    version: 1.0.0
    name: First
"""


@pytest.fixture
async def typed(tmp_path: Path) -> AsyncIterator[Workflow]:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "typed.yaml").write_text(WORKFLOW)
    async with Application(load_settings(str(tmp_path / "other"), environ={}), [str(tmp_path / "workflows")]) as application:
        yield (await application.library()).workflow("typed")


@proves("web.run")
async def test_a_variable_is_read_as_its_type_and_an_error_names_its_field(typed: Workflow) -> None:
    def read(**fields: str) -> tuple[dict[str, Any], dict[str, str]]:
        return read_inputs(typed, {f"input-{name}": text for name, text in fields.items()})

    assert read(topic="7", count="2.5", fast="true", files='["a"]') == (
        {"topic": "7", "count": 2.5, "fast": True, "files": ["a"]},
        {},
    )
    assert set(read(count="many", files="{}")[1]) == {"topic", "count", "files"}
    assert read(topic="  ")[1].keys() == {"topic"}


@proves("web.run")
async def test_the_form_has_a_field_for_each_type_with_what_was_typed(typed: Workflow) -> None:
    typed_before, problems = {"input-count": "many", "input-fast": "true"}, {"count": "count is declared as number"}
    fields = {field.variable.name: field for field in make_fields(typed, typed_before, problems)}

    assert (fields["topic"].is_required, fields["count"].is_required) == (True, False)
    assert (fields["count"].value, fields["count"].default, fields["count"].problem) == ("many", "3", problems["count"])
    assert (fields["fast"].choices, fields["fast"].value, fields["fast"].default) == (("true", "false"), "true", "false")
    assert "JSON" in fields["files"].hint


@proves("web.run")
async def test_a_text_offers_the_values_that_the_workflow_uses(site: Site) -> None:
    library = await site.application.library()
    async with site.visit() as client:
        form = (await client.get("/workflows/hello")).text

    assert list(find_known_values(library.workflow("hello"))["tone"]) == ["warm", "brief"]
    assert '<option value="warm"></option>' in form


@proves("web.run")
async def test_a_run_that_cannot_begin_shows_why_at_its_field_and_keeps_the_form(site: Site) -> None:
    async with site.visit() as client:
        page = await post(client, "/workflows/work-package", **{"input-open_findings": "many", "input-work_slug": "kept"})
        elsewhere = await post(client, "/workflows/hello", project="/nowhere/at/all", agent="echo")

    assert page.status_code == 400
    assert '<details class="card" id="run" open>' in page.text
    assert "open_findings is declared as number" in page.text
    assert "The workflow cannot begin without it." in page.text
    assert page.text.count('aria-invalid="true"') == 2
    assert 'value="kept"' in page.text
    assert (elsewhere.status_code, "/nowhere/at/all" in elsewhere.text, 'role="alert"' in elsewhere.text) == (400, True, True)
    assert (await (await site.application.records()).sessions(kind="workflow")).items == ()


@proves("web.search")
async def test_search_finds_events_and_says_why(site: Site, agent: WaitingAgent) -> None:
    async with site.visit() as client:
        found = (await client.get("/search", params={"q": "greet"})).text
        nothing = (await client.get("/search", params={"q": "zyzzyva"})).text
        hostile = await client.get("/search", params={"q": '"' * 600 + "*<b>"})

    assert f"/sessions/{agent.session}" in found
    assert "contains" in found
    assert "Nothing found" in nothing
    assert hostile.status_code in (200, 400)
    assert "<b>" not in hostile.text


@proves("web.health")
async def test_health_shows_what_doctor_says(site: Site) -> None:
    async with site.visit() as client:
        quick = (await client.get("/health-check")).text
        page = (await client.get("/health-check?all=yes")).text

    assert 'name="all" value="yes"' in quick
    assert "Tokens are sealed with key" in quick
    assert "SQLite ledger is sound" in page
    assert "Agent claude" in page
    # It is not read again with every event.
    assert ("/live?after=" in quick, "/live?after=" in page) == (True, False)
