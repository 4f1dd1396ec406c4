"""Pages of sessions: what runs and ran; of each where it is, what waits, what happened and what its chain proves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from fidelio.app.listing import load_whole_body
from fidelio.engine.record import BY_ANSWER, BY_CHILD, BY_DEFINITION
from fidelio.errors import ChainBroken, FidelioError, RequestNotFound
from fidelio.ledger.model import Event, Session, SessionKind
from fidelio.runtime.reading import load_body
from fidelio.runtime.service import RuntimeContext
from fidelio.surfaces.event_words import describe_usage
from fidelio.surfaces.timeline import describe_event, fold_minor, list_entries
from fidelio.surfaces.views.agents import run_json
from fidelio.surfaces.web.charts import Plot, draw_usage, list_samples
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Result
from fidelio.surfaces.web.questions import RequestView, view_request
from fidelio.surfaces.web.runs import RunPage, load_run_page
from fidelio.surfaces.web.session_views import SessionView, arrange_tree
from fidelio.surfaces.web.share import share_session
from fidelio.surfaces.web.work import RuntimeFacts, load_runtime_facts

PAGE, NEWEST = 50, 60
KINDS: Mapping[str, SessionKind] = {"workflow": "workflow", "agent": "agent", "runtime": "runtime"}
# Events in which usage and answers are looked for, questions of a session that are read, and how many of them are shown.
USAGE_EVENTS, ANSWER_EVENTS, MOST_QUESTIONS, ANSWERED = 2_000, 1_000, 50, 10
USAGE_TYPES = ("run.used", "span.model_request_end")
# Characters of a text on the page of its event.
MOST_TEXT = 200_000
# What an action has done, for the person who did it.
NOTICES = {
    "started": "It has started. What it does appears below.",
    "sent": "Your message was sent.",
    "resumed": "It goes on with your message.",
    "continued": "Its agents go on.",
    "stopped": "It was stopped.",
    "interrupted": "It was told to stop its turn.",
    "ended": "It was ended.",
    "deleted": "The session was deleted. Its chain of events stays and still verifies.",
    "kept": "The session was deleted. Its worktree holds changes that nobody has merged, so it stays.",
}


async def _list_sessions(request: PageRequest) -> Result:
    records, kind = await request.services.records(), KINDS.get(request.query("kind"))
    page = await records.sessions(kind=kind, cursor=request.query("after") or None, limit=PAGE, stores=False)
    values = {"views": arrange_tree(page.items), "next": page.next, "kind": request.query("kind"), "kinds": tuple(KINDS)}
    return PageContent("sessions.html", {**values, "notice": NOTICES.get(request.query("done"), "")})


async def _draw_usage(request: PageRequest, session: Session) -> tuple[Plot, ...]:
    """The usage of an agent over time."""
    if session.kind == "workflow":
        return ()
    records = await request.services.records()
    first = max(0, session.last_seq - USAGE_EVENTS)
    return draw_usage(list_samples(await records.events(session.id, after=first, types=USAGE_TYPES)))


async def _show_session(request: PageRequest) -> Result:
    records = await request.services.records()
    session = await records.find(request.path("session"))
    before = _read_number(request.query("before"))
    events = await _load_events(request, session, before)
    children = await records.children(session.id)
    run = await load_run_page(request, session, events, children.items) if session.kind == "workflow" else RunPage()
    values: dict[str, Any] = {
        "view": SessionView(session),
        "notice": NOTICES.get(request.query("done"), ""),
        "done": await _load_answered(request, session),
        "run": run,
        "entries": fold_minor(list_entries(events)),
        "earlier": events[0].seq if events and events[0].seq > 1 else 0,
        "is_newest": not before,
        "questions": await _load_questions(request, session),
        "variables": _list_variables(session, run.defaults),
        "usage": await _draw_usage(request, session),
        "work": await load_runtime_facts(request, session) if session.kind == "runtime" else RuntimeFacts(),
        "facts": await _load_facts(request, session),
        "children": [SessionView(child) for child in children.items],
        "has_more_children": children.next is not None,
    }
    return PageContent("session.html", values)


async def _show_event(request: PageRequest) -> Result:
    records = await request.services.records()
    session, seq = await records.find(request.path("session")), _read_number(request.path("seq"))
    events = await records.events(session.id, after=max(0, seq - 1), limit=1)
    event = next((event for event in events if event.seq == seq), None)
    values: dict[str, Any] = {"view": SessionView(session), "event": event, "entry": None, "body": {}, "texts": []}
    if event is None:
        return PageContent("event.html", values, HTTPStatus.NOT_FOUND)
    body = await load_whole_body(request.services.application, session, event)
    texts = [(name, value[:MOST_TEXT]) for name, value in body.items() if isinstance(value, str) and _is_text(value)]
    rest = {name: value for name, value in body.items() if name not in dict(texts)}
    return PageContent("event.html", {**values, "entry": describe_event(event), "body": rest, "texts": texts})


def _is_text(value: str) -> bool:
    """Whether a value of a body is for reading, and not a name or a number."""
    return len(value) > 80 or "\n" in value


async def _show_proof(request: PageRequest) -> Result:
    """Verify the chain of a session now, and say what that proves."""
    records = await request.services.records()
    session = await records.find(request.path("session"))
    try:
        verdict, broken = await records.verify(session.id), None
    except ChainBroken as error:
        verdict, broken = None, error
    return PageContent("proof.html", {"view": SessionView(session), "verdict": verdict, "broken": broken})


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


async def _load_answered(request: PageRequest, session: Session) -> RequestView | None:
    """The question of this session that the person has just answered here."""
    with suppress(RequestNotFound):
        found = await (await request.services.inbox()).find(request.query("answered"))
        return await view_request(request, found) if found.session == session.id else None
    return None


class Questions(msgspec.Struct, frozen=True):
    """The oldest questions of a session that wait, and the newest that were answered or closed otherwise.

    `has_more_waiting` and `has_more_closed`: the inbox shows the others.
    """

    waiting: Sequence[RequestView]
    closed: Sequence[RequestView]
    has_more_waiting: bool
    has_more_closed: bool


async def _load_questions(request: PageRequest, session: Session) -> Questions:
    inbox = await request.services.inbox()
    page = await inbox.list_requests(session=session.id, state=None, limit=MOST_QUESTIONS)
    closed = [each for each in page.items if each.state != "open"]
    waiting, has_more = [each for each in page.items if each.state == "open"], False
    if page.next is not None:
        open_page = await inbox.list_requests(session=session.id, limit=ANSWERED)
        waiting, has_more = list(open_page.items), open_page.next is not None
        # The list of requests begins with the oldest, so the newest answers are found by their events.
        closed = [await inbox.find(name) for name in await _list_answered(request, session)] or closed
    return Questions(
        [await view_request(request, each) for each in waiting],
        [await view_request(request, each) for each in reversed(closed[-ANSWERED:])],
        has_more,
        page.next is not None or len(closed) > ANSWERED,
    )


async def _list_answered(request: PageRequest, session: Session) -> list[str]:
    """The ids of the requests that were answered last."""
    records = await request.services.records()
    first = max(0, session.last_seq - ANSWER_EVENTS)
    events = await records.events(session.id, after=first, types=("request.answered",), limit=ANSWER_EVENTS)
    return [str(event.body["request"]) for event in events if "request" in event.body][-ANSWERED:]


async def _load_facts(request: PageRequest, session: Session) -> list[tuple[str, str]]:
    """The numbers of a session; none if its agent or its record cannot be read, which must not hide the rest of the page."""
    with suppress(FidelioError):
        return await _list_facts(request, session)
    return []


async def _list_facts(request: PageRequest, session: Session) -> list[tuple[str, str]]:
    """State, usage and cost of a session of an agent."""
    if session.kind == "runtime" and session.record.get("agent_version"):
        described = await (await request.services.application.runtime()).describe(session.id)
        usage, requests = described["usage"], described["usage"].get("requests", 0)
        return _without_empty(
            ("Model", described["model"]),
            (
                "Used",
                f"{usage['tokens']:,} tokens in {requests} {'request' if requests == 1 else 'requests'}",
            ),
            ("Cost", f"${described['costUsd']:.4f}" if described["costUsd"] else ""),
            ("Wakes", str(described["wakes"])),
        )
    if session.kind == "agent":
        service = await request.services.application.agents(host=False)
        found = await service.find(session.name or "", session.record.get("project"))
        run, record = run_json(found.run), session.record
        return _without_empty(
            ("Blueprint", record.get("blueprint", "")),
            ("Executor", record.get("executor", "")),
            ("Model", record.get("model", "")),
            ("Branch", record.get("branch", "")),
            ("Runs", f"{found.run.number}, the last {run['state']}"),
            ("Why", run["detail"] or run["reason"] or ""),
            ("Used", describe_usage(run["usage"]) if run["usage"] else ""),
        )
    return []


def _without_empty(*facts: tuple[str, str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in facts if value]


def _list_variables(session: Session, defaults: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    """Variables with who set them, and those that have only a default."""
    record = session.record
    authors, values = record.get("set_by") or {}, record.get("variables") or {}
    variables = [(name, value, describe_author(str(authors.get(name, "")))) for name, value in values.items()]
    unset = [(name, value, "the default, nobody has set it") for name, value in defaults.items() if name not in values]
    return sorted((*variables, *unset), key=lambda found: found[0])


def describe_author(author: str) -> str:
    """Who set a variable, in words: an agent, an answer, another session, or the definition."""
    name = author.partition(":")[2]
    if author.startswith(BY_ANSWER):
        # `checkpoint:greet/choose-tone/warm`
        *_, checkpoint, option = ["", "", *name.split("/")]
        return f"by the answer {option} at {checkpoint}" if checkpoint else f"by an answer at {option}"
    if author.startswith(BY_CHILD):
        return f"by the session {name}"
    if author.startswith(BY_DEFINITION):
        return f"by the definition, at {name}"
    return f"by {name or author}" if author else ""


def _read_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


_SESSION = "/sessions/{session}"
ROUTES = (
    PageRoute(path="/sessions", show=_list_sessions),
    PageRoute(path=_SESSION, show=_show_session),
    PageRoute(path=f"{_SESSION}/proof", show=_show_proof),
    PageRoute(path=f"{_SESSION}/file", show=_share),
    PageRoute(path=f"{_SESSION}/events/{{seq}}", show=_show_event),
)
