"""The executor `fidelio`: a blueprint whose agent is a session of Fidelio's own runtime.

A run is a message to that session, and its result the answer. The session is durable by itself: when the agent host dies, the
session goes on, and the next host follows it to its end. What waits for a person is in the inbox once, as a request of the
runtime session, and the run waits for the same request. Options of a blueprint: `agent` names a defined agent in place of one
that is made from the blueprint, `mount` is `copy` (default), `ro`, `rw` or `none`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from fidelio.app.blueprint_servers import AGENT_PREFIX, describe_servers
from fidelio.app.runtime import SharedWorker
from fidelio.errors import ConversationLost, ExecutorFailure, FidelioError, SessionNotFound
from fidelio.ledger.long_text import load_text
from fidelio.ledger.model import Event
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.contract import Availability, Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import Usage
from fidelio.processes.table import ProcessIdentity
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import AgentDefinition, AgentTools, Budget
from fidelio.runtime.agents.files import resolve_agent
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.service import NewAgentSession, RuntimeService
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.model import Policy

_OPTIONS = frozenset({"agent", "mount", "model"})
_MOUNTS = ("copy", "ro", "rw", "none")
MODEL_VARIABLE = "FIDELIO_MODEL"
_STOP_SECONDS = 3.0
_FAILURES = {
    "retries_exhausted": "The model could not be used.",
    "budget_reached": "The session has used up its budget.",
    "refusal": "The model refused to answer.",
}


class FidelioExecutor:
    """Carries out runs in sessions of the runtime. `open_runtime` is called by the first run.

    All runs share a worker, which is closed with `resources`.
    """

    name = "fidelio"

    def __init__(self, open_runtime: Callable[[], Awaitable[RuntimeService]], resources: AsyncExitStack) -> None:
        self._open_runtime, self._worker = open_runtime, SharedWorker(resources)

    async def availability(self, added: Mapping[str, str] | None = None, /) -> Availability:
        model = (added or {}).get(MODEL_VARIABLE) or os.environ.get(MODEL_VARIABLE, "")
        return Availability(works=True, why=f"Built in; its model is {model or 'the one that a blueprint names'}.")

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        options = blueprint.options
        found = [
            f"The executor fidelio has no option {name}; it has {', '.join(sorted(_OPTIONS))}."
            for name in sorted(set(options) - _OPTIONS)
        ]
        if options.get("mount", "copy") not in _MOUNTS:
            found.append(f"mount is one of {', '.join(_MOUNTS)}.")
        if not options.get("agent") and not _find_model(blueprint):
            found.append(f"It names no model. Write model: into the blueprint, or set {MODEL_VARIABLE}.")
        return tuple(found)

    async def carry_out(self, turn: Turn, reporter: Reporter) -> TurnResult:
        service = await self._open_runtime()
        session = await self._find_session(service, turn)
        await reporter.report_conversation(session)
        (sent,) = await service.send(
            session, [{"type": e.USER_MESSAGE, "content": turn.prompt}], by=_actor(turn), channel="relayed"
        )
        return await self._follow(service, turn, reporter, sent)

    async def adopt(self, turn: Turn, process: ProcessIdentity, reporter: Reporter) -> TurnResult | None:  # noqa: ARG002  # it has no process
        """Follow the session of a run that has lost its host. If the run has not sent its message, it sends it now."""
        service = await self._open_runtime()
        sent = await _find_message(service, turn) if turn.conversation is not None else None
        return await (self.carry_out(turn, reporter) if sent is None else self._follow(service, turn, reporter, sent))

    async def _find_session(self, service: RuntimeService, turn: Turn) -> str:
        if turn.conversation is None:
            return await self._start(service, turn)
        try:
            record = (await service.load(turn.conversation)).record
        except SessionNotFound as error:
            raise ConversationLost(f"The session {turn.conversation} was deleted.", reason="conversation-lost") from error
        if record.status == "terminated" or record.is_archived:
            raise ConversationLost(f"The session {turn.conversation} has ended.", reason="conversation-lost")
        return turn.conversation

    async def _start(self, service: RuntimeService, turn: Turn) -> str:
        blueprint, project = turn.blueprint, str(turn.directory)
        mount = str(blueprint.options.get("mount", "copy"))
        if named := blueprint.options.get("agent"):
            agent = await resolve_agent(service.context, project, str(named))
        else:
            name = f"{AGENT_PREFIX}{blueprint.name or 'default'}"[:60]
            agent = await define_agent(service.context, project, name, build_definition(turn.template), by="blueprint")
        request = NewAgentSession(
            project=project,
            agent=agent.name,
            version=agent.version,
            title=turn.run,
            mount=None if mount == "none" else f"{project}:{mount}",
        )
        return await service.start_session(request)

    async def _follow(self, service: RuntimeService, turn: Turn, reporter: Reporter, sent: Event) -> TurnResult:
        relay = _Relay(service, sent.session, reporter)
        async with self._worker.use(service):
            try:
                async for event in service.follow(sent.session, after=sent.seq):
                    if (ended := await relay.relay(event)) is not None:
                        return ended
            except asyncio.CancelledError:
                if not reporter.is_detaching:
                    await asyncio.shield(_interrupt(service, sent.session, _actor(turn)))
                raise
        raise AssertionError("following a session never ends by itself")


class _Relay:
    """Reports the events of a session as those of a run."""

    def __init__(self, service: RuntimeService, session: str, reporter: Reporter) -> None:
        self._service, self._session, self._reporter = service, session, reporter
        self._usage = Usage()
        self._text = ""
        self._remedy = ""

    async def relay(self, event: Event) -> TurnResult | None:
        """Report an event; the result if it ends the turn."""
        body, ledger = event.body, self._service.context.ledger
        if event.type == e.AGENT_MESSAGE:
            self._text = await _read_message(self._service, body)
            await self._reporter.report_message(self._text)
        elif event.type == e.TOOL_USE and body.get("wake_id"):
            await self._reporter.report_tool_call(body["id"], body["name"], await load_text(ledger, body.get("input")))
        elif event.type == e.TOOL_RESULT:
            text = await load_text(ledger, body.get("result"))
            await self._reporter.report_tool_result(body["tool_use_id"], ok=not body.get("is_error"), text=text)
        elif event.type == e.MODEL_REQUEST_ENDED:
            self._usage = _add(self._usage, body)
            await self._reporter.report_usage(self._usage)
        elif event.type == e.SESSION_ERROR:
            self._remedy = str(body["error"].get("remedy", ""))
        elif event.type == e.STATUS_IDLE:
            return await self._end(body)
        elif event.type in (e.ENDED, e.SESSION_ARCHIVED):
            raise ExecutorFailure("The session was ended.", reason="ended")
        return None

    async def _end(self, body: Mapping[str, Any]) -> TurnResult | None:
        reason = body["stop_reason"]["type"]
        if reason == "requires_action":
            await self._wait_for_people()
            return None
        if reason in _FAILURES:
            sentence = f"{_FAILURES[reason]} {body.get('summary', '')}".strip()
            raise ExecutorFailure(sentence, remedy=self._remedy, reason=reason, partial=self._text)
        # Something was sent meanwhile, or an interrupt ended an earlier turn: the session goes on.
        record = (await self._service.load(self._session)).record
        if record.wakes.pending or record.wakes.current:
            return None
        return TurnResult(text=self._text)

    async def _wait_for_people(self) -> None:
        record = (await self._service.load(self._session)).record
        for call in record.wakes.blocking:
            if call.request:
                await self._reporter.wait_for(call.request)


def build_definition(blueprint: Blueprint) -> AgentDefinition:
    """The agent that a blueprint without secrets describes. It is stored, and the same for all runs of the blueprint."""
    limits = blueprint.limits
    tools = AgentTools(
        policies=_find_policies(blueprint),
        without=tuple(name for name in blueprint.permissions.deny if name in DEFINITIONS),
        mcp_servers=describe_servers(blueprint),
    )
    budget = Budget(tokens=limits.tokens or 1_000_000, usd=limits.cost_usd, wall_seconds=int(limits.wall_seconds))
    return AgentDefinition(
        model=_find_model(blueprint),
        description=blueprint.description[:1_000],
        system=blueprint.system_prompt,
        tools=tools,
        limits=budget,
    )


def _find_model(blueprint: Blueprint) -> str:
    named = blueprint.model or blueprint.options.get("model") or blueprint.environment.get(MODEL_VARIABLE)
    return str(named or os.environ.get(MODEL_VARIABLE, ""))


def _find_policies(blueprint: Blueprint) -> dict[str, Policy]:
    """The policies that the permissions of a blueprint mean: with `answered_by: proven` whatever would ask, asks for proof."""
    policies = _find_mode_policies(blueprint)
    if not blueprint.permissions.needs_proof:
        return policies
    asking = {name: policies.get(name, tool.policy) for name, tool in DEFINITIONS.items()}
    return {**policies, **{name: "proven" for name, policy in asking.items() if policy != "always_allow"}}


def _find_mode_policies(blueprint: Blueprint) -> dict[str, Policy]:
    """The policies that a permission mode means. Commands run in the sandbox in any case."""
    allowed: dict[str, Policy] = {name: "always_allow" for name in blueprint.permissions.allow if name in DEFINITIONS}
    shells = ("shell_run", "shell_exec", "shell_send_input")
    if blueprint.permissions.mode == "full":
        return {**dict.fromkeys(shells, "always_allow"), **allowed}
    if blueprint.permissions.mode == "edit":
        return {**dict.fromkeys(shells, "auto"), **allowed}
    if blueprint.permissions.mode == "read":
        return {"write": "always_ask", "edit": "always_ask", **allowed}
    return allowed


def _actor(turn: Turn) -> str:
    """Who has sent the message of a run. It names the run, so that another host finds the message again."""
    return f"run:{turn.run}"


async def _find_message(service: RuntimeService, turn: Turn) -> Event | None:
    assert turn.conversation is not None
    found = None
    for event in await service.context.ledger.events(turn.conversation, types=(e.USER_MESSAGE,)):
        if event.actor == _actor(turn):
            found = event
    return found


async def _interrupt(service: RuntimeService, session: str, by: str) -> None:
    """Interrupt the session, and wait a moment until it stops. If it takes longer, any worker carries the interrupt out."""
    try:
        (sent,) = await service.send(session, [{"type": e.USER_INTERRUPT}], by=by, channel="relayed")
        async with asyncio.timeout(_STOP_SECONDS):
            async for event in service.follow(session, after=sent.seq):
                if event.type == e.STATUS_IDLE:
                    return
    except (FidelioError, TimeoutError):
        # It has ended, was deleted, or is slow: nothing is left to do here.
        return


async def _read_message(service: RuntimeService, body: Mapping[str, Any]) -> str:
    ledger = service.context.ledger
    items = body.get("content") or []
    return "\n".join([await load_text(ledger, item["stored"]) if "stored" in item else item.get("text", "") for item in items])


def _add(usage: Usage, body: Mapping[str, Any]) -> Usage:
    used = body.get("model_usage") or {}
    taken = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return usage + Usage(
        turns=1,
        input_tokens=sum(used.get(name, 0) for name in taken),
        output_tokens=used.get("output_tokens", 0),
        cost_usd=body.get("cost_micros", 0) / 1_000_000,
    )
