"""Markup in every field that somebody else fills: it reaches the pages as text, in places of every kind."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from playwright.async_api import Browser

from fidelio.app.application import Application
from fidelio.app.person_keys import PersonKeys
from fidelio.inbox import open_request
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.runtime.agents.files import DEFAULT, resolve_agent
from fidelio.runtime.bootstrap.files import render_text
from fidelio.runtime.resources.memory_file import MEMORY_FILES, write_section
from fidelio.runtime.resources.versions import Substrate
from fidelio.runtime.service import NewAgentSession
from fidelio.settings import load_settings
from fidelio.surfaces.web.share import _embed
from tests.support import proves
from tests.support.passkeys import SoftwareKey, register_key
from tests.surfaces.web.conftest import TOKEN, Site
from tests.surfaces.web.markup import read_markup
from tests.surfaces.web.test_work import git, put

# In text, in an attribute with either quote, in a script, a comment, a drawing and an address.
HOSTILE = (
    'zzz\'"><script>window.owned=1</script></title></textarea></script></svg><!--<img src=x onerror="window.owned=1">'
    "<svg onload='window.owned=1'><a href='javascript:window.owned=1' hx-get='/sign-out' hx-trigger='load'>x</a>"
    "<form action='/sign-out' method='post'><input autofocus onfocus='window.owned=1'></form>"
    "<meta http-equiv='refresh' content='0;url=//evil.example'>-->{{7*7}}${7*7}"
)
# As long as the name of an actor or a session may be.
NAME = HOSTILE[:200]
# A file name has no slash, and at most 255 bytes.
FILE_NAME = "zzz'\"><img src=x onerror=window.owned=1>&lt;.txt"
MARKERS = ("owned", "evil.example", "zzz", "sign-out' hx")


def write_workflow() -> str:
    options = [{"id": "yes", "label": HOSTILE, "description": HOSTILE, "effect": {"setVariable": {"colour": HOSTILE}}}]
    checkpoint = {"id": "ship", "name": HOSTILE, "message": f"{HOSTILE} {{colour}}", "options": options}
    condition = {"type": "simple", "variable": "colour", "operator": "==", "value": HOSTILE}
    first = {
        "id": "decide",
        "version": "1.0.0",
        "name": HOSTILE,
        "description": HOSTILE,
        "steps": [{"id": "look", "name": HOSTILE, "description": HOSTILE}],
        "checkpoints": [checkpoint],
        "transitions": [{"to": "later", "condition": condition}, {"to": "decide", "isDefault": True}],
    }
    later = {"id": "later", "version": "1.0.0", "name": HOSTILE}
    variables = [{"name": "colour", "type": "string", "description": HOSTILE, "defaultValue": HOSTILE}]
    about = {"id": "hostile", "version": "1.0.0", "title": HOSTILE, "description": HOSTILE, "tags": [HOSTILE]}
    # JSON is YAML, too.
    return json.dumps({**about, "variables": variables, "initialActivity": "decide", "activities": [first, later]})


@pytest.fixture
async def application(tmp_path: Path) -> AsyncIterator[Application]:
    """With a workflow whose every text is hostile, a broken one with such a name, and broken blueprints."""
    workflows, agents = tmp_path / "workflows", tmp_path / "home" / "agents"
    for directory in (workflows / "hostile", agents):
        directory.mkdir(parents=True)
    (workflows / "hostile" / "workflow.yaml").write_text(write_workflow())
    (workflows / f"{FILE_NAME}.yaml").write_text(f"id: [{HOSTILE}")
    (agents / f"{FILE_NAME}.md").write_text(f"---\nname: {HOSTILE}\n---\n")
    text = json.dumps({"name": "good", "description": HOSTILE, "executor": "scripted", "tags": [HOSTILE]})
    (agents / "good.md").write_text(f"---\n{text}\n---\n{HOSTILE}")
    settings = load_settings(str(tmp_path / "home"), environ={})
    settings.home.ensure()
    async with Application(settings, [str(workflows)]) as opened:
        yield opened


async def start_workflow(site: Site) -> str:
    """A session of the workflow that waits at its question, with variables and reports of an agent."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(f"{site.url}/mcp", http_client=http)) as agent,
    ):
        token = ""
        for tool, arguments in (
            ("start_session", {"workflow_id": "hostile", "agent_id": HOSTILE[:48]}),
            ("next_activity", {"activity_id": "decide", "variables": {"colour": HOSTILE}}),
            ("next_activity", {"activity_id": HOSTILE}),
            ("yield_checkpoint", {"checkpoint_id": "ship"}),
        ):
            done = await agent.call_tool(tool, {**arguments, **({"session_token": token} if token else {})})
            assert not done.is_error or tool == "next_activity", str(done.content)[:600]
            token = (done.meta or {}).get("session_token", token)
    (session,) = (await (await site.application.records()).sessions(kind="workflow")).items
    return session.id


