"""What agents do over time: the tree, lanes, usage, folded calls, changed files, memory and outcomes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.clock import now_ms
from fidelio.ledger.long_text import store_text
from fidelio.ledger.model import Change, Event, NewEvent, NewSession, Session
from fidelio.runtime.agents.files import DEFAULT, resolve_agent
from fidelio.runtime.bootstrap.files import render_text
from fidelio.runtime.resources.memory_file import MEMORY_FILES, write_section
from fidelio.runtime.resources.versions import Substrate
from fidelio.runtime.service import NewAgentSession
from fidelio.runtime.wakes.ending import queue_wakes
from fidelio.runtime.wakes.record import QueuedWake
from fidelio.surfaces.timeline import describe_event, fold_minor, list_entries
from fidelio.surfaces.web.work import split_files
from tests.support import proves
from tests.surfaces.web.conftest import Site


async def put(site: Site, session: str, *events: NewEvent, parent: str | None = None, **record: Any) -> Session:
    ledger = (await site.application.records())._ledger
    create = NewSession(kind="agent", name=session[2:], parent=parent)
    await ledger.commit(Change(session=session, create=create, events=events, record=record, status="running"))
    return await ledger.session(session)


async def read(site: Site, path: str) -> str:
    async with site.visit() as client:
        page = await client.get(path)
    assert page.status_code == 200, page.text
    return " ".join(page.text.split())


def said(text: str) -> NewEvent:
    return NewEvent(type="agent.said", body={"text": text}, actor="agent")


async def load_events(site: Site, session: str) -> tuple[Event, ...]:
    return await (await site.application.records()).events(session)


@proves("web.tree")
async def test_sessions_are_listed_below_the_session_that_started_them(site: Site) -> None:
    await put(site, "s_parent000001", said("x"))
    await put(site, "s_child0000001", said("x"), parent="s_parent000001")
    await put(site, "s_grandchild01", said("x"), parent="s_child0000001")
    await put(site, "s_other0000001", said("x"))

    page = await read(site, "/sessions")

    rows = [
        page.index(f'id="{name}" class="depth-{depth}"')
        for name, depth in (("s_other0000001", 0), ("s_parent000001", 0), ("s_child0000001", 1), ("s_grandchild01", 2))
    ]
    assert rows == sorted(rows)


@proves("web.transcript")
async def test_the_result_of_a_tool_is_folded_under_its_call(site: Site) -> None:
    session = await put(
        site,
        "s_calls0000001",
        NewEvent(type="agent.called", body={"call": "c1", "name": "Bash", "arguments": "make"}, actor="agent"),
        said("Meanwhile."),
        NewEvent(type="agent.called", body={"call": "c2", "name": "Read", "arguments": "x"}, actor="agent"),
        NewEvent(type="agent.returned", body={"call": "c1", "ok": False, "text": "No rule to make target"}, actor="agent"),
        NewEvent(type="agent.returned", body={"call": "c0", "ok": True, "text": "of an earlier page"}, actor="agent"),
    )
    entries = list_entries(await load_events(site, session.id))
    page = await read(site, f"/sessions/{session.id}")

    assert [(entry.seq, entry.result.seq if entry.result else None) for entry in entries] == [
        (1, 4),
        (2, None),
        (3, None),
        (5, None),
    ]
    assert entries[0].is_error
    call = page.partition('<details id="d1">')[2].partition("</details>")[0]
    assert "called Bash" in call
    assert "No rule to make target" in call
    assert "no result yet" in page.partition('<details id="d3">')[2].partition("</details>")[0]


@proves("web.transcript")
async def test_a_long_text_is_shown_from_its_beginning_with_a_link_to_all_of_it(site: Site) -> None:
    stored = store_text("word " * 2_000 + "the end")
    body = {"call": "c1", "tool": "Read", "arguments": store_text('{"file_path": "a.txt", "limit": 2}').body}
    ledger = (await site.application.records())._ledger
    session = await put(site, "s_words0000001", NewEvent(type="agent.called", body=body, actor="agent"))
    event = NewEvent(type="agent.said", body={"said": stored.body}, actor="agent", blobs=stored.digests)
    await ledger.commit(Change(session=session.id, events=(event,), blobs=stored.blobs))
    page, whole = await read(site, f"/sessions/{session.id}"), await read(site, f"/sessions/{session.id}/events/2")

    assert "file_path: a.txt limit: 2" in page
    assert "word word" in page
    assert "the end" not in page
    assert f'<a href="/sessions/{session.id}/events/2">Read all of it</a>' in page
    assert "the end" in whole


@proves("web.transcript")
async def test_minor_events_in_a_row_are_one_line_until_it_is_opened(site: Site) -> None:
    minor = (NewEvent(type="span.started", body={}, actor="agent"), NewEvent(type="run.used", body={}, actor="agent"))
    session = await put(site, "s_minor0000001", said("before"), *minor, said("after"))
    rows = fold_minor(list_entries(await load_events(site, session.id)))
    page = await read(site, f"/sessions/{session.id}")

    assert [row.seq for row in rows] == [4, 2, 1]
    folded = page.partition('<details id="m2">')[2].partition("</details>")[0]
    assert "2 smaller events" in folded
    assert 'id="e2"' in folded
    assert 'id="e3"' in folded


def git(directory: Path, *arguments: str) -> str:
    command = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(directory), *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@proves("web.changes")
async def test_the_changes_in_a_worktree_are_shown_file_by_file(site: Site, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    git(tree, "init", "-q")
    (tree / "old.txt").write_text("one\ntwo\n")
    git(tree, "add", "."), git(tree, "commit", "-qm", "first")
    base = git(tree, "rev-parse", "HEAD")
    (tree / "old.txt").write_text("one\n<b>three</b>\n")
    (tree / "new.txt").write_text("entirely new\n")
    session = await put(site, "s_tree00000001", said("x"), worktree=str(tree), branch="b", base=base)
    page = await read(site, f"/sessions/{session.id}/changes")
    shown = await read(site, f"/sessions/{session.id}")

    assert "2 files" in page
    assert "2 lines added" in page
    assert "1 removed" in page
    assert '<span class="good">+1</span> <span class="bad">\N{MINUS SIGN}1</span>' in page
    assert '<span class="badge">new</span>' in page
    assert "/dev/null" not in page
    assert "<code>old.txt</code>" in page
    assert "<code>new.txt</code>" in page
    assert "+&lt;b&gt;three&lt;/b&gt;" in page
    assert "+entirely new" in page
    assert f"/sessions/{session.id}/changes" in shown
    assert git(tree, "status", "--porcelain", "--untracked-files=all").splitlines() == ["M old.txt", "?? new.txt"]


@proves("web.changes")
async def test_a_session_without_a_checkout_of_its_own_says_so(site: Site) -> None:
    session = await put(site, "s_plain0000001", said("x"))
    async with site.visit() as client:
        page = await client.get(f"/sessions/{session.id}/changes")

    assert (page.status_code, "has no worktree" in page.text) == (400, True)


@proves("web.changes")
def test_a_line_of_a_file_that_looks_like_a_header_begins_no_file() -> None:
    lines = ["diff --git a/x b/x", "--- a/x", "+++ b/x", "@@ -1,2 +1,2 @@", "--- a/secret", "+++ b/secret", " same"]

    assert [file.name for file in split_files(lines)] == ["x"]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from(["-- a", "++ b", "@@ -1 +1 @@", "x"]), min_size=1)),
        min_size=1,
    )
)
@proves("web.changes")
def test_a_diff_has_as_many_parts_as_files(files: Sequence[tuple[str, Sequence[str]]]) -> None:
    lines = list[str]()
    for name, added in files:
        lines += [f"--- a/{name}", f"+++ b/{name}", f"@@ -0,0 +1,{len(added)} @@", *(f"+{line}" for line in added)]

    found = split_files(lines)

    assert [file.name for file in found] == [name for name, _ in files]
    assert [line for file in found for line in file.lines] == lines


@proves("web.work")
async def test_a_runtime_agent_shows_outcomes_with_checks_and_an_empty_memory(site: Site, tmp_path: Path) -> None:
    service = await site.application.runtime()
    agent = await resolve_agent(service.context, str(tmp_path), DEFAULT)
    session = await service.start_session(NewAgentSession(project=str(tmp_path), agent=agent.name, version=agent.version))
    outcome: Mapping[str, Any] = {
        "type": "user.define_outcome",
        "description": "The shop opens",
        "rubric": {"type": "text", "content": "The door is open."},
    }
    await service.send(session, [outcome], by="person:me", channel="cli")
    page = await read(site, f"/sessions/{session}")
    memory = await read(site, f"/sessions/{session}/memory")

    assert "The shop opens" in page
    assert "not evaluated" in page
    assert "No memory yet" in memory


@proves("web.work")
async def test_what_wakes_an_agent_is_told_with_times_for_people(site: Site, tmp_path: Path) -> None:
    service = await site.application.runtime()
    agent = await resolve_agent(service.context, str(tmp_path), DEFAULT)
    session = await service.start_session(NewAgentSession(project=str(tmp_path), agent=agent.name, version=agent.version))
    await service.set_schedule(session, "nightly", 90_000, "Look whether the tests pass.", by="person:me")
    page = await read(site, f"/sessions/{session}")

    wakes = page.partition("What wakes it")[2].partition("</section>")[0]
    assert "<strong>nightly</strong> every 1 day 1 h, next <time" in wakes
    assert "Look whether the tests pass." in wakes
    assert "90000" not in wakes


@proves("web.work")
async def test_the_memory_of_an_agent_shows_what_each_version_changed(site: Site, tmp_path: Path) -> None:
    service = await site.application.runtime()
    agent = await resolve_agent(service.context, str(tmp_path), DEFAULT)
    session = await service.start_session(NewAgentSession(project=str(tmp_path), agent=agent.name, version=agent.version))
    substrate = await Substrate.open(service.context, str(tmp_path), agent.name)
    for notes in ("Use tabs.", "Use <i>spaces</i>."):
        text = write_section(render_text(MEMORY_FILES[0], agent.name), "notes", notes)
        await substrate.store_file(MEMORY_FILES[0], text.encode(), origin="person", by="person:me")
    page = await read(site, f"/sessions/{session}/memory")

    assert "No newline" not in page
    assert "The notes are the same as before" not in page
    newest, _, oldest = page.partition("</details>")
    assert "-Use tabs." in newest
    assert "+Use &lt;i&gt;spaces&lt;/i&gt;." in newest
    assert "+Use tabs." in oldest


@proves("web.work")
async def test_the_first_version_of_a_memory_says_that_the_agent_began_without_notes(site: Site, tmp_path: Path) -> None:
    service = await site.application.runtime()
    agent = await resolve_agent(service.context, str(tmp_path), DEFAULT)
    session = await service.start_session(NewAgentSession(project=str(tmp_path), agent=agent.name, version=agent.version))
    substrate = await Substrate.open(service.context, str(tmp_path), agent.name)
    text = render_text(MEMORY_FILES[0], agent.name)
    await substrate.store_file(MEMORY_FILES[0], text.encode(), origin="seed", by="fidelio")
    page = await read(site, f"/sessions/{session}/memory")

    assert "<strong>No notes</strong>" in page
    assert "The agent began without notes." in page
    assert "the same as before" not in page


@proves("web.work")
async def test_a_wake_that_is_queued_once_is_told_with_its_note(site: Site, tmp_path: Path) -> None:
    service = await site.application.runtime()
    agent = await resolve_agent(service.context, str(tmp_path), DEFAULT)
    session = await service.start_session(NewAgentSession(project=str(tmp_path), agent=agent.name, version=agent.version))
    wake = QueuedWake("q1", now_ms() + 3_600_000, "agent_request", "Look again.")
    await service.context.ledger.commit(Change(session=session, events=queue_wakes([wake], "w1")))
    page = await read(site, f"/sessions/{session}")

    wakes = page.partition("What wakes it")[2].partition("</section>")[0]
    assert "in 59 minutes" in wakes
    assert "agent request" in wakes
    assert "Look again." in wakes


@proves("web.transcript")
async def test_usage_that_is_folded_is_told_once_and_the_report_of_a_worker_is_folded(site: Site) -> None:
    def used(tokens: int) -> NewEvent:
        return NewEvent(type="run.used", body={"usage": {"input_tokens": tokens, "output_tokens": 8}}, actor="agent")

    report = NewEvent(type="run.succeeded", body={"result": '{"steps": [{"step_id": "write"}]}', "ms": 3_000}, actor="agent")
    session = await put(site, "s_usage0000001", used(4_000), used(13_000), report)
    page = await read(site, f"/sessions/{session.id}")

    assert "2 smaller events: has used 13,000 tokens in, 8 out</summary>" in page
    folded = page.partition('<details id="d3">')[2].partition("</details>")[0]
    assert "succeeded after 3.0 s" in folded.partition("</summary>")[0]
    assert "step_id" in folded.partition("</summary>")[2]


@proves("web.session")
@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("greet/choose-tone#1", "answered choose-tone with a text"),
        ("s_000000000001.1/1.10", "answered with a text"),
        ("8c1f", "answered with a text"),
    ],
)
async def test_only_the_name_of_a_checkpoint_is_told_with_its_answer(site: Site, key: str, words: str) -> None:
    answered = NewEvent(type="request.answered", body={"key": key, "text": "Yes."}, actor="person:me")
    session = await put(site, "s_answer000001", answered)
    (event,) = await load_events(site, session.id)

    assert describe_event(event).what == words


@proves("web.session")
async def test_a_variable_with_an_empty_text_says_so(site: Site) -> None:
    session = await put(site, "s_empty0000001", said("x"), variables={"note": ""})

    assert '<dt>note</dt><dd><span class="muted">empty text</span>' in await read(site, f"/sessions/{session.id}")
