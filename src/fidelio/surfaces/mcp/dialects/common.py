"""Base class of the dialects' handlers, and the JSON and `_meta` that their replies share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from fidelio.app.application import Application
from fidelio.clock import now_ms
from fidelio.definitions import META
from fidelio.definitions.library import Library, WorkflowSummary
from fidelio.definitions.models import Definition, Workflow
from fidelio.engine.manifests import ActivityReport, StepReport
from fidelio.engine.record import CheckpointAnswer, Record
from fidelio.engine.transitions import list_transitions
from fidelio.errors import Command, DefinitionError, FidelioError, Hint, PersonNeeded, Text, UsageProblem, WorkflowRefusal
from fidelio.ids import is_short_handle
from fidelio.surfaces.mcp.dialects.sessions.parameters import NextActivity
from fidelio.toolkit import AskPerson, CallContext, Done, Outcome, Tool, ToolHandlers
from fidelio.workflows.checkpoints import ResolvedCheckpoint
from fidelio.workflows.content import SkillText
from fidelio.workflows.moves import Move
from fidelio.workflows.start import StartResult
from fidelio.workflows.trace import Trace
from fidelio.workflows.unit_of_work import CallResult, DefinitionOrigin

MAX_CACHED_DEFINITIONS = 512
UNCHANGED = (
    "You got this text before, and it is unchanged. To get it again pass full: true, or call start_session with session_token."
)
MAX_LISTED_TRANSITIONS = 200
MAX_LISTED_BROKEN = 20
# The arguments that name the session of a call.
_TOKEN_NAMES = ("session_token", "checkpoint_handle", "state", "parent_session_token")
MAX_DESCRIPTION = 120


class DefinitionTexts:
    """The texts of definitions in a dialect, cached because agents read the same definitions repeatedly.

    For a workflow of 14 activities with 20 steps each, encoding takes 5 ms for the summary as TOON, 15 ms for the workflow as
    JSON and 0.5 ms for an activity; the rest of a call takes about 1 ms.
    """

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Definition, str]] = {}

    def get_or_encode(self, definition: Definition, encode: Callable[[Any], str]) -> str:
        # By id(), because comparing large definitions costs more than encoding them. The entry holds the definition, so that
        # its id is not reused.
        entry = self._texts.get(id(definition))
        if entry is None:
            if len(self._texts) >= MAX_CACHED_DEFINITIONS:
                self._texts.clear()
            entry = self._texts[id(definition)] = definition, encode(definition)
        return entry[1]


class Dialect(ToolHandlers):
    """Base class of the handlers of a dialect."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.texts = DefinitionTexts()
        self._listed: tuple[Sequence[WorkflowSummary], str, tuple[Text, ...]] = (), "", ()

    def render_list(self, library: Library, context: CallContext, encode: Callable[[Sequence[WorkflowSummary]], str]) -> Done:
        """The reply of list_workflows. Cached: encoding 500 workflows takes 60 times as long as the rest of the call."""
        entries = library.checked_list()
        if self._listed[0] is not entries:
            text = encode(self.list_workflow_entries(library))
            self._listed = entries, text, tuple(_describe_unlisted(self.app, library, entries))
        _, text, remarks = self._listed
        return Done(text, remarks=tuple(context.render(remark) for remark in remarks))

    async def call(self, tool: Tool[Any], arguments: Mapping[str, Any], context: CallContext) -> Outcome:
        """Carry out a call. What is wrong with its form is a text of its own where the reply does not show it."""
        outcome = await super().call(tool, arguments, context)
        if not isinstance(outcome, Done) or not context.warnings:
            return outcome
        unseen = [warning for warning in context.warnings if warning not in outcome.text]
        return replace(outcome, remarks=(*outcome.remarks, *unseen))

    async def admit_unknown_arguments(self, problem: UsageProblem, arguments: Mapping[str, Any], context: CallContext) -> None:
        """Warn of arguments that the tool does not have, or refuse the call where moves are enforced."""
        service = await self.app.workflows()
        tokens = [arguments[name] for name in _TOKEN_NAMES if isinstance(arguments.get(name), str)]
        if arguments.get("fidelity") == "enforce" or await service.is_enforced(
            next(filter(None, tokens), ""), str(arguments.get("workflow_id") or "")
        ):
            raise problem
        context.warnings.append(problem.sentence)

    def list_workflow_entries(self, library: Library) -> Sequence[WorkflowSummary]:
        """The workflows that `list_workflows` lists."""
        return list_startable_workflows(library)

    async def record_refused_call(self, tool: str, arguments: Mapping[str, Any], error: FidelioError) -> None:
        """Record a call whose arguments were refused, if it names a session."""
        token = arguments.get("session_token") or arguments.get("checkpoint_handle")
        if isinstance(token, str) and token:
            await (await self.app.workflows()).record_refused_call(tool, token, error)

    def render_error(self, error: FidelioError) -> Text:
        """Return the text of an error, without the directories of the server."""
        return error.text.map_text(self.app.remove_root_paths)

    async def describe_health(self) -> dict[str, Any]:
        """Return the body of health_check."""
        return {
            "status": "healthy",
            "server": self.app.settings.server_name,
            "version": self.app.settings.server_version,
            "workflows_available": len(list_startable_workflows(await self.app.library())),
            "uptime_seconds": (now_ms() - self.app.started_at) // 1000,
        }

    async def require_free_session(self, context: CallContext, tool: str, token: str) -> None:
        """Raise if an agent would move a session that the conductor moves, or answer for people in it.

        A worker has tools for its own part of the session, but it may reach any other server too. Who the caller is costs a
        lookup over HTTP, so it is asked last.
        """
        if self.app.is_worker or (context.identify_peer is None and not context.claimed.is_agent):
            return
        service = await self.app.workflows()
        session = service.session_of(token)
        if await self.app.is_conducted(session) and (await context.identify()).is_agent:
            refusal = WorkflowRefusal(
                f"Session {session} is moved by the conductor, and an agent cannot move it or answer in it.",
                remedy="Report your part with the tools of the worker; the conductor continues from there.",
                reason="session.conducted",
            )
            await service.record_refused_call(tool, token, refusal)
            raise refusal

    async def ask_person(self, context: CallContext, needed: PersonNeeded, tool: str, token: str) -> AskPerson:
        """Put the request to the person at the client; a call that gets no answer is recorded as refused."""
        question = await context.ask(needed.request)

        async def record_unanswered() -> None:
            await (await self.app.workflows()).record_refused_call(tool, token, needed, session=question.session)

        return replace(
            question, waiting_reply=Done(context.render(needed.text), is_error=True), record_unanswered=record_unanswered
        )