def make_worktree(tree: Path) -> str:
    """A checkout with changed files; returns the commit that it began with."""
    tree.mkdir()
    git(tree, "init", "-q")
    (tree / FILE_NAME).write_text("one\n")
    git(tree, "add", "."), git(tree, "commit", "-qm", "first")
    (tree / FILE_NAME).write_text(f"{HOSTILE}\n")
    (tree / f"new {FILE_NAME}").write_text(f"+++ b/{HOSTILE}\n")
    return git(tree, "rev-parse", "HEAD")


async def put_agent(site: Site, tree: Path) -> tuple[str, str]:
    """A session of an agent with a worktree, and what it asks for."""
    base = make_worktree(tree)
    events = [
        NewEvent(type="agent.said", body={"text": HOSTILE}, actor=NAME),
        NewEvent(type="agent.called", body={"call": HOSTILE, "name": HOSTILE, "arguments": HOSTILE}, actor="agent"),
        NewEvent(type="agent.returned", body={"call": HOSTILE, "ok": False, "text": HOSTILE}, actor="agent"),
        NewEvent(type="run.failed", body={"reason": HOSTILE, "detail": HOSTILE}, actor=NAME),
        NewEvent(type="run.used", body={"usage": {"turns": 1, "input_tokens": 5, "output_tokens": 1, "cost_usd": 0.5}}),
        NewEvent(type="x.y", body={HOSTILE: [HOSTILE]}),
    ]
    session = await put(site, "s_tree00000001", *events, worktree=str(tree), branch=HOSTILE, base=base, blueprint=HOSTILE)
    edit: dict[str, Any] = {
        "tool": HOSTILE,
        "input": {"file_path": HOSTILE, "old_string": "a", "new_string": HOSTILE, "command": HOSTILE},
    }
    proof = {**edit, "answered_by": "proven", "digest": HOSTILE, "unsigned_options": [HOSTILE]}
    options = ({"id": HOSTILE[:60], "label": HOSTILE, "description": HOSTILE}, {"id": "no", "label": HOSTILE})
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("permission", edit),
        ("tool_approval", proof),
        ("question", {}),
        ("odd_kind", {"workflow": HOSTILE}),
    ]
    asked = tuple(open_request(kind, kind, HOSTILE, options, detail) for kind, detail in kinds)
    ledger = (await site.application.records())._ledger
    waiting = tuple(NewEvent(type="run.waiting", body={"request": request.id}) for request in asked)
    await ledger.commit(Change(session=session.id, events=waiting, requests=asked))
    named = NewSession(kind="agent", name=NAME)
    await ledger.commit(Change(session="s_named0000001", create=named, record={"project": HOSTILE}, status="running"))
    return session.id, asked[0].id


async def start_runtime(site: Site, project: Path) -> str:
    """A session of the runtime with an outcome, a message, memory and a passkey."""
    service = await site.application.runtime()
    agent = await resolve_agent(service.context, str(project), DEFAULT)
    new = NewAgentSession(project=str(project), agent=agent.name, version=agent.version, title=HOSTILE)
    session = await service.start_session(new)
    rubric = {"type": "text", "content": HOSTILE}
    outcome = {"type": "user.define_outcome", "description": HOSTILE, "rubric": rubric}
    message = {"type": "user.message", "content": [{"type": "text", "text": HOSTILE}]}
    await service.send(session, [outcome, message], by=NAME, channel="cli")
    substrate = await Substrate.open(service.context, str(project), agent.name)
    for notes in ("Use tabs.", HOSTILE):
        text = write_section(render_text(MEMORY_FILES[0], agent.name), "notes", notes)
        await substrate.store_file(MEMORY_FILES[0], text.encode(), origin="person", by=NAME)
    await register_key(service.context, SoftwareKey(HOSTILE[:60]))
    await PersonKeys(service.context).request(SoftwareKey(HOSTILE[:50]).create(), by=NAME)
    return session


