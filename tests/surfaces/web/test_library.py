"""Files of a workflow with the findings of lint beside their lines; search in parts; health."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from fidelio import __version__
from fidelio.app.application import Application
from fidelio.definitions.lint import count_findings
from fidelio.ledger.model import Change, NewEvent, NewSession, SessionKind
from fidelio.settings import load_settings
from fidelio.surfaces.web.workflows import _read_sources
from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent
from tests.surfaces.web.test_inbox import ask, open_session

WORKFLOW = """id: broken-links
version: 1.0.0
title: Links that lead nowhere
initialActivity: first
activities:
  - id: first
    version: 1.0.0
    name: First
    transitions:
      - to: nowhere
"""


async def read(site: Site, path: str) -> str:
    async with site.visit() as client:
        page = await client.get(path)
    assert page.status_code == 200, page.text
    return " ".join(page.text.split())


@proves("web.lint")
async def test_a_finding_is_beside_the_line_that_it_belongs_to(tmp_path: Path) -> None:
    directory = tmp_path / "workflows"
    directory.mkdir()
    (directory / "broken-links.yaml").write_text(WORKFLOW)
    async with Application(load_settings(str(tmp_path / "home"), environ={}), [str(directory)]) as application:
        library = await application.library()
        (file,) = _read_sources(library, "broken-links")

    found = {line.text.strip(): [finding.sentence for finding in line.findings] for line in file.lines if line.findings}
    assert any("nowhere" in sentence for sentences in found.values() for sentence in sentences)
    assert set(found) <= {line.strip() for line in WORKFLOW.splitlines()}
    assert all(line.number == number for number, line in enumerate(file.lines, 1))


@proves("web.lint")
async def test_the_library_counts_the_findings_of_each_workflow(tmp_path: Path) -> None:
    directory = tmp_path / "workflows"
    directory.mkdir()
    (directory / "broken-links.yaml").write_text(WORKFLOW)
    (directory / "links.yaml").write_text(WORKFLOW.replace("broken-links", "links").replace("nowhere", "__terminal__"))
    async with Application(load_settings(str(tmp_path / "home"), environ={}), [str(directory)]) as application:
        library = await application.library()
        counted = count_findings(library)
        (directory / "broken-links.yaml").write_text(WORKFLOW.replace("nowhere", "__terminal__"))
        left = count_findings(library)

    assert counted["broken-links"]["error"] > counted["links"]["error"] == 0
    assert not any(each["error"] for each in left.values())


@proves("web.lint")
async def test_the_files_of_a_workflow_are_shown_with_line_numbers(site: Site) -> None:
    library = await site.application.library()
    path = library.path("hello")
    page = await read(site, "/workflows/hello/source")

    files = [path] if path.is_file() else list(path.rglob("*.yaml"))
    assert files
    for file in files:
        assert f"<code>{file.name}</code>" in page or file.name in page
        first = " ".join(html.escape(file.read_text().split("\n")[0]).split())
        assert first in page


@proves("web.search-parts")
@pytest.mark.parametrize(("kind", "found"), [("", {"workflow", "agent"}), ("agent", {"agent"}), ("document", set())])
async def test_search_is_limited_to_a_kind(site: Site, kind: str, found: set[str]) -> None:
    ledger = (await site.application.records())._ledger
    kinds: tuple[SessionKind, ...] = ("workflow", "agent")
    for each in kinds:
        said = NewEvent(type="agent.said", body={"text": "a marmalade sandwich"}, actor="agent")
        create = NewSession(kind=each, name=each)
        await ledger.commit(Change(session=f"s_{each:0>12}", create=create, events=(said,), record={}, status="active"))
    page = await read(site, f"/search?q=marmalade&kind={kind}")

    assert {each for each in kinds if f"s_{each:0>12}" in page} == found


@proves("web.search-parts", "web.bounded")
async def test_search_shows_the_best_hits_and_leads_to_more(site: Site) -> None:
    ledger = (await site.application.records())._ledger
    said = tuple(NewEvent(type="agent.said", body={"text": f"marmalade {number}"}, actor="agent") for number in range(120))
    create = NewSession(kind="agent", name="many")
    await ledger.commit(Change(session="s_many00000001", create=create, events=said, record={}, status="idle"))
    first = await read(site, "/search?q=marmalade")
    second = await read(site, "/search?q=marmalade&more=yes")

    assert [page.count('class="card hit"') for page in (first, second)] == [25, 100]
    assert "more=yes" in first
    assert "More words find fewer" in second


@proves("web.search")
async def test_a_hit_says_in_words_what_happened_where_marks_the_words_and_leads_to_the_event(site: Site) -> None:
    ledger = (await site.application.records())._ledger
    said = tuple(
        NewEvent(type="agent.said", body={"text": text}, actor="agent") for text in ("Hello.", "Grüße: <b>Marmalade</b>!")
    )
    create = NewSession(kind="agent", name="cook")
    await ledger.commit(Change(session="s_cook00000001", create=create, events=said, record={}, status="idle"))
    page = await read(site, "/search?q=marm*+grusse")

    assert '<a href="/sessions/s_cook00000001/events/2">agent said</a>' in page
    assert "event 2 of cook" in page
    assert "<mark>Grüße</mark>: &lt;b&gt;<mark>Marmalade</mark>&lt;/b&gt;!" in page


@proves("web.search-parts")
async def test_search_finds_open_questions_and_workflows_and_only_one_session(site: Site) -> None:
    colour, other = ask("q", "question", "Which colour has the marmalade?"), ask("o", "question", "Which port?")
    await open_session(site, "one", colour, other, said="I like marmalade.")
    await open_session(site, "two", said="I like marmalade too.")
    everything, questions = await read(site, "/search?q=marmalade"), await read(site, "/search?q=marmalade&kind=question")
    one = await read(site, "/search?q=marmalade&session=two")
    workflows = await read(site, "/search?q=hello&kind=library")

    assert everything.count('class="card hit"') == 3
    assert f'<a href="/inbox/{colour.id}">Question that waits</a>' in questions
    assert questions.count('class="card hit"') == 1
    assert one.count('class="card hit"') == 1
    assert "of two" in one
    assert '<a href="/workflows/hello">workflow hello</a>' in workflows


@proves("web.search")
@pytest.mark.parametrize("text", ["*", '""', "-", "a " * 40, "\x00", "🙂"])
async def test_a_query_that_cannot_be_read_keeps_its_form_and_says_why(site: Site, text: str) -> None:
    async with site.visit() as client:
        page = await client.get("/search", params={"q": text})

    assert page.status_code in (200, 400)
    assert 'role="search"' in page.text
    assert ('role="alert"' in page.text) == (page.status_code == 400)


@proves("web.health")
async def test_health_says_which_version_and_database_this_server_has(site: Site, agent: WaitingAgent) -> None:
    page = await read(site, "/health-check")

    assert __version__ in page
    assert str(site.application.settings.home.path) in page
    assert re.search(r"<dt>Database</dt><dd>SQLite, [0-9.]+ MiB, [0-9]+ events</dd>", page)
