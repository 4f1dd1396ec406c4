"""Pages of sessions: what runs and ran; of each where it is, what waits, what happened and what its chain proves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from markupsafe import Markup
from msgspec.structs import replace
from starlette.responses import Response

from fidelio.clock import now_ms
from fidelio.errors import ChainBroken, FidelioError
from fidelio.ledger.model import Event, Session, SessionKind
from fidelio.runtime.reading import load_body
from fidelio.runtime.service import RuntimeContext
from fidelio.surfaces.views import run_json
from fidelio.surfaces.web.charts import STATES, draw_states, draw_usage, list_samples, list_segments
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Result
from fidelio.surfaces.web.questions import RequestView, view_request
from fidelio.surfaces.web.runs import load_run, load_workers
from fidelio.surfaces.web.share import share_session
from fidelio.surfaces.web.timeline import TimelineEntry, describe_event, list_entries
from fidelio.surfaces.web.work import RuntimeFacts, load_runtime_facts
from fidelio.surfaces.web.workflows import draw_session, find_activity

PAGE, NEWEST = 50, 60
KINDS: Mapping[str, SessionKind] = {"workflow": "workflow", "agent": "agent", "runtime": "runtime"}
# Sessions and events on the page of states over time, events in which usage is looked for, and the deepest level of the tree.
CHARTED, LANE_EVENTS, USAGE_EVENTS, DEEPEST = 40, 500, 2_000, 4
USAGE_TYPES = ("run.used", "span.model_request_end")
STORES = ("runtime-store:", "runtime-object:")


class SessionView(msgspec.Struct, frozen=True):
    """A session in a list."""

    session: Session

    @property
    def title(self) -> str:
        record = self.session.record
        words = (self.session.name, record.get("title"), record.get("workflow"), record.get("agent"), record.get("blueprint"))
        return str(next((word for word in words if word), self.session.id))

    @property
    def about(self) -> str:
        """What it works on: the workflow with its position, or the agent with its project."""
        record = self.session.record
        if self.session.kind == "workflow":
            return " · ".join(filter(None, (record.get("workflow", ""), find_activity(record))))
        return " · ".join(filter(None, (record.get("agent") or record.get("blueprint") or "", record.get("project", ""))))

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "ended", "failed")

    @property
    def takes_messages(self) -> bool:
        """Whether a person can write to the agent."""
        if self.session.kind == "runtime":
            return not self.is_over and bool(self.session.record.get("agent_version"))
        return self.session.kind == "agent"

    @property
    def has_changes(self) -> bool:
        """Whether the agent works in a checkout or a copy of its own."""
        return bool(self.session.record.get("worktree")) or self.session.record.get("mount_mode") == "copy"

    @property
    def state(self) -> str:
        """The state for the colour: working, waiting, ended, failed or idle."""
        return _STATES.get(self.session.status, "idle")


_STATES: Mapping[str, str] = {
    "active": "working",
    "running": "working",
    "starting": "working",
    "queued": "working",
    "rescheduling": "working",
    "blocked": "waiting",
    "waiting": "waiting",
    "completed": "done",
    "succeeded": "done",
    "failed": "failed",
    "lost": "failed",
    "stopped": "ended",
    "cancelled": "ended",
    "terminated": "ended",
}


async def _list_sessions(request: PageRequest) -> Result:
    records, kind = await request.services.records(), KINDS.get(request.query("kind"))
    page = await records.sessions(kind=kind, cursor=request.query("after") or None, limit=PAGE)
    return PageContent(
        "sessions.html",
        {"views": arrange_tree(page.items), "next": page.next, "kind": request.query("kind"), "kinds": tuple(KINDS)},
    )


def arrange_tree(sessions: Sequence[Session]) -> list[tuple[SessionView, int]]:
    """The sessions of a page with their depth: children below the session that started them, if it is on the same page."""
    shown = [session for session in sessions if not session.namespace.startswith(STORES)]
    known = {session.id for session in shown}
    below = defaultdict[str, list[Session]](list)
    for session in shown:
        below[session.parent if session.parent in known and session.parent != session.id else ""].append(session)
    rows = list[tuple[SessionView, int]]()
    waiting = [(session, 0) for session in reversed(below[""])]
    while waiting:
        session, depth = waiting.pop()
        rows.append((SessionView(session), min(depth, DEEPEST)))
        waiting += [(child, depth + 1) for child in reversed(below.pop(session.id, []))]
    return rows


async def _show_states(request: PageRequest) -> Result:
    """The newest sessions over time."""
    records = await request.services.records()
    rows = arrange_tree((await records.sessions(limit=CHARTED)).items)
    now, types = now_ms(), tuple(STATES)
    periods = []
    for view, _ in rows:
        session = view.session
        events = await records.events(session.id, after=max(0, session.last_seq - LANE_EVENTS), types=types, limit=LANE_EVENTS)
        periods.append((view.title, list_segments(session, events, now)))
    return PageContent("lanes.html", {"rows": rows, "lanes": draw_states(periods)})


async def _draw_usage(request: PageRequest, session: Session) -> Markup:
    """The usage of an agent over time."""
    if session.kind == "workflow":
        return Markup("")
    records = await request.services.records()
    first = max(0, session.last_seq - USAGE_EVENTS)
    return draw_usage(list_samples(await records.events(session.id, after=first, types=USAGE_TYPES)))


async def _show_session(request: PageRequest) -> Result:
    records = await request.services.records()
    session = await records.find(request.path("session"))
    before = _read_number(request.query("before"))
    events = await _load_events(request, session, before)
    children = (await records.children(session.id)).items
    values: dict[str, Any] = {
        "view": SessionView(session),
        "run": await load_run(request, session, events) if session.kind == "workflow" else None,
        "workers": await load_workers(records, children) if session.kind == "workflow" else [],
        "entries": list(reversed(list_entries(events))),
        "earlier": events[0].seq if events and events[0].seq > 1 else 0,
        "requests": await _load_requests(request, session),
        "drawing": await _draw(request, session),
        "variables": _list_variables(session),
        "usage": await _draw_usage(request, session),
        "work": await load_runtime_facts(request, session) if session.kind == "runtime" else RuntimeFacts(),
        "facts": await _load_facts(request, session),
        "children": [SessionView(child) for child in children],
    }
    return PageContent("session.html", values)


async def _show_event(request: PageRequest) -> Result:
    records = await request.services.records()
    session, seq = await records.find(request.path("session")), _read_number(request.path("seq"))
    events = await records.events(session.id, after=max(0, seq - 1), limit=1)
    found = [event for event in events if event.seq == seq]
    values = {"view": SessionView(session), "event": found[0] if found else None}
    return PageContent("event.html", {**values, "entry": describe_event(found[0]) if found else None})


async def _show_proof(request: PageRequest) -> Result:
    """Verify the chain of a session now, and say what that proves."""
    records = await request.services.records()
    session = await records.find(request.path("session"))
    try:
        verdict, broken = await records.verify(session.id), None
    except ChainBroken as error:
        verdict, broken = None, error
    return PageContent("proof.html", {"session": session, "verdict": verdict, "broken": broken})


async def _share(request: PageRequest) -> Result:
    """The session as a file that verifies by itself."""
    records = await request.services.records()
    session = await records.find(request.path("session"))
    content = await share_session(records, session)
    headers = {"Content-Disposition": f'attachment; filename="{session.id}.html"'}
    return Response(content, media_type="text/html; charset=utf-8", headers=headers)


async def _load_events(request: PageRequest, session: Session, before: int) -> tuple[Event, ...]:
    """The newest events, or those before a number."""
    records = await request.services.records()
    end = before - 1 if before else session.last_seq
    first = max(0, end - NEWEST)
    events = await records.events(session.id, after=first, limit=NEWEST)
    wanted = tuple(event for event in events if event.seq <= end)
    if session.kind != "runtime":
        return wanted
    context = (await request.services.application.runtime()).context
    # A long text is stored apart from its event.
    return tuple([await _load_texts(context, event) for event in wanted])


async def _load_texts(context: RuntimeContext, event: Event) -> Event:
    if event.raw is None:
        return event
    return replace(event, raw=msgspec.json.encode(await load_body(context, event), enc_hook=str).decode())


async def _load_requests(request: PageRequest, session: Session) -> list[RequestView]:
    inbox = await request.services.inbox()
    page = await inbox.list_requests(session=session.id, limit=20)
    return [await view_request(request, found) for found in page.items]


async def _load_facts(request: PageRequest, session: Session) -> list[tuple[str, str]]:
    """The numbers of a session; none if its agent or its record cannot be read, which must not hide the rest of the page."""
    with suppress(FidelioError):
        return await _list_facts(request, session)
    return []


async def _list_facts(request: PageRequest, session: Session) -> list[tuple[str, str]]:
    """Usage, cost and what comes next, of a session of an agent."""
    if session.kind == "runtime" and session.record.get("agent_version"):
        described = await (await request.services.application.runtime()).describe(session.id)
        usage = described["usage"]
        outcomes = ", ".join(f"{item['title']}: {item['status']}" for item in described["outcomes"])
        return _without_empty(
            ("Model", described["model"]),
            ("Tokens", f"{usage['tokens']:,} in {usage.get('requests', 0)} requests"),
            ("Cost", f"{described['costUsd']:.4f} US dollars"),
            ("Wakes", str(described["wakes"])),
            ("Next wake", described["nextWakeAt"] or ""),
            ("Outcomes", outcomes),
        )
    if session.kind == "agent":
        service = await request.services.application.agents(host=False)
        found = await service.find(session.name or "", session.record.get("project"))
        run = run_json(found.run)
        usage = run["usage"] or {}
        tokens = f"{usage.get('input_tokens', 0):,} in, {usage.get('output_tokens', 0):,} out" if usage else ""
        cost = f"{usage['cost_usd']:.4f} US dollars" if usage else ""
        return _without_empty(("State", run["state"]), ("Why", run["reason"] or ""), ("Tokens", tokens), ("Cost", cost))
    return []


def _without_empty(*facts: tuple[str, str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in facts if value]


async def _draw(request: PageRequest, session: Session) -> Markup:
    """The drawing of the workflow with the position; empty where there is none."""
    if session.kind != "workflow":
        return Markup("")
    with suppress(FidelioError):
        return draw_session(await request.services.application.library(), session.record)
    return Markup("")


def _list_variables(session: Session) -> list[tuple[str, Any, str]]:
    """Variables with who set them."""
    record = session.record
    authors = record.get("set_by") or {}
    return [(name, value, authors.get(name, "")) for name, value in sorted((record.get("variables") or {}).items())]


def _read_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


_SESSION = "/sessions/{session}"
ROUTES = (
    PageRoute(path="/sessions", show=_list_sessions),
    PageRoute(path="/sessions/lanes", show=_show_states),
    PageRoute(path=_SESSION, show=_show_session),
    PageRoute(path=f"{_SESSION}/proof", show=_show_proof),
    PageRoute(path=f"{_SESSION}/file", show=_share),
    PageRoute(path=f"{_SESSION}/events/{{seq}}", show=_show_event),
)
__all__ = ["ROUTES", "SessionView", "TimelineEntry"]