class TextParameters(Protocol):
    """Parameters of a tool that returns a skill, a resource or a workflow."""

    session_token: str
    full: bool


def find_repeated(
    context: CallContext, outcome: CallResult[Any], arguments: TextParameters, name: str, text: str
) -> str | None:
    """Return the digest of a text that the agent of the token got before on this connection; None if it is sent whole.

    A short handle names no agent, so what it reads is neither looked up nor recorded.
    """
    if context.delivered is None or is_short_handle(arguments.session_token):
        return None
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    key = outcome.session, outcome.agent, name, digest
    if context.delivered.has(*key) and not arguments.full:
        return digest
    context.delivered.add(*key)
    return None


def forget_delivered(context: CallContext, outcome: CallResult[Any], token: str) -> None:
    """Forget what a session got, if it is continued: the agent may have lost its context."""
    if context.delivered is not None and token:
        context.delivered.forget(outcome.session)


def skill_key(skill: SkillText) -> str:
    """The name under which the delivery of a skill is recorded, whichever tool returns it."""
    return f"skill {skill.loaded.owner}/{skill.loaded.definition.id}" if skill.loaded is not None else f"skill {skill.id}"


def list_startable_workflows(library: Library) -> list[WorkflowSummary]:
    """List the workflows that an agent can start: not `meta`, and none that is broken."""
    return [entry for entry in library.checked_list() if entry.id != META and not entry.broken]


