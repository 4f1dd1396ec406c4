"""Shared parts of the dialects: the base class of their handlers, JSON of results, and `_meta`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fidelio.app.application import Application
from fidelio.clock import now_ms
from fidelio.definitions import META
from fidelio.errors import DefinitionError, FidelioError, PersonNeeded
from fidelio.surfaces.mcp.dialects.sessions.parameters import NoParameters
from fidelio.surfaces.mcp.schemas import HEALTH_CHECK
from fidelio.toolkit import AskPerson, CallContext, Done, Tool

if TYPE_CHECKING:
    from fidelio.definitions.library import Library
    from fidelio.definitions.library.listing import WorkflowSummary
    from fidelio.definitions.models import Definition, Workflow
    from fidelio.engine.record import CheckpointAnswer, Record
    from fidelio.workflows.checkpoints import ResolvedCheckpoint
    from fidelio.workflows.start import StartResult
    from fidelio.workflows.trace import Trace
    from fidelio.workflows.unit_of_work import CallResult


class Dialect:
    """Base of the handlers of a dialect."""

    def __init__(self, house: Application) -> None:
        self.house = house
        self._began = now_ms()

    async def note_misuse(self, tool: str, arguments: Mapping[str, Any], error: FidelioError) -> None:
        """A call with bad arguments is on record, too, when it says which session it means."""
        token = arguments.get("session_token") or arguments.get("checkpoint_handle")
        if isinstance(token, str) and token:
            await (await self.house.workflows()).note_misuse(tool, token, error)

    def render_error(self, error: FidelioError) -> str:
        """The text of an error, without the directories of the server."""
        return self.house.shortened(str(error))

    def health_tool(self, handler: Callable[[NoParameters, CallContext], Awaitable[Done]]) -> Tool[NoParameters]:
        """The row of health_check, which is the same everywhere."""
        return Tool(
            "health_check",
            "Check the server",
            "Returns the server's state, version, number of workflows and uptime. Needs no token.",
            NoParameters,
            handler,
            read_only=True,
            output_schema=HEALTH_CHECK,
        )

    async def health(self) -> dict[str, Any]:
        """The body of health_check."""
        return {
            "status": "healthy",
            "server": self.house.settings.server_name,
            "version": self.house.settings.server_version,
            "workflows_available": len(list_startable_workflows(await self.house.library())),
            "uptime_seconds": (now_ms() - self._began) // 1000,
        }

    async def ask(self, context: CallContext, needed: PersonNeeded, tool: str, token: str) -> AskPerson:
        """Puts the request to the person at the client; a call that stays without an answer is recorded as refused."""
        question = await context.ask(needed.request)

        async def unanswered() -> None:
            await (await self.house.workflows()).note_misuse(tool, token, needed, session=question.session)

        return replace(question, waiting=Done(context.render(needed), is_error=True), unanswered=unanswered)


def list_startable_workflows(library: Library) -> list[WorkflowSummary]:
    """The workflows that can be started; `meta` is not one to choose."""
    return [entry for entry in library.list() if entry.id != META and not entry.broken]


def load_procedure(library: Library, instructions: str, *pages: str) -> str:
    """How to begin: the first of these pages that the library has, else its first page, else what the dialect itself says."""
    for page in (*pages, "00"):
        try:
            return library.source("resource", page, workflow=META).content.decode()
        except DefinitionError:
            continue
    return f"# How to begin\n\n{instructions}\n"


def build_meta(context: CallContext, outcome: CallResult[Any] | None) -> dict[str, Any]:
    if outcome is None:
        return {}
    return {"session_token": outcome.token, "validation": validation_json(context, outcome.warnings)}


def validation_json(context: CallContext, warnings: Sequence[str]) -> dict[str, Any]:
    """What clients look at to see whether a call was all right."""
    return {"status": "warning" if warnings else "valid", "warnings": [context.render(one) for one in warnings]}


def add_warnings(context: CallContext, body: Mapping[str, Any], outcome: CallResult[Any] | None) -> dict[str, Any]:
    """A model sees no `_meta`, so warnings stand in the body too."""
    warnings = [context.render(one) for one in outcome.warnings] if outcome is not None else []
    return {**body, "warnings": warnings} if warnings else dict(body)


def transitions_json(workflow: Workflow, record: Record) -> list[dict[str, Any]]:
    """Every way on, with `holds`: true, false, or null when it is not known yet."""
    from fidelio.engine.transitions import list_transitions  # noqa: PLC0415  # the first reply does not wait for it

    return [
        {"to": way.to, "holds": way.holds, "default": way.default, **({"condition": way.condition} if way.condition else {})}
        for way in list_transitions(workflow, record)
    ]


def started_json(outcome: CallResult[StartResult]) -> dict[str, Any]:
    """The body of start_session."""
    started, workflow = outcome.result, outcome.result.workflow
    about = {"id": workflow.id, "version": workflow.version, "title": workflow.title, "description": workflow.description}
    flags = {name: True for name in ("inherited", "adopted", "recovered") if getattr(started, name)}
    warning = {"warning": started.warning} if started.warning else {}
    return {"workflow": about, "session_token": outcome.token, **flags, **warning}


def trace_json(outcome: CallResult[Trace]) -> dict[str, Any]:
    """The body of get_trace."""
    trace = outcome.result
    body: dict[str, Any] = {"traceId": outcome.session, "source": trace.source}
    if trace.source == "memory":
        body["tracing_enabled"] = True
    body |= {"event_count": len(trace.events), "events": list(trace.events), "session_token": outcome.token}
    if trace.errors:
        body["token_errors"] = list(trace.errors)
    return {**body, **_rest_json(trace)}


def _rest_json(trace: Trace) -> dict[str, Any]:
    """How to get what did not find room in the reply."""
    if (rest := trace.rest) is None:
        return {}
    tokens = f"the trace_tokens from number {rest.done} on (counted from 0) and " if trace.source == "tokens" else ""
    more = f"This is not all. Call get_trace again with {tokens}after: {rest.after}."
    return {"more": more, "next": {"after": rest.after, **({"from_token": rest.done} if tokens else {})}}


def answer_json(answer: CheckpointAnswer) -> dict[str, Any]:
    """An answer on record, and whose it is."""
    body: dict[str, Any] = {"option_id": answer.option or None, "effect": answer.effect}
    if answer.mode == "condition_not_met":
        body["dismissed"] = True
    return {**body, "answered_by": answer.by, "channel": answer.channel}


def resolution_json(resolved: ResolvedCheckpoint) -> dict[str, Any]:
    """What became of an answer that was just given."""
    resolution = resolved.resolution
    body = {"resolved_option": resolution.option, "effect": resolution.effect, "dismissed": resolution.dismissed}
    return {key: value for key, value in body.items() if value}


def definition_json(definition: Definition) -> dict[str, Any]:
    """A definition with its defaults, without lists and objects that are empty by default or say only where its file lies."""
    fields = [(key, getattr(definition, name), default) for name, key, default in _fields(type(definition))]
    shown = {key: _plain(value) for key, value, default in fields if not _left_out(value, default)}
    return {**shown, **(definition.model_extra or {})}


@cache
def _fields(kind: type[Definition]) -> list[tuple[str, str, Any]]:
    """What is shown of such a definition: by which name, under which key, and what it is where nobody says it."""
    fields = kind.model_fields.items()
    return [(name, field.alias or name, field.default) for name, field in fields if name not in _ABOUT_THE_FILE]


_ABOUT_THE_FILE = frozenset({"owner", "broken", "schema_hint"})


def _left_out(value: Any, default: Any) -> bool:
    return value is None or (value == default and not isinstance(default, (bool, int, str)))


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return definition_json(value) if hasattr(value, "model_extra") else value


def as_json(body: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()
