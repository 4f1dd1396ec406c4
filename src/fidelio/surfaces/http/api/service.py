"""Operations on the server as a whole: search over what was recorded, and health."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from fidelio import __version__
from fidelio.app.checks import Check, JobCount, count_jobs, list_hosts, run_checks
from fidelio.app.records import describe_ledger
from fidelio.app.watching import MAX_STREAMS
from fidelio.clock import format_iso, now_ms
from fidelio.ledger.model import Query, Relation, SessionKind
from fidelio.surfaces.http.api.operations import ApiCall, ApiOperation, Limit, Listed, Name, NoQuery, list_items
from fidelio.surfaces.views.records import Moment, SearchResult, view_hit

_MOST_JOBS, _MOST_TYPES = 1_000, 50


class SearchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is looked for."""

    text: Annotated[
        str, Meta(min_length=1, max_length=500, description='All words must occur. "Words in quotes" follow each other.')
    ]
    session: Annotated[Name, Meta(description="Only in this session; with `relation`, in its relatives.")] | None = None
    relation: Annotated[Relation, Meta(description="Search the relatives of `session`.")] | None = None
    kind: Annotated[SessionKind, Meta(description="Only in sessions of this kind.")] | None = None
    type: Annotated[tuple[Name, ...], Meta(max_length=_MOST_TYPES, description="Only in events of this type. Repeatable.")] = ()
    source: Annotated[Literal["event", "document"], Meta(description="Only in events, or only in documents.")] | None = None
    limit: Limit = 20


class HostView(msgspec.Struct, frozen=True):
    """What a process does for the home. `process`: null if nobody does it."""

    name: str
    work: str
    process: int | None
    since: Moment | None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What this server is, what works for its home, what is queued, and the quick checks of the doctor."""

    healthy: bool
    checks: tuple[Check, ...]
    version: str
    home: str
    database: str
    hosts: tuple[HostView, ...]
    jobs: tuple[JobCount, ...]
    failed_jobs: int
    streams: int
    max_streams: int


async def search(call: ApiCall[SearchQuery, None]) -> Listed[SearchResult]:
    values: dict[str, Any] = asdict(call.query)
    records, types = await call.services.records(), values.pop("type")
    if values["session"]:
        values["session"] = (await records.find(values["session"])).id
    hits = await records.search(Query(types=types, **values))
    return list_items(view_hit(hit) for hit in hits)


async def read_health(call: ApiCall[NoQuery, None]) -> Health:
    application, records = call.services.application, await call.services.records()
    checks = await run_checks(application, is_quick=True)
    queued, dead = await records.jobs(limit=_MOST_JOBS), await records.jobs(dead=True, limit=_MOST_JOBS)
    hosts = (
        HostView(host.name, host.work, *((host.holder.process, format_iso(host.holder.since)) if host.holder else (None, None)))
        for host in list_hosts(application)
    )
    return Health(
        healthy=not any(check.state == "problem" for check in checks),
        checks=tuple(checks),
        version=__version__,
        home=str(application.settings.home.path),
        database=describe_ledger(application.settings),
        hosts=tuple(hosts),
        jobs=tuple(count_jobs(queued, now_ms())),
        failed_jobs=len(dead),
        streams=call.services.watcher.streams,
        max_streams=MAX_STREAMS,
    )


OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/api/search",
        name="search",
        group="Search",
        summary="Find words in events and documents; every hit says which words matched where.",
        handler=search,
        query=SearchQuery,
        result=Listed[SearchResult],
        failures=(404,),
    ),
    ApiOperation(
        method="GET",
        path="/api/health",
        name="readHealth",
        group="Health",
        summary="Read what works for the home, what is queued, and the quick checks of the doctor.",
        handler=read_health,
        result=Health,
    ),
)
