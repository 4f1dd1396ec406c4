"""The inbox: what waits for a person, filtered and in pages, and the forms that answer them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import msgspec

from fidelio.app.listing import is_of_project, read_accepted
from fidelio.errors import FidelioError, PersonNeeded, RequestClosed, UsageProblem
from fidelio.inbox import APPROVAL
from fidelio.ledger.model import Request, RequestState
from fidelio.surfaces.web.access import choose_target
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Redirect, Result
from fidelio.surfaces.web.passkeys import read_signature
from fidelio.surfaces.web.questions import KINDS, PERMISSION, RequestView, view_request

PAGE = 50
# Of more questions than these, all but the first are folded to a line.
MOST_UNFOLDED = 10
# The options that allow and deny, of every kind that can be answered together with others.
_DECISIONS = {"allow": ("allow",), "deny": ("deny", "refuse")}


class Filter(msgspec.Struct, frozen=True):
    """Which requests a page of the inbox shows. `session` is an id or a name, `project` a directory or its last part."""

    state: RequestState | None
    kind: str
    project: str
    session: str

    def link(self, **changes: str) -> str:
        """The address of the inbox with this filter and these changes."""
        state = "all" if self.state is None else ""
        values = {"state": state, "kind": self.kind, "project": self.project, "session": self.session, **changes}
        query = urlencode({name: value for name, value in values.items() if value})
        return f"/inbox?{query}" if query else "/inbox"


def _read_filter(request: PageRequest) -> Filter:
    state: RequestState | None = None if request.query("state") == "all" else "open"
    return Filter(state, request.query("kind"), request.query("project").strip(), request.query("session").strip())


async def _show_inbox(request: PageRequest) -> Result:
    wanted, answered = _read_filter(request), request.query("answered")
    views, cursor = await _load_views(request, wanted)
    projects = sorted(
        {str(view.session.record["project"]) for view in views if view.session and view.session.record.get("project")}
    )
    values: dict[str, Any] = {
        "views": views,
        "next": wanted.link(after=cursor) if cursor else "",
        "filter": wanted,
        "kinds": KINDS,
        "projects": projects,
        "done": await inbox_request(request, answered) if answered else None,
        "can_pick": sum(view.can_be_picked for view in views) > 1,
        "is_compact": len(views) > MOST_UNFOLDED,
    }
    return PageContent("inbox.html", values)


async def _load_views(request: PageRequest, wanted: Filter) -> tuple[list[RequestView], str | None]:
    """The requests of a page, and the cursor of the next."""
    inbox, session = await request.services.inbox(), await _resolve_session(request, wanted.session)
    page = await read_accepted(
        partial(inbox.list_requests, session=session, state=wanted.state),
        partial(_matches, request, wanted),
        cursor=request.query("after") or None,
        limit=PAGE,
    )
    return [await view_request(request, found) for found in page.items], page.next


async def _resolve_session(request: PageRequest, name: str) -> str | None:
    """The id of a session; an unknown name is an error, because an empty list would hide that it is misspelt."""
    return (await (await request.services.records()).find(name)).id if name else None


async def _matches(request: PageRequest, wanted: Filter, found: Request) -> bool:
    if wanted.kind and found.kind != wanted.kind:
        return False
    return not wanted.project or await is_of_project(await request.services.records(), found, wanted.project)


async def inbox_request(request: PageRequest, name: str) -> RequestView:
    """The request with this id. Raises `RequestNotFound`."""
    return await view_request(request, await (await request.services.inbox()).find(name))


async def _show_request(request: PageRequest) -> Result:
    return await _show_question(request)


async def _show_question(
    request: PageRequest, *, text: str = "", refusal: FidelioError | None = None, status: int = HTTPStatus.OK
) -> PageContent:
    """The page of a question. `text`: what was sent with an answer that was not taken; `refusal` says why."""
    view = await inbox_request(request, request.path("request"))
    values = {"view": view, "text": text, "refusal": refusal, "too_late": status == HTTPStatus.CONFLICT}
    return PageContent("request.html", values, status)


async def _answer(request: PageRequest) -> Result:
    """Answer a request. If somebody else was faster, show who answered, and how."""
    name, is_signed = request.path("request"), _read_proof(request) is not None
    person = await request.require_person(is_signed=is_signed)
    try:
        await _answer_request(request, name, request.fields.get("option", ""), person)
    except PersonNeeded as error:
        return await _show_question(request, text=_read_text(request), refusal=error, status=HTTPStatus.FORBIDDEN)
    except RequestClosed:
        return await _show_question(request, text=_read_text(request), status=HTTPStatus.CONFLICT)
    return Redirect(_return_after(request.fields.get("back", ""), name))


def _return_after(back: str, name: str) -> str:
    """The page that the answered question was on: the inbox with its filter, or a session. Anything else leads to the inbox."""
    target = choose_target(back)
    target = target if target.startswith(("/inbox?", "/sessions/")) else "/inbox"
    return f"{target}{'&' if '?' in target else '?'}answered={name}"


async def _answer_request(request: PageRequest, name: str, option: str, person: str) -> None:
    text = _read_text(request)
    inbox, is_seen = await request.services.inbox(), await request.is_seen()
    done = await inbox.answer(name, option, text=text, by=person, channel="web", proof=_read_proof(request), is_seen=is_seen)
    if done.request.detail.get("job"):
        await request.services.application.start_runtime_worker()


def _read_text(request: PageRequest) -> str:
    return request.fields.get("text", "").strip()


def _read_proof(request: PageRequest) -> dict[str, Any] | None:
    """The signature of the form; None if it has none."""
    return msgspec.structs.asdict(read_signature(request)) if request.fields.get("signature") else None


class AnswerResult(msgspec.Struct, frozen=True):
    """What became of an answer that was sent together with others."""

    view: RequestView
    error: FidelioError | None = None


async def _answer_several(request: PageRequest) -> Result:
    """Allow or deny the picked permissions, each by itself: what is too late does not stop the others."""
    person, decision = await request.require_person(), request.fields.get("decision", "")
    picked = [name.removeprefix("pick-") for name in request.fields if name.startswith("pick-")]
    if decision not in _DECISIONS or not picked:
        raise UsageProblem("Nothing was chosen.", remedy="Mark permissions in the inbox, then allow or deny them.")
    inbox = await request.services.inbox()
    # Before any is answered: an unknown one would end the page that says what became of the others.
    found = [await inbox.find(name) for name in picked[: PAGE * 2]]
    results = [await _answer_picked(request, each, _DECISIONS[decision], person) for each in found]
    return PageContent("several.html", {"results": results, "decision": decision})


async def _answer_picked(request: PageRequest, found: Request, options: Sequence[str], person: str) -> AnswerResult:
    name = found.id
    option = next((item["id"] for item in found.options if item["id"] in options), "")
    try:
        if found.kind not in (APPROVAL, PERMISSION) or not option:
            raise UsageProblem(f"Request {name} cannot be answered together with others.", remedy="Answer it by itself.")
        await _answer_request(request, name, option, person)
    except FidelioError as error:
        return AnswerResult(await inbox_request(request, name), error)
    return AnswerResult(await inbox_request(request, name))


ROUTES = (
    PageRoute(path="/inbox", show=_show_inbox, change=_answer_several),
    PageRoute(path="/inbox/{request}", show=_show_request, change=_answer),
)