@pytest.fixture
async def addresses(site: Site, tmp_path: Path) -> list[str]:
    """Every page, of things whose every text is hostile, and addresses that are hostile themselves."""
    workflow, (agent, request) = await start_workflow(site), await put_agent(site, tmp_path / "tree")
    runtime = await start_runtime(site, tmp_path)
    bad = quote(HOSTILE, safe="")
    parts = {
        workflow: ("", "/report", "/proof", "/file", "/events/1", "/events/2", "/delete", "/memory", "/changes"),
        agent: ("", "/proof", "/file", "/events/1", "/events/3", "/delete", "/changes"),
        runtime: ("", "/report", "/memory", "/file", "/proof", "/delete"),
    }
    queried = [
        f"{path}?{name}={bad}"
        for path, names in {
            "/inbox": ("kind", "project", "session", "after", "answered", "state"),
            "/sessions": ("kind", "after"),
            f"/sessions/{workflow}": ("before",),
            "/search": ("q", "kind", "more"),
            "/agents": ("blueprint", "agent", "after"),
            "/workflows/hostile": ("start",),
            "/passkeys/at-localhost": ("next",),
            "/passkeys/confirmation": ("id",),
            "/sign-in": ("next", "key"),
        }.items()
        for name in names
    ]
    return [
        *("/inbox", "/inbox?state=all", f"/inbox/{request}", "/sessions", "/sessions/lanes", "/agents", "/passkeys"),
        *("/workflows", "/workflows/hostile", "/workflows/hostile/source", "/health-check", "/search?q=zzz"),
        *(f"/sessions/{session}{part}" for session, found in parts.items() for part in found),
        *(f"/{bad}", f"/sessions/{bad}", f"/workflows/{bad}", f"/workflows/{bad}/source", f"/inbox/{bad}", f"/static/{bad}"),
        *queried,
    ]


@proves("web.hostile-fields", "web.foreign-text")
async def test_no_text_brings_markup_to_any_page(site: Site, addresses: list[str]) -> None:
    seen = 0
    async with site.visit() as client:
        for address in addresses:
            answered = await client.get(address)
            assert answered.status_code < 500, address
            if "html" not in answered.headers["content-type"]:
                continue
            found = read_markup(answered.text, *MARKERS)
            scripts = (
                [script for script in found.inline if "owned" in script.replace("\\u003c", "")]
                if "/file" not in address
                else []
            )
            assert (found.problems, scripts) == ([], []), address
            seen += any("zzz" in text for text in found.text)

    # The texts are there, or nothing was tried.
    assert seen > 20


@proves("web.hostile-fields")
async def test_nothing_of_it_runs_in_a_browser(site: Site, addresses: list[str], browser: Browser) -> None:
    context = await browser.new_context(accept_downloads=False)
    page, problems = await context.new_page(), list[str]()
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on("console", lambda message: problems.append(message.text) if "Content Security Policy" in message.text else None)
    page.on("request", lambda sent: None if sent.url.startswith((site.url, "data:")) else problems.append(sent.url))
    await page.goto(site.link())
    for address in addresses:
        if "/file" in address or "at-localhost" in address or "/sign-in" in address:
            continue
        await page.goto(f"{site.url}{address}")
        if await page.evaluate("window.owned"):
            problems.append(f"{address} ran it")
    await page.goto(f"{site.url}/sessions")

    assert problems == []
    assert "/sign-in" not in page.url


@proves("web.hostile-fields", "web.share")
async def test_a_shared_file_runs_only_its_own_script(
    site: Site, addresses: list[str], browser: Browser, tmp_path: Path
) -> None:
    page, problems = await browser.new_page(), list[str]()
    page.on("request", lambda sent: None if sent.url.startswith("file:") else problems.append(sent.url))
    async with site.visit() as client:
        for number, address in enumerate(address for address in addresses if address.endswith("/file")):
            file = tmp_path / f"{number}.html"
            file.write_text((await client.get(address)).text, "utf-8")
            await page.goto(file.as_uri())
            assert "The chain holds" in await page.locator("#verdict").inner_text()
            assert await page.evaluate("window.owned") is None
            assert await page.locator("script").count() == 2

    assert problems == []


@proves("web.hostile-fields", "web.share")
@given(st.recursive(st.text(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)))
def test_json_in_a_file_ends_no_script_and_begins_no_comment(value: object) -> None:
    text = str(_embed({"value": value, "hostile": ["</script>", "<!--", "<script", "]]>"]}))

    assert not set("<>&") & set(text)
    decoded: Mapping[str, object] = msgspec.json.decode(text)
    assert decoded["value"] == json.loads(json.dumps(value))


@proves("web.hostile-fields")
@pytest.mark.parametrize("path", ["/v1/sessions/{}", "/v1/agents/{}", "/v1/sessions?limit={}", "/v1/{}", "/mcp/{}"])
async def test_errors_of_programs_are_never_shown_as_a_page(site: Site, path: str) -> None:
    async with httpx2.AsyncClient(base_url=site.url, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        answered = await client.get(path.format(quote(HOSTILE, safe="")))

    assert 400 <= answered.status_code < 500
    assert "html" not in answered.headers.get("content-type", "")
