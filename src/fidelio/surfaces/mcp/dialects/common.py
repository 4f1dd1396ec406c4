"""What the dialects have in common: opening the house, answering without a session, putting questions to people, `_meta`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.app.application import House
from fidelio.clock import now_ms
from fidelio.definitions import META
from fidelio.errors import DefinitionError, FidelioError, PersonNeeded, RequestClosed
from fidelio.surfaces.mcp.asked import put_to_person
from fidelio.surfaces.mcp.dialects.sessions.parameters import Nothing
from fidelio.surfaces.mcp.hints import typed_here
from fidelio.surfaces.mcp.schemas import HEALTH
from fidelio.toolkit.tools import AskPerson, Done, Option, Tool

if TYPE_CHECKING:
    from fidelio.definitions.library.listing import WorkflowSummary
    from fidelio.definitions.models import Definition, Workflow
    from fidelio.engine.record import CheckpointAnswer, Record
    from fidelio.workflows.checkpoints import Resolved
    from fidelio.workflows.service import WorkflowService
    from fidelio.workflows.start import Started
    from fidelio.workflows.trace import Trace
    from fidelio.workflows.unit_of_work import Outcome


class Dialect:
    """The tools of one dialect over one house."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._began = now_ms()

    async def note_misuse(self, tool: str, arguments: Mapping[str, Any], error: FidelioError) -> None:
        """A call with bad arguments is on record, too, when it says which session it means."""
        token = arguments.get("session_token") or arguments.get("checkpoint_handle")
        if isinstance(token, str) and token:
            await (await self.house.workflows()).desk.note_misuse(tool, token, error)

    def worded(self, error: FidelioError) -> str:
        """An error as a client reads it."""
        return self.house.shortened(str(error))

    def health_tool(self, handler: Callable[[Nothing], Awaitable[Done]]) -> Tool[Nothing]:
        """The row of health_check, which is the same everywhere."""
        return Tool(
            "health_check",
            "Check the server",
            "Returns the server's state, version, number of workflows and uptime. Needs no token.",
            Nothing,
            handler,
            read_only=True,
            output_schema=HEALTH,
        )

    async def health(self) -> dict[str, Any]:
        """The body of health_check."""
        return {
            "status": "healthy",
            "server": self.house.settings.server_name,
            "version": self.house.settings.server_version,
            "workflows_available": len(offered(await self.house.workflows())),
            "uptime_seconds": (now_ms() - self._began) // 1000,
        }

    async def ask(self, service: WorkflowService, needed: PersonNeeded, tool: str, token: str) -> AskPerson:
        """Puts a question to the person at the client; what they say is recorded as theirs."""
        from fidelio.inbox import Inbox  # noqa: PLC0415  # waits for the first call

        inbox = Inbox(service.desk.ledger)
        # The request holds the question with its values put in, the same for everybody who may be asked.
        request = await service.desk.ledger.request(needed.request)
        put_to_person(request.id)

        async def answered(option: str, who: str) -> None:
            # Whoever answered elsewhere a moment before has answered; the call goes on with that.
            with suppress(RequestClosed):
                await inbox.answer(request.id, option, by=f"person:{who}", channel="elicited")

        async def elsewhere() -> None:
            await inbox.closed(request.id)

        async def unanswered() -> None:
            await service.desk.note_misuse(tool, token, needed, session=request.session)

        options = tuple(Option(one["id"], one["label"], one["description"]) for one in request.options)
        waiting = Done(typed_here(needed), is_error=True)
        return AskPerson(request.id, request.question, options, answered, waiting, elsewhere, unanswered)


def offered(service: WorkflowService) -> list[WorkflowSummary]:
    """The workflows that can be started; `meta` is not one to choose."""
    return [entry for entry in service.library.list() if entry.id != META and not entry.broken]


def procedure(service: WorkflowService, instructions: str, *pages: str) -> str:
    """How to begin: the first of these pages that the library has, else its first page, else what the dialect itself says."""
    for page in (*pages, "00"):
        try:
            return service.library.source("resource", page, workflow=META).content.decode()
        except DefinitionError:
            continue
    return f"# How to begin\n\n{instructions}\n"


def meta_of(outcome: Outcome[Any] | None) -> dict[str, Any]:
    if outcome is None:
        return {}
    return {"session_token": outcome.token, "validation": validation_json(outcome.warnings)}


def validation_json(warnings: Sequence[str]) -> dict[str, Any]:
    """What clients look at to see whether a call was all right."""
    return {"status": "warning" if warnings else "valid", "warnings": [typed_here(one) for one in warnings]}


def with_warnings(body: Mapping[str, Any], outcome: Outcome[Any] | None) -> dict[str, Any]:
    """A model sees no `_meta`, so warnings stand in the body too."""
    warnings = [typed_here(one) for one in outcome.warnings] if outcome is not None else []
    return {**body, "warnings": warnings} if warnings else dict(body)


def transitions(workflow: Workflow, record: Record) -> list[dict[str, Any]]:
    """Every way on, with `holds`: true, false, or null when it is not known yet."""
    from fidelio.engine.transitions import list_transitions  # noqa: PLC0415  # the first reply does not wait for it

    return [
        {"to": way.to, "holds": way.holds, "default": way.default, **({"condition": way.condition} if way.condition else {})}
        for way in list_transitions(workflow, record)
    ]


def started_json(outcome: Outcome[Started]) -> dict[str, Any]:
    """The body of start_session."""
    started, workflow = outcome.result, outcome.result.workflow
    about = {"id": workflow.id, "version": workflow.version, "title": workflow.title, "description": workflow.description}
    flags = {name: True for name in ("inherited", "adopted", "recovered") if getattr(started, name)}
    warning = {"warning": started.warning} if started.warning else {}
    return {"workflow": about, "session_token": outcome.token, **flags, **warning}


def trace_json(outcome: Outcome[Trace]) -> dict[str, Any]:
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


def resolution_json(resolved: Resolved) -> dict[str, Any]:
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


EITHER = "Either checkpoint_handle or session_token must be provided."


def as_json(body: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()


def reply(body: Mapping[str, Any], outcome: Outcome[Any] | None = None, **meta: Any) -> Done:
    """A small reply: JSON as text, and the same as structured content."""
    whole = with_warnings(body, outcome)
    return Done(as_json(whole), {**meta_of(outcome), **meta}, structured=whole)


def listing(body: Mapping[str, Any], outcome: Outcome[Any]) -> Done:
    """A reply that grows with its session: JSON without indentation, and nothing beside it."""
    return document(msgspec.json.encode(with_warnings(body, outcome)).decode(), outcome)


def document(text: str, outcome: Outcome[Any], **meta: Any) -> Done:
    """A large text, and nothing beside it: clients that get structured content show the model that and drop the text."""
    return Done(text, {**meta_of(outcome), **meta})


def headed(outcome: Outcome[Any], text: str, *lines: str) -> str:
    """Header lines, an empty line, the text."""
    return "\n".join([*lines, f"session_token: {outcome.token}", "", text])


def resolved_json(resolved: Resolved, handle: str) -> dict[str, Any]:
    body = {"checkpoint_id": resolved.checkpoint, "resolved": True, "checkpoint_handle": handle}
    return {**body, **resolution_json(resolved)}
