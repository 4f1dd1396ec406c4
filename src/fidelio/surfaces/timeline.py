"""Events in words, for the time line of a session. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.ledger.model import Event
from fidelio.surfaces.event_words import describe_agent_event, format_duration

# Characters of a text in the time line. The page of the event has the whole text.
MOST_TEXT = 1_500
# A longer task of an agent is folded, and so is a JSON document, which a worker reports to the conductor.
_TASKS, _SHORT = ("run.queued",), 300
_REPORTS = ("agent.said", "run.succeeded")
_USED = "run.used"
# So many minor entries in a row, or more, are folded into a line.
_FOLDED = 2


class TimelineEntry(msgspec.Struct, frozen=True):
    """A line of the time line: what happened, a detail of the agent or the person, and who did it."""

    seq: int
    time: int
    type: str
    actor: str
    what: str
    detail: str = ""
    is_error: bool = False
    is_minor: bool = False
    # The result of a call of a tool, if it is on the same page; then the call is folded.
    result: TimelineEntry | None = None
    is_call: bool = False
    # The detail is only the beginning of a text.
    is_cut: bool = False

    @property
    def is_folded(self) -> bool:
        """Whether the detail is shown only when the entry is unfolded: of a call, a long task, and a report."""
        is_report = self.type in _REPORTS and self.detail.lstrip().startswith("{")
        return self.is_call or is_report or (self.type in _TASKS and len(self.detail) > _SHORT)


class MinorEntries(msgspec.Struct, frozen=True):
    """Minor entries in a row, newest first; the page shows them as a single line that can be unfolded."""

    entries: tuple[TimelineEntry, ...]

    @property
    def seq(self) -> int:
        """The number of the oldest: it stays when newer ones come."""
        return self.entries[-1].seq

    @property
    def time(self) -> int:
        return self.entries[0].time

    @property
    def words(self) -> str:
        """What happened, newest first and each once. Usage is a total, so only the newest counts."""
        used = next((entry for entry in self.entries if entry.type == _USED), None)
        return "; ".join(dict.fromkeys(entry.what for entry in self.entries if entry.type != _USED or entry is used))


# The id of a run of an agent: its session with a number.
_RUN = re.compile(r"s_[0-9a-z]+\.\d+", re.ASCII)
Words = Callable[[Mapping[str, Any]], tuple[str, str]]


def has_words(type_: str) -> bool:
    """Whether events of this type are described by more than their type."""
    return type_ in _WORDS


def list_entries(events: Iterable[Event]) -> list[TimelineEntry]:
    """Events in words, each result under its call."""
    found = list(events)
    results = {key: event for event in found if (key := _find_call(event, _RESULTS))}
    calls = {key for event in found if (key := _find_call(event, _CALLS))}
    return [
        _add_result(describe_event(event), results.get(_find_call(event, _CALLS)))
        for event in found
        if _find_call(event, _RESULTS) not in calls
    ]


def fold_minor(entries: Iterable[TimelineEntry]) -> list[TimelineEntry | MinorEntries]:
    """The entries, newest first, with minor ones in a row folded."""
    rows = list[TimelineEntry | MinorEntries]()
    for is_minor, group in groupby(reversed(list(entries)), key=lambda entry: entry.is_minor):
        found = tuple(group)
        rows += [MinorEntries(found)] if is_minor and len(found) >= _FOLDED else found
    return rows


# The key of a body that names the call, by the type of the event.
_CALLS = {"agent.tool_use": "id", "agent.custom_tool_use": "id", "agent.called": "call"}
_RESULTS = {"agent.tool_result": "tool_use_id", "user.custom_tool_result": "custom_tool_use_id", "agent.returned": "call"}


def _find_call(event: Event, keys: Mapping[str, str]) -> str:
    """The id of the call that an event makes or answers; empty if it does neither."""
    key = keys.get(event.type)
    return "" if key is None or event.redacted else str(event.body.get(key) or event.body.get("id") or "")


def _add_result(entry: TimelineEntry, result: Event | None) -> TimelineEntry:
    if entry.type not in _CALLS:
        return entry
    found = None if result is None else describe_event(result)
    return replace(entry, is_call=True, result=found, is_error=entry.is_error or (found is not None and found.is_error))


def describe_event(event: Event) -> TimelineEntry:
    """An event in words, or by its type if it has no words, so that nothing that happened is left out."""
    if event.redacted:
        return TimelineEntry(event.seq, event.time, event.type, event.actor, "content erased", event.type, is_minor=True)
    body = event.body
    what, detail = _find_words(event)
    is_error = bool(body.get("is_error")) or body.get("ok") is False or body.get("s") == "error" or event.type in _ERRORS
    return TimelineEntry(
        event.seq,
        event.time,
        event.type,
        find_actor(event),
        what,
        detail[:MOST_TEXT],
        is_error,
        event.type.startswith(_MINOR) and not is_error,
        is_cut=len(detail) > MOST_TEXT or _is_beginning(body),
    )


def find_actor(event: Event) -> str:
    """Who did it: of variables that the conductor has set for a person, the person."""
    by = "" if event.redacted or event.type != "variables.set" else str(event.body.get("by") or "")
    return by if by.startswith("person:") else event.actor


def _find_words(event: Event) -> tuple[str, str]:
    words = _WORDS.get(event.type)
    if words is not None:
        return words(event.body)
    if event.type.startswith(_OF_RUNS):
        return describe_agent_event(event), ""
    return event.type.replace(".", " ").replace("_", " "), ""


_ERRORS = frozenset({"session.error", "run.failed", "run.lost", "conductor.failed"})
# Events of agents with tools of their own, which the command line has words for.
_OF_RUNS = ("run.", "message.", "worktree.", "callback.", "session.created", "session.deleted")
_MINOR = (
    *("span.", "tool.called", "content.loaded", "skill.loaded", "sandbox.", "agent.thinking", "workspace.", "wake.queued"),
    *("run.starting", "run.process", "run.conversation", "run.used", "session.created", "message.delivered", "callback."),
    *("session.status_rescheduled", "outcome.defined", "runtime.started", "conductor.taken", "conductor.told", "mcp."),
)


def _is_beginning(body: Mapping[str, Any]) -> bool:
    """Whether a text of the body is stored apart from the event, which then has only its beginning."""
    return any(isinstance(value, Mapping) and value.get("blob") for value in body.values())


def _text(value: Any) -> str:
    """A text of a body: itself, a stored text or its beginning, or the values of a mapping, each on a line."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        text = value.get("text")
        return text if isinstance(text, str) else "\n".join(f"{name}: {_encode(item)}" for name, item in value.items())
    return "" if value in (None, [], ()) else _encode(value)


