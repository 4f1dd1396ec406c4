"""Search over what was recorded, what waits, and the library; every hit says what matched, where, and leads there.

The ledger finds events and documents. Questions that wait and workflows are few: they are compared word by word here, up to a
bound, because the events of a question hold only the digest of its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from fidelio.app.records import Records
from fidelio.errors import BadQuery, SessionNotFound
from fidelio.ledger.model import FieldMatch, Hit, Query, Session
from fidelio.surfaces.timeline import describe_event
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Result
from fidelio.surfaces.web.questions import KINDS as REQUEST_KINDS
from fidelio.surfaces.web.rendering import contains_words
from fidelio.surfaces.web.sessions import KINDS

# Hits of a page of search, and the most that can be asked for.
HITS, MOST_HITS = 25, 100
# Questions that are compared, and that are shown.
MOST_COMPARED, MOST_OTHERS = 500, 10
AREAS = (
    ("", "everything"),
    ("workflow", "runs of workflows"),
    ("agent", "agents"),
    ("runtime", "runtime agents"),
    ("document", "documents"),
    ("question", "open questions"),
    ("library", "workflows"),
)
_TERM = re.compile(r'"([^"]*)"|(\S+)')


class HitView(msgspec.Struct, frozen=True):
    """A hit as the page shows it: what it is, where it is, when, and which words of which field matched."""

    link: str
    what: str
    where: str
    time: int | None
    matches: tuple[FieldMatch, ...]


async def _search(request: PageRequest) -> Result:
    """The best hits; `more` shows as many as there may be. A query that cannot be read is said above its form."""
    text, area, session = (request.query(name).strip()[:500] for name in ("q", "kind", "session"))
    limit = MOST_HITS if request.query("more") else HITS
    values = {"text": text, "kind": area, "session": session, "areas": AREAS, "most": MOST_HITS}
    try:
        hits = await _find_recorded(request, text, area, session, limit) if text else []
    except BadQuery as error:
        problem = f"{error.sentence} {error.remedy}"
        return PageContent("search.html", {**values, "hits": [], "others": [], "more": "", "problem": problem}, 400)
    others = await _find_others(request, text, area) if text and not session else []
    query = urlencode({"q": text, "kind": area, "session": session, "more": "yes"})
    more = f"/search?{query}" if len(hits) == HITS else ""
    return PageContent("search.html", {**values, "hits": hits, "others": others, "more": more, "problem": ""})


async def _find_recorded(request: PageRequest, text: str, area: str, session: str, limit: int) -> list[HitView]:
    """Events and documents."""
    if area in ("question", "library"):
        return []
    records = await request.services.records()
    name = (await records.find(session)).id if session else None
    query = Query(text=text, limit=limit, kind=KINDS.get(area), session=name)
    found = await records.search(replace(query, source="document") if area == "document" else query)
    sessions = await _load_sessions(records, {hit.session for hit in found if hit.session})
    return [await _view_hit(records, hit, sessions.get(hit.session or "")) for hit in found]


async def _load_sessions(records: Records, names: Iterable[str]) -> dict[str, Session]:
    found: dict[str, Session] = {}
    for name in names:
        # Deleted after it was found.
        try:
            found[name] = await records.find(name)
        except SessionNotFound:
            continue
    return found


async def _view_hit(records: Records, hit: Hit, session: Session | None) -> HitView:
    name = hit.session if session is None else session.name or session.record.get("workflow") or session.id
    if hit.seq is None:
        return HitView(f"/sessions/{hit.session}" if hit.session else "", f"{hit.path}", f"{name}", hit.time, hit.matches)
    events = await records.events(hit.session, after=hit.seq - 1, limit=1)
    what = f"{events[0].actor} {describe_event(events[0]).what}" if events else hit.type
    return HitView(f"/sessions/{hit.session}/events/{hit.seq}", what, f"event {hit.seq} of {name}", hit.time, hit.matches)


async def _find_others(request: PageRequest, text: str, area: str) -> list[HitView]:
    """Open questions and workflows that contain all words."""
    terms = tuple(quoted or word for quoted, word in _TERM.findall(text))
    questions = await _find_questions(request, terms) if area in ("", "question") else []
    return [*questions, *(await _find_workflows(request, terms) if area in ("", "library") else [])]


async def _find_questions(request: PageRequest, terms: tuple[str, ...]) -> list[HitView]:
    inbox, found = await request.services.inbox(), list[HitView]()
    for each in (await inbox.list_requests(limit=MOST_COMPARED)).items:
        # A row that differs from its event shows none of its texts.
        if contains_words(each.question, terms) and not await inbox.find_mismatch(each):
            matches = (FieldMatch("question", terms, each.question[:500]),)
            kind = REQUEST_KINDS.get(each.kind, each.kind)
            found.append(HitView(f"/inbox/{each.id}", f"{kind} that waits", each.session, each.opened_at, matches))
        if len(found) == MOST_OTHERS:
            break
    return found


async def _find_workflows(request: PageRequest, terms: tuple[str, ...]) -> list[HitView]:
    library, found = await request.services.application.library(), list[HitView]()
    for entry in library.list():
        about = " · ".join((entry.title, entry.description, *entry.tags))
        if contains_words(f"{entry.id} {about}", terms):
            matches = (FieldMatch("definition", terms, about),)
            found.append(HitView(f"/workflows/{entry.id}", f"workflow {entry.id}", f"version {entry.version}", None, matches))
    return found[:MOST_OTHERS]


ROUTES = (PageRoute(path="/search", show=_search),)
