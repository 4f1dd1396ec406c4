"""Sessions: created from an agent and an environment, listed with filters, changed, archived and deleted."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from fidelio.errors import SessionExists, SessionNotFound
from fidelio.ledger.model import Session
from fidelio.runtime.agents.entries import load_entry
from fidelio.runtime.budgets import set_budget
from fidelio.runtime.reading import SessionReader
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords
from fidelio.runtime.sessions import NewAgentSession, configure_session
from fidelio.runtime.tools.model import LoadedRuntime
from fidelio.surfaces.http.v1 import agents, environments
from fidelio.surfaces.http.v1.endpoint import API_ACTOR, ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.events.sending import InitialEvent, read_sent
from fidelio.surfaces.http.v1.ids import to_session, to_wire
from fidelio.surfaces.http.v1.session_resources import plan_resources
from fidelio.surfaces.http.v1.sessions.loading import check_active, is_served, load_active, load_session
from fidelio.surfaces.http.v1.sessions.objects import MICROS, render_budget, render_session
from fidelio.surfaces.http.v1.values import CostLimit, TimeRange, patch_metadata
from fidelio.surfaces.http.v1.vaults import check_vaults

MAX_LIMIT, DEFAULT_LIMIT = 1000, 20
MAX_INITIAL, MAX_VAULTS, MAX_TITLE = 50, 50, 200
# Rows of the ledger that a page looks at. A page of a filter that matches little may be empty, and says where to go on.
MAX_SCANNED = 2_000
_STATUSES = ("rescheduling", "running", "idle", "terminated")


class _Create(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    agent: agents.AgentParam
    environment_id: str
    title: Annotated[str, Meta(max_length=MAX_TITLE)] | None = None
    metadata: dict[str, str] | None = None
    vault_ids: Annotated[tuple[str, ...], Meta(max_length=MAX_VAULTS)] | None = None
    resources: tuple[Any, ...] | None = None
    budget: CostLimit | None = None
    initial_events: Annotated[tuple[InitialEvent, ...], Meta(max_length=MAX_INITIAL)] | None = None


class _Update(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Omitted fields stay as they are."""

    agent: agents.Configuration | UnsetType = UNSET
    title: Annotated[str, Meta(max_length=MAX_TITLE)] | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET
    budget: CostLimit | UnsetType | None = UNSET
    vault_ids: tuple[str, ...] | UnsetType | None = UNSET