def _describe_unlisted(app: Application, library: Library, entries: Iterable[WorkflowSummary]) -> Iterator[Text]:
    """Remarks about what is not in the list: broken workflows, and projects that nobody has trusted."""
    for entry in islice((entry for entry in entries if entry.broken), MAX_LISTED_BROKEN):
        yield _describe_broken(entry).map_text(app.remove_root_paths)
    for root in library.untrusted:
        yield _describe_project(str(root.path.parent.parent))


def shorten_description(text: str) -> str:
    """The description of a workflow as a line of a list: its first sentence, cut at a word."""
    head, more, _ = " ".join(text.split()).partition(". ")
    line = head + more.strip()
    return line if len(line) <= MAX_DESCRIPTION else f"{line[:MAX_DESCRIPTION].rsplit(' ', 1)[0]}…"


def describe_list(entries: Sequence[WorkflowSummary]) -> list[dict[str, Any]]:
    """The entries of a list of workflows."""
    return [
        {"id": entry.id, "title": entry.title, "version": entry.version, "description": shorten_description(entry.description)}
        for entry in entries
    ]


def _describe_broken(entry: WorkflowSummary) -> Hint:
    said = f"The workflow {entry.id} is broken and cannot be started: {entry.findings[0].sentence} "
    return Hint(said, Command("lint"), " shows file and line.")


def _describe_project(project: str) -> Hint:
    said = f"Nobody has trusted the workflows of {project}, so they are not listed. A person can do that with "
    return Hint(said, Command("trust", project), "; then start the server again.")


def load_procedure(library: Library, instructions: str, *pages: str) -> str:
    """Return the first of `pages` that the library has, else page 00 of `meta`, else the instructions of the dialect."""
    for page in (*pages, "00"):
        try:
            return library.source("resource", page, workflow=META).content.decode()
        except DefinitionError:
            continue
    return f"# How to begin\n\n{instructions}\n"


def none_if_unset(value: Any) -> Any:
    """Return None for an argument that the caller left out."""
    return None if value is msgspec.UNSET else value


def build_move(arguments: NextActivity) -> Move:
    """Convert the arguments of next_activity to a move of the service."""
    steps, activities = none_if_unset(arguments.step_manifest), none_if_unset(arguments.activity_manifest)
    return Move(
        arguments.activity_id,
        none_if_unset(arguments.transition_condition),
        None if steps is None else [StepReport(e.step_id, e.output, e.iteration, e.item) for e in steps],
        None
        if activities is None
        else [ActivityReport(e.activity_id, e.outcome, none_if_unset(e.transition_condition)) for e in activities],
        arguments.variables,
    )


def build_meta(context: CallContext, outcome: CallResult[Any] | None) -> dict[str, Any]:
    if outcome is None:
        return {}
    meta = {"session_token": outcome.token, "validation": validation_json(context, outcome.warnings)}
    return {**meta, "definition": origin_json(context, outcome.definition)} if outcome.definition is not None else meta


def origin_json(context: CallContext, definition: DefinitionOrigin) -> dict[str, Any]:
    """The `definition` object of `_meta`: what the call was made with, and how the files have drifted."""
    return {"source": definition.source, "drift": [context.render(warning) for warning in definition.warnings]}


def validation_json(context: CallContext, warnings: Sequence[Text]) -> dict[str, Any]:
    """The `validation` object of `_meta`: status and warnings of a call."""
    rendered = [*context.warnings, *(context.render(warning) for warning in warnings)]
    return {"status": "warning" if rendered else "valid", "warnings": rendered}


def add_warnings(context: CallContext, body: Mapping[str, Any], outcome: CallResult[Any] | None) -> dict[str, Any]:
    """Add the warnings to the body, because a model does not see `_meta`."""
    warnings = [*context.warnings, *(context.render(warning) for warning in (outcome.warnings if outcome is not None else ()))]
    return {**body, "warnings": warnings} if warnings else dict(body)


