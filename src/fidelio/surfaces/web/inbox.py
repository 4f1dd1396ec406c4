"""The inbox: what waits for a person, with its context, and the forms that answer it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from fidelio.errors import RequestClosed, SessionNotFound
from fidelio.inbox import APPROVAL, PROVEN
from fidelio.ledger.model import Request, RequestState, Session
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Redirect, Result
from fidelio.surfaces.web.passkeys import read_signature

PAGE = 50
# How people call the kinds of requests.
KINDS: Mapping[str, str] = {
    "checkpoint": "Checkpoint",
    APPROVAL: "Permission",
    "custom_tool": "Tool result",
    "question": "Question",
}


class RequestView(msgspec.Struct, frozen=True):
    """A request as the page shows it. `mismatch`: its row differs from its event, so its texts are not shown."""

    request: Request
    session: Session | None
    mismatch: str

    @property
    def kind(self) -> str:
        return KINDS.get(self.request.kind, self.request.kind.replace("_", " ").capitalize())

    @property
    def location(self) -> tuple[str, ...]:
        """Where it came up: workflow, activity and checkpoint, or agent and project."""
        detail = self.request.detail
        if "workflow" in detail:
            iteration = (f"iteration {detail['iteration']}",) if detail.get("iteration") else ()
            return (*(str(detail.get(part, "")) for part in ("workflow", "activity", "checkpoint")), *iteration)
        record = {} if self.session is None else self.session.record
        return tuple(filter(None, (record.get("agent") or record.get("blueprint") or "", record.get("project", ""))))

    @property
    def person_only(self) -> bool:
        return self.request.kind == APPROVAL or self.request.detail.get("answered_by") in ("person", PROVEN)

    @property
    def needs_proof(self) -> bool:
        return self.request.detail.get("answered_by") == PROVEN

    @property
    def effects(self) -> Mapping[str, tuple[str, ...]]:
        """What each option does, in words, by its id."""
        return {option["id"]: tuple(describe_effect(option.get("effect") or {})) for option in self.request.options}

    @property
    def default(self) -> tuple[str, int] | None:
        """The option that counts without an answer, and from when on."""
        detail = self.request.detail
        option, after = detail.get("default_option"), detail.get("auto_advance_ms")
        return (str(option), self.request.opened_at + int(after)) if option and after else None


def describe_effect(effect: Mapping[str, Any]) -> Iterator[str]:
    """The effect of an option in words."""
    for name, value in sorted((effect.get("setVariable") or {}).items()):
        yield f"sets {name} to {msgspec.json.encode(value).decode()}"
    if target := effect.get("transitionTo"):
        yield f"goes on with {target}"
    for skipped in effect.get("skipActivities") or ():
        yield f"skips {skipped}"


async def view_request(request: PageRequest, found: Request) -> RequestView:
    session = None
    # A request without a session was not written by Fidelio; the mismatch says so.
    with suppress(SessionNotFound):
        session = await (await request.services.records()).find(found.session)
    return RequestView(found, session, await (await request.services.inbox()).find_mismatch(found))


async def _show_inbox(request: PageRequest) -> Result:
    inbox, state = await request.services.inbox(), _read_state(request)
    page = await inbox.list_requests(state=state, cursor=request.query("after") or None, limit=PAGE)
    kind = request.query("kind")
    views = [await view_request(request, found) for found in page.items if kind in ("", found.kind)]
    answered = request.query("answered")
    done = await inbox_request(request, answered) if answered else None
    values = {"views": views, "next": page.next, "state": state or "all", "kind": kind, "kinds": KINDS, "done": done}
    return PageContent("inbox.html", values)


def _read_state(request: PageRequest) -> RequestState | None:
    return None if request.query("state") == "all" else "open"


async def inbox_request(request: PageRequest, name: str) -> RequestView:
    """The request with this id. Raises `RequestNotFound`."""
    return await view_request(request, await (await request.services.inbox()).find(name))


async def _show_request(request: PageRequest) -> Result:
    return PageContent("request.html", {"view": await inbox_request(request, request.path("request"))})


async def _answer(request: PageRequest) -> Result:
    """Answer a request. If somebody else was faster, show who answered, and how."""
    person = await request.require_person()
    name, fields = request.path("request"), request.fields
    inbox = await request.services.inbox()
    try:
        text, proof = fields.get("text", "").strip(), _read_proof(request)
        done = await inbox.answer(name, fields.get("option", ""), text=text, by=person, channel="web", proof=proof)
    except RequestClosed:
        view = await inbox_request(request, name)
        return PageContent("request.html", {"view": view, "too_late": True}, 409)
    if done.request.detail.get("job"):
        await request.services.application.start_runtime_worker()
    return Redirect(f"/inbox?answered={name}")


def _read_proof(request: PageRequest) -> dict[str, Any] | None:
    """The signature of the form; None if it has none."""
    return msgspec.structs.asdict(read_signature(request)) if request.fields.get("signature") else None


ROUTES = (
    PageRoute(path="/inbox", show=_show_inbox),
    PageRoute(path="/inbox/{request}", show=_show_request, change=_answer),
)
