"""An operation of the API: its method and path, what it takes, what it returns, and the function that carries it out.

Dispatch and document read the same struct, so the document cannot promise what the server does not do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta
from starlette.requests import Request

from fidelio.app.acting import PersonActions
from fidelio.app.application import Application
from fidelio.app.asking import question_url
from fidelio.app.records import Records
from fidelio.app.watching import Watcher
from fidelio.errors import FidelioError, UsageProblem
from fidelio.inbox import Inbox, require_person
from fidelio.ledger.model import Session
from fidelio.surfaces.http.limits import ProgramLimits
from fidelio.surfaces.http.plain import identify_sender

Q = TypeVar("Q")
B = TypeVar("B")
T = TypeVar("T")
MOST_ITEMS, USUAL_ITEMS = 200, 50
LONGEST_NAME = 1_000
# The channel of what arrives over the API.
CHANNEL = "api"

Limit = Annotated[int, Meta(ge=1, le=MOST_ITEMS, description="How many items a page has at most.")]
After = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, description="Where to go on: `next` of the page before.")]
Name = Annotated[str, Meta(max_length=LONGEST_NAME)]


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Paging(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of every list."""

    limit: Limit = USUAL_ITEMS
    after: After | None = None


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list. `next`: the value of `after` for the rest, null at the end. A short page may have a next page."""

    items: tuple[T, ...]
    next: str | None


class Created(msgspec.Struct, frozen=True):
    """The session that was started."""

    session: str


class HttpProblem(FidelioError):
    """A request that cannot be carried out, with its status, its own code, headers, and further members of the problem."""

    code = "api.refused"

    def __init__(
        self,
        status: int,
        problem: str,
        sentence: str,
        remedy: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(sentence, remedy=remedy)
        self.status, self.problem, self.headers, self.more = status, problem, headers or {}, more or {}


class Sender(msgspec.Struct, frozen=True):
    """The person who sends a change. `is_seen`: the program was looked at and is no agent."""

    person: str
    is_seen: bool


class JsonServices:
    """What the operations work with. `project`: the directory in which new sessions begin."""

    def __init__(
        self,
        application: Application,
        project: str,
        *,
        actions: PersonActions | None = None,
        watcher: Watcher | None = None,
        limits: ProgramLimits | None = None,
    ) -> None:
        """The rest is shared with the page and with `/v1` of the same server."""
        self.application, self.project = application, project
        self.actions = actions or PersonActions(application, project)
        self.watcher = watcher or Watcher(application.records)
        self.limits = limits or ProgramLimits.from_settings(application.settings.http)

    async def records(self) -> Records:
        return await self.application.records()

    async def inbox(self) -> Inbox:
        return await self.application.inbox()

    def page_of(self, request: str) -> str:
        """The address of the page of a request; empty if the page was never served."""
        return question_url(self.application.settings, request)


class ApiCall(Generic[Q, B]):
    """A call of an operation with its checked parameters and body."""

    def __init__(self, raw: Request, services: JsonServices, query: Q, body: B) -> None:
        self.raw, self.services, self.query, self.body = raw, services, query, body
        # Of a change. Who only reads may be anybody with the token.
        self.sender = Sender("", is_seen=False)

    def path(self, name: str) -> str:
        return str(self.raw.path_params[name])

    async def session(self) -> Session:
        """The session that the path names by its id, its name or the beginning of its id. Raises `SessionNotFound`."""
        return await (await self.services.records()).find(self.path("session"))


async def find_sender(raw: Request) -> Sender:
    """The person behind a change. Raises 403 if an agent sent it, or runs this server."""
    peer = await identify_sender(raw.scope)
    if peer.is_agent:
        raise _refuse_agent("An agent sent this request, or its program could not be told from one.")
    try:
        return Sender(require_person(), is_seen=peer.kind == "person")
    except UsageProblem as problem:
        raise _refuse_agent("This server runs below an agent.") from problem


def _refuse_agent(sentence: str) -> HttpProblem:
    remedy = "Agents may read here. Only a person may change something: run the script yourself, outside of the agent."
    return HttpProblem(403, "api.agent", sentence, remedy)


Handler = Callable[[ApiCall[Any, Any]], Awaitable[Any]]
Method = Literal["GET", "POST", "DELETE"]


class ApiOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation. Names in braces in `path` are its parameters.

    `result` is the type of the JSON that `handler` returns, or the media type of a response that it makes itself. `current`
    returns what a GET of the changed object returns, for `If-Match`. `failures` are statuses that only some operations have.
    """

    method: Method
    path: str
    name: str
    group: str
    summary: str
    handler: Handler
    result: Any
    query: type[msgspec.Struct] = NoQuery
    body: Any = None
    status: int = 200
    current: Handler | None = None
    failures: tuple[int, ...] = ()
    description: str = ""

    @property
    def is_change(self) -> bool:
        return self.method != "GET"

    @property
    def media_type(self) -> str:
        return self.result if isinstance(self.result, str) else "application/json"

    @property
    def has_etag(self) -> bool:
        """Whether its responses have an entity tag. A stream never ends, so it has none."""
        return not self.is_change and self.media_type != "text/event-stream"


class CreatedReply(msgspec.Struct, frozen=True):
    """A result with headers of its own."""

    value: Any
    headers: Mapping[str, str] = {}


def cut_page(entries: Iterable[T], key: Callable[[T], str], query: Paging) -> tuple[list[T], str | None]:
    """The page of a list in memory, and the cursor of the next. Raises 400 for the cursor of an entry that is not there."""
    found = sorted(entries, key=key)
    if query.after is not None:
        if query.after not in map(key, found):
            sentence = f"after: {query.after!r:.80} is no `next` of this list."
            raise HttpProblem(400, "api.parameter", sentence, "Read the list again from its beginning.")
        found = [entry for entry in found if key(entry) > query.after]
    shown = found[: query.limit]
    return shown, key(shown[-1]) if len(found) > len(shown) else None


def list_items(items: Any, next_: str | None = None) -> Listed[Any]:
    return Listed(tuple(items), next_)


def optional(value: T, *, when: bool) -> Any:
    """The value of a member that is left out unless `when`."""
    return value if when else UNSET