def transitions_json(workflow: Workflow, record: Record) -> dict[str, Any]:
    """The transitions of the current activity, with `holds`: true, false, or null while it is undecided.

    Ways around skipped activities that a client cannot tell apart are one entry. `more_transitions` counts what is not listed.
    """
    entries = dict.fromkeys(
        (found.to, found.holds, found.default, found.condition) for found in list_transitions(workflow, record)
    )
    listed = [
        {"to": to, "holds": holds, "default": default, **({"condition": condition} if condition else {})}
        for to, holds, default, condition in islice(entries, MAX_LISTED_TRANSITIONS)
    ]
    more = len(entries) - len(listed)
    return {"transitions": listed, **({"more_transitions": more} if more else {})}


def started_json(outcome: CallResult[StartResult]) -> dict[str, Any]:
    """The body of start_session."""
    result, workflow = outcome.result, outcome.result.workflow
    description = {"id": workflow.id, "version": workflow.version, "title": workflow.title, "description": workflow.description}
    flags = {name: True for name in ("inherited", "adopted", "recovered") if getattr(result, name)}
    warning = {"warning": result.warning} if result.warning else {}
    return {"workflow": description, "session_token": outcome.text_token, **flags, **warning}


def trace_json(outcome: CallResult[Trace]) -> dict[str, Any]:
    """The body of get_trace."""
    trace = outcome.result
    body: dict[str, Any] = {"traceId": outcome.session, "source": trace.source}
    if trace.source == "memory":
        body["tracing_enabled"] = True
    body |= {"event_count": len(trace.events), "events": list(trace.events), "session_token": outcome.text_token}
    if trace.errors:
        body["token_errors"] = list(trace.errors)
    return {**body, **_rest_json(trace)}


def _rest_json(trace: Trace) -> dict[str, Any]:
    """The keys that say how to read the rest of a long trace."""
    if (remainder := trace.rest) is None:
        return {}
    tokens = f"the trace_tokens from number {remainder.done} on (counted from 0) and " if trace.source == "tokens" else ""
    more = f"This is not all. Call get_trace again with {tokens}after: {remainder.after}."
    return {"more": more, "next": {"after": remainder.after, **({"from_token": remainder.done} if tokens else {})}}


def answer_json(answer: CheckpointAnswer) -> dict[str, Any]:
    """A recorded answer, with its person and channel."""
    body: dict[str, Any] = {"option_id": answer.option or None, "effect": answer.effect}
    if answer.mode == "condition_not_met":
        body["dismissed"] = True
    return {**body, "answered_by": answer.by, "channel": answer.channel}


def resolution_json(resolved: ResolvedCheckpoint) -> dict[str, Any]:
    """The result of an answer: option, effect, or dismissal."""
    resolution = resolved.resolution
    body = {"resolved_option": resolution.option, "effect": resolution.effect, "dismissed": resolution.dismissed}
    return {key: value for key, value in body.items() if value}


def definition_json(definition: Definition) -> dict[str, Any]:
    """A definition with its defaults, without empty collections and without fields about its file."""
    fields = [(key, getattr(definition, name), default) for name, key, default in _list_fields(type(definition))]
    body = {key: _to_builtins(value) for key, value, default in fields if not _is_omitted(value, default)}
    return {**body, **(definition.model_extra or {})}


@cache
def _list_fields(kind: type[Definition]) -> list[tuple[str, str, Any]]:
    """List attribute, key and default of the fields of a definition that replies include."""
    fields = kind.model_fields.items()
    return [(name, field.alias or name, field.default) for name, field in fields if name not in _FILE_FIELDS]


_FILE_FIELDS = frozenset({"owner", "broken", "schema_hint"})


def _is_omitted(value: Any, default: Any) -> bool:
    return value is None or (value == default and not isinstance(default, (bool, int, str)))


def _to_builtins(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_to_builtins(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_builtins(item) for key, item in value.items()}
    return definition_json(value) if hasattr(value, "model_extra") else value


def as_json(body: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()
