"""What agents do over time: the tree, lanes, usage, folded calls, changed files, memory and outcomes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fidelio.ledger.model import Change, Event, NewEvent, NewSession, Session
from fidelio.runtime.agents.files import DEFAULT, resolve_agent
from fidelio.runtime.bootstrap.files import render_text
from fidelio.runtime.resources.memory_file import MEMORY_FILES, write_section
from fidelio.runtime.resources.versions import Substrate
from fidelio.runtime.service import NewAgentSession
from fidelio.surfaces.web.charts import draw_states, draw_usage, list_samples, list_segments
from fidelio.surfaces.web.timeline import list_entries
from fidelio.surfaces.web.work import split_files
from tests.support import proves
from tests.surfaces.web.conftest import Site

MINUTE = 60_000


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


@proves("web.lanes")
async def test_the_width_of_a_lane_is_duration_and_its_class_the_state(site: Site) -> None:
    session = await put(
        site,
        "s_lane00000001",
        NewEvent(type="run.starting", body={}, time=10 * MINUTE),
        NewEvent(type="run.waiting", body={}, time=20 * MINUTE),
        NewEvent(type="run.going-on", body={}, time=50 * MINUTE),
        NewEvent(type="run.succeeded", body={}, time=60 * MINUTE),
    )
    session = msgspec.structs.replace(session, created_at=10 * MINUTE)
    segments = list_segments(session, await load_events(site, session.id), 80 * MINUTE)

    assert [(part.state, (part.end - part.start) // MINUTE) for part in segments] == [
        ("working", 10),
        ("waiting", 30),
        ("working", 10),
        ("idle", 20),
    ]
    drawn = str(draw_states([("lane", segments)]))
    assert drawn.count("<rect") == 4
    assert 'class="waiting" x="102.86" y="4" width="308.57"' in drawn
    assert "lane00000001" in await read(site, "/sessions/lanes")


@proves("web.usage")
async def test_usage_over_time_is_drawn_from_what_agents_report(site: Site) -> None:
    def used(tokens: int, time: int) -> NewEvent:
        usage = {"turns": 1, "input_tokens": tokens, "output_tokens": 0, "cost_usd": tokens / 1000}
        return NewEvent(type="run.used", body={"usage": usage}, time=time)

    session = await put(site, "s_usage0000001", used(100, MINUTE), used(400, 2 * MINUTE), used(500, 3 * MINUTE))
    samples = list_samples(await load_events(site, session.id))
    drawn = str(draw_usage(samples))

    assert [sample.tokens for sample in samples] == [100, 400, 500]
    assert '<polyline class="tokens" points="0.0,96.0 360.0,24.0 720.0,0.0"' in drawn
    assert "500 tokens and 0.5000 US dollars after 120 seconds" in drawn
    assert "Usage over time" in await read(site, f"/sessions/{session.id}")


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
async def test_the_memory_of_an_agent_shows_what_each_version_changed(site: Site, tmp_path: Path) -> None:
    service = await site.application.runtime()
    agent = await resolve_agent(service.context, str(tmp_path), DEFAULT)
    session = await service.start_session(NewAgentSession(project=str(tmp_path), agent=agent.name, version=agent.version))
    substrate = await Substrate.open(service.context, str(tmp_path), agent.name)
    for notes in ("Use tabs.", "Use <i>spaces</i>."):
        text = write_section(render_text(MEMORY_FILES[0], agent.name), "notes", notes)
        await substrate.store_file(MEMORY_FILES[0], text.encode(), origin="person", by="person:me")
    page = await read(site, f"/sessions/{session}/memory")

    newest, _, oldest = page.partition("</details>")
    assert "-Use tabs." in newest
    assert "+Use &lt;i&gt;spaces&lt;/i&gt;." in newest
    assert "+Use tabs." in oldest