async def _create(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    body = await request.body(_Create)
    runtime, key = await request.services.runtime(), request.idempotency_key
    digest = _hash(msgspec.json.encode(body, order="sorted")) if key else ""
    name = f"key-{_hash(key.encode())[:40]}" if key else None
    if name and (found := await _find_created(request, name, digest)):
        return found
    new = await _plan(request, body, name, digest)
    initial = await read_sent(request, body.initial_events or ())
    try:
        session = await runtime.start_session(new, initial, by=API_ACTOR, channel="api")
    except SessionExists:
        # The same request was faster on another connection.
        found = await _find_created(request, name or "", digest)
        if found is None:
            raise
        return found
    return await render_session(request, await runtime.load(session))


async def _plan(request: ApiRequest, body: _Create, name: str | None, digest: str) -> NewAgentSession:
    chosen = await agents.choose_agent(request, body.agent)
    budget = {} if body.budget is None else {"usd": body.budget.require_cents() / 100}
    if budget:
        await _check_price(request, chosen.definition.model)
    return NewAgentSession(
        project=request.project,
        agent=chosen.name,
        version=chosen.version,
        variant=chosen.variant,
        name=name,
        title=body.title or "",
        environment=await environments.choose_environment(request, body.environment_id),
        metadata=patch_metadata({}, body.metadata or {}),
        vault_ids=await check_vaults(request, body.vault_ids or ()),
        resources=await plan_resources(request, body.resources),
        budget=budget,
        content_digest=digest,
    )


async def _check_price(request: ApiRequest, model: str) -> None:
    models = (await request.services.runtime()).context.ports.models
    if models.describe(model).price is None:
        message = (
            f"budget: model_not_budgetable: the price of {model} is not known. Set it in models.yaml, or leave budget out."
        )
        raise ApiProblem(message)


async def _find_created(request: ApiRequest, name: str, digest: str) -> dict[str, Any] | None:
    """The session that an earlier request with the same key has created; None if there is none."""
    runtime = await request.services.runtime()
    try:
        session = await SessionReader(runtime.context).find_named(name, request.project)
    except SessionNotFound:
        return None
    (started,) = await SessionReader(runtime.context).events(session.id, limit=1)
    if started.body.get("content_digest") != digest:
        raise SessionExists("The key was used for another session.", remedy="Use a new Idempotency-Key for each creation.")
    return await render_session(request, await runtime.load(session.id))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def _retrieve(request: ApiRequest) -> dict[str, Any]:
    return await render_session(request, await load_session(request, request.path("session_id")))


async def _update(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    loaded = await load_active(request, request.path("session_id"))
    body = await request.body(_Update)
    if body.vault_ids is not UNSET:
        raise ApiProblem("vault_ids: vaults are attached when a session is created. Leave the field out.")
    if isinstance(body.budget, CostLimit | None):
        await _change_budget(request, loaded, body.budget)
    await _change_fields(request, loaded, body)
    return await render_session(request, await (await request.services.runtime()).load(loaded.id))


async def _change_budget(request: ApiRequest, loaded: LoadedRuntime, budget: CostLimit | None) -> None:
    """Replace or remove the budget that a session was created with."""
    record, runtime = loaded.record, await request.services.runtime()
    if render_budget(record) is None:
        if budget is None:
            return
        raise ApiProblem("budget: budget_create_only: a budget is set when a session is created.")
    usd = 0.0
    if budget is not None:
        usd = budget.cents / 100
        if usd * MICROS <= record.wakes.usage.cost_micros:
            raise ApiProblem("budget: budget_not_raised: the session has used as much already. Set a higher limit.")
    updated = {"budget": None if budget is None else msgspec.to_builtins(budget)}
    await set_budget(runtime.context, loaded.id, {"usd": usd}, by=API_ACTOR, shown=updated)


async def _change_fields(request: ApiRequest, loaded: LoadedRuntime, body: _Update) -> None:
    runtime, configured = await request.services.runtime(), dict[str, Any]()
    updated: dict[str, Any] = {}
    if isinstance(body.agent, agents.Configuration):
        _check_idle(loaded.record)
        chosen = await agents.change_session_agent(request, loaded.record, body.agent)
        if chosen.variant != loaded.record.agent_variant:
            configured |= {"agent_variant": chosen.variant, "policies": chosen.definition.tools.list_policies()}
            after = msgspec.structs.replace(loaded.record, agent_variant=chosen.variant)
            updated["agent"] = await agents.render_snapshot(request, chosen.name, chosen.version, after)

    def change(record: RuntimeRecord) -> dict[str, Any]:
        check_active(record, request.path("session_id"))
        if configured:
            # Work may have begun since the session was loaded, and another request may have configured it.
            _check_idle(record)
            if record.agent_variant != loaded.record.agent_variant:
                message = "agent: another request has changed it meanwhile. Read the session, and send the change again."
                raise ApiProblem(message, status=HTTPStatus.CONFLICT, type_="conflict_error")
        fields, shown = _compare(record, body)
        return {**configured, **fields, "updated": {**updated, **shown}} if configured or fields else {}

    await configure_session(runtime.context, loaded.id, change, by=API_ACTOR)


def _check_idle(record: RuntimeRecord) -> None:
    if record.wakes.current:
        raise ApiProblem("agent: the session is running. Interrupt it, or wait until it is idle.")


def _compare(record: RuntimeRecord, body: _Update) -> tuple[dict[str, Any], dict[str, Any]]:
    """The changed fields of the record, and what the event shows of them."""
    fields, shown = dict[str, Any](), dict[str, Any]()
    title = record.title if body.title is UNSET else body.title or ""
    metadata = patch_metadata(record.metadata, body.metadata)
    if title != record.title:
        fields["title"], shown["title"] = title, title or None
    if metadata != record.metadata:
        fields["metadata"] = metadata
        shown |= {"metadata": metadata} if metadata else {}
    return fields, shown


async def _archive(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    loaded = await load_session(request, request.path("session_id"))
    runtime = await request.services.runtime()
    await runtime.archive_session(loaded.id, by=API_ACTOR)
    return await render_session(request, await runtime.load(loaded.id))


async def _delete(request: ApiRequest) -> dict[str, Any]:
    """Delete a session with its threads."""
    await request.require_key_holder()
    loaded = await load_session(request, request.path("session_id"))
    runtime = await request.services.runtime()
    if loaded.record.wakes.current:
        raise ApiProblem("The session is running. Interrupt it, or wait until it is idle.")
    await runtime.delete_family(loaded.id, by=API_ACTOR, reason="It was deleted over the API.")
    return {"type": "session_deleted", "id": to_wire("sesn", loaded.id)}


class _Filter(msgspec.Struct, frozen=True):
    """What a list shows. `agent` is the name of the agent."""

    statuses: frozenset[str]
    times: TimeRange
    agent: str | None
    version: int | None
    archived: bool
    store: str
    deployment: str

    def accepts(self, session: Session, record: RuntimeRecord) -> bool:
        return (
            (not self.statuses or record.status in self.statuses)
            and session.created_at in self.times
            and (self.archived or not record.is_archived)
            and self._is_of_agent(record)
            and self.deployment in ("", record.deployment_id)
            and (not self.store or any(_is_store(resource, self.store) for resource in record.resources))
        )

    def _is_of_agent(self, record: RuntimeRecord) -> bool:
        return self.agent is None or (record.agent == self.agent and self.version in (None, record.agent_version))


def _is_store(resource: Any, store: str) -> bool:
    return resource.type == "memory_store" and resource.content.get("memory_store_id") in (store, to_wire("memstore", store))


async def _list(request: ApiRequest) -> dict[str, Any]:
    limit, order = request.limit(DEFAULT_LIMIT, MAX_LIMIT), request.query("order", "desc")
    if order not in ("asc", "desc"):
        raise ApiProblem(f"order: {order!r:.80} is neither asc nor desc.")
    filter_ = await _read_filter(request)
    list_ = f"sessions:{order}:{_describe_filter(request)}"
    runtime = await request.services.runtime()
    cursor, scanned, found = request.cursor(list_), 0, list[LoadedRuntime]()
    while True:
        page = await SessionReader(runtime.context).sessions(
            request.project, cursor=cursor, limit=limit - len(found), oldest_first=order == "asc"
        )
        cursor, scanned = page.next, scanned + len(page.items)
        found += [loaded for session in page.items if (loaded := _accept(request, session, filter_)) is not None]
        if cursor is None or len(found) >= limit or scanned >= MAX_SCANNED or _is_past(filter_, page.items, order):
            break
    if cursor is not None and _is_past(filter_, page.items, order):
        cursor = None
    return request.page(list_, [await render_session(request, loaded) for loaded in found], cursor)


def _accept(request: ApiRequest, session: Session, filter_: _Filter) -> LoadedRuntime | None:
    record = RuntimeRecords().read(session.raw)
    # A thread is part of its session, and is listed there.
    if record.depth or not is_served(request, record) or not filter_.accepts(session, record):
        return None
    return LoadedRuntime(session, record)


def _is_past(filter_: _Filter, items: tuple[Session, ...], order: str) -> bool:
    """Whether no later page can have a session that was created in the range."""
    if not items:
        return False
    last = items[-1].created_at
    return last > filter_.times.last if order == "asc" else last < filter_.times.first


async def _read_filter(request: ApiRequest) -> _Filter:
    statuses = frozenset((*request.query_values("statuses[]"), *request.query_values("statuses")))
    if unknown := sorted(statuses - set(_STATUSES)):
        raise ApiProblem(f"statuses: {unknown[0]!r:.80} is not a status. Use one of {', '.join(_STATUSES)}.")
    return _Filter(
        statuses=statuses,
        times=request.times("created_at"),
        agent=await _find_agent(request),
        version=_read_number(request, "agent_version"),
        archived=request.flag("include_archived"),
        store=_read_id(request, "memory_store_id", "memstore"),
        deployment=_read_id(request, "deployment_id", "depl"),
    )


async def _find_agent(request: ApiRequest) -> str | None:
    """The name of the agent of a filter; a name that no agent has where the id is unknown, so that nothing is listed."""
    if not (id_ := request.query("agent_id")):
        return None
    try:
        context = (await request.services.runtime()).context
        return (await load_entry(context, request.project, to_session("agent", id_))).name
    except (SessionNotFound, ApiProblem):
        return ""


def _read_id(request: ApiRequest, name: str, prefix: str) -> str:
    id_ = request.query(name)
    return to_session(prefix, id_) if id_ else ""


def _read_number(request: ApiRequest, name: str) -> int | None:
    text = request.query(name)
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ApiProblem(f"{name}: {text!r:.80} is not a number from 1.")
    return int(text) if text else None


def _describe_filter(request: ApiRequest) -> str:
    """The filter as a part of the name of the list: a cursor of another filter would miss sessions."""
    ignored = ("page", "limit", "beta", "order")
    pairs: list[tuple[str, str]] = [item for item in request.raw.query_params.multi_items() if item[0] not in ignored]
    return _hash(msgspec.json.encode(sorted(pairs)))


ROUTES = (
    ApiRoute("/v1/sessions", {"POST": _create, "GET": _list}),
    ApiRoute("/v1/sessions/{session_id}", {"GET": _retrieve, "POST": _update, "DELETE": _delete}),
    ApiRoute("/v1/sessions/{session_id}/archive", {"POST": _archive}),
)