def _encode(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _content(body: Mapping[str, Any]) -> str:
    """The texts of a message."""
    blocks = body.get("content")
    if not isinstance(blocks, list):
        return _text(blocks)
    return "\n".join(
        str(block.get("text") or f"({block.get('type', 'content')})") for block in blocks if isinstance(block, dict)
    )


def _answer(body: Mapping[str, Any]) -> tuple[str, str]:
    option = body.get("option") or "a text"
    how = f" over {body['channel']}" if body.get("channel") else ""
    if isinstance(proof := body.get("proof"), Mapping):
        how += f", signed with the key {proof.get('fingerprint', '')}"
    name = name_checkpoint(str(body.get("key") or ""))
    return f"answered{f' {name}' if name else ''} with {option}{how}", _text(body.get("text"))


def name_checkpoint(key: str) -> str:
    """The checkpoint of the key of a request, which is `activity/checkpoint#visit`.

    Empty for other requests: their keys are digests or numbers within a run, which say nothing to people.
    """
    activity, _, name = key.partition("#")[0].rpartition("/")
    return "" if not activity or _RUN.fullmatch(activity) else name


def _loaded(body: Mapping[str, Any]) -> tuple[str, str]:
    loaded = body.get("loaded")
    return f"was given {', '.join(loaded) if isinstance(loaded, Mapping) and loaded else 'a text'}", ""


def _tool_called(body: Mapping[str, Any]) -> tuple[str, str]:
    """A call of a tool, or a number of equal reads."""
    reads = body.get("reads")
    how = "" if reads is None else " again" if reads == 1 else f" again, {reads} times"
    return f"called {body.get('name', '')}{how}", _text(body.get("err"))


def _call(body: Mapping[str, Any]) -> tuple[str, str]:
    return f"called {body.get('name') or body.get('tool') or 'a tool'}", _call_input(body.get("input") or body.get("arguments"))


def _call_input(stored: Any) -> str:
    """The input of a call, each value on a line. Agents with tools of their own report it as the text of a JSON document."""
    text = _text(stored)
    with suppress(msgspec.DecodeError):
        found = msgspec.json.decode(text)
        return _text(found) if isinstance(found, dict) else text
    return text


def _result(body: Mapping[str, Any]) -> tuple[str, str]:
    return f"result of {body.get('name') or 'a tool'}", _text(body.get("result"))


def _idle(body: Mapping[str, Any]) -> tuple[str, str]:
    reason = body.get("stop_reason") or {}
    kind = reason.get("type", "") if isinstance(reason, Mapping) else str(reason)
    return {"requires_action": "waits for a person", "end_turn": "finished its turn"}.get(kind, f"stopped: {kind}"), ""


def _end_of_run(state: str) -> Words:
    def describe(body: Mapping[str, Any]) -> tuple[str, str]:
        after = f" after {format_duration(int(body['ms']))}" if isinstance(body.get("ms"), int) else ""
        return f"{state}{after}", _text(body.get("result")) or _text(body.get("detail")) or _text(body.get("reason"))

    return describe


def _set_variables(body: Mapping[str, Any]) -> tuple[str, str]:
    variables = body.get("variables") or {}
    if len(variables) == 1:
        ((name, value),) = variables.items()
        return f"set {name}", _text(value)
    return f"set {'variables' if variables else 'no variables'}", _text(variables)


def _set_schedule(body: Mapping[str, Any]) -> tuple[str, str]:
    return f"set the schedule {body.get('name', '')}", _text(body.get("note"))


_WORDS: Mapping[str, Words] = {
    "session.started": lambda body: (f"started {body.get('workflow', 'the workflow')}", ""),
    "activity.entered": lambda body: (f"entered {body.get('activity', '')}", ""),
    "step.completed": lambda body: (f"reported step {body.get('step', '')}", _text(body.get("output"))),
    "loop.advanced": lambda body: (f"began iteration {body.get('iteration', '')} of {body.get('loop', '')}", ""),
    "checkpoint.yielded": lambda body: (f"stopped at {body.get('checkpoint', '')}", ""),
    "checkpoint.resumed": lambda body: (f"went on after {body.get('checkpoint', '')}", ""),
    "request.answered": _answer,
    "variables.set": _set_variables,
    "tool.called": _tool_called,
    "child.started": lambda body: (f"started {body.get('workflow', 'another workflow')}", ""),
    "child.finished": lambda body: (f"{body.get('workflow', 'the child')} came back", ""),
    "session.completed": lambda _: ("completed the workflow", ""),
    "session.cancelled": lambda body: ("was ended", _text(body.get("reason"))),
    "content.loaded": _loaded,
    "skill.loaded": _loaded,
    "user.tool_confirmation": lambda body: (f"said {body.get('result', '')}", _text(body.get("deny_message"))),
    "outcome.defined": lambda body: ("set the outcome", _text(body.get("title"))),
    "conductor.begun": lambda _: ("lets agents carry out the workflow", ""),
    "conductor.taken": lambda _: ("recorded the report of a worker", ""),
    "conductor.told": lambda _: ("told a worker the answers", ""),
    "conductor.failed": lambda body: ("cannot go on", _text(body.get("reason"))),
    "conductor.interrupted": lambda _: ("stopped the agents of the run", ""),
    "session.created": lambda body: (f"created the session from the blueprint {body.get('blueprint') or 'of no name'}", ""),
    "runtime.started": lambda _: ("began the session", ""),
    "run.starting": lambda _: ("began its run", ""),
    "run.process": lambda _: ("started its process", ""),
    "run.conversation": lambda _: ("has a conversation that can be resumed", ""),
    "run.queued": lambda body: (f"run {body.get('number', '')} has this task", _text(body.get("prompt"))),
    "run.waiting": lambda _: ("waits for a person", ""),
    "run.going-on": lambda _: ("goes on after the answer", ""),
    "run.succeeded": _end_of_run("succeeded"),
    "run.failed": _end_of_run("failed"),
    "run.stopped": _end_of_run("stopped"),
    "run.lost": _end_of_run("lost"),
    "message.queued": lambda body: ("message for the next turn", _text(body.get("message"))),
    "user.message": lambda body: ("message", _content(body)),
    "user.interrupt": lambda _: ("interrupted the turn", ""),
    "user.define_outcome": lambda body: ("asked for an outcome", _text(body.get("title"))),
    "outcome.decided": lambda body: (f"decided the outcome: {body.get('status', '')}", ""),
    "agent.message": lambda body: ("said", _content(body)),
    "agent.said": lambda body: ("said", _text(body.get("said") or body.get("text"))),
    "agent.tool_use": _call,
    "agent.custom_tool_use": _call,
    "agent.called": _call,
    "agent.returned": lambda body: ("returned", _text(body.get("text"))),
    "user.custom_tool_result": lambda body: ("gave the result of a tool", _content(body)),
    "agent.tool_result": _result,
    "session.status_idle": _idle,
    "session.status_running": lambda _: ("works", ""),
    "session.status_rescheduled": lambda _: ("wakes again soon", ""),
    "session.error": lambda body: ("error", _text((body.get("error") or {}).get("message"))),
    "session.status_terminated": lambda body: ("ended", _text(body.get("reason"))),
    "session.child_created": lambda _: ("started another session", ""),
    "span.started": lambda body: (f"began a {body.get('span_kind') or 'step'}", ""),
    "span.completed": lambda body: (f"ended a {body.get('span_kind') or 'step'}", ""),
    "span.model_request_start": lambda _: ("asked the model", ""),
    "span.model_request_end": lambda _: ("got an answer of the model", ""),
    "span.outcome_evaluation_start": lambda _: ("checks the outcome", ""),
    "span.outcome_evaluation_end": lambda body: (f"outcome checked: {body.get('status', '')}".replace("_", " "), ""),
    "wake.queued": lambda body: ("queued a wake", _text(body.get("note"))),
    "wake.schedule_set": _set_schedule,
    "approval.requested": lambda body: (f"asks whether {body.get('tool', 'a tool')} may run", _text(body.get("command"))),
}
