"""Lines for the events of a runtime session: messages quoted, each call folded to a line, the rest in a sentence. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from fidelio.clock import format_local
from fidelio.definitions.wording import describe_count
from fidelio.ledger.model import Event
from fidelio.runtime import events as e
from fidelio.runtime.reading import join_content
from fidelio.surfaces.text import Layout, escape_line, measure, quote_name

# The arguments that say most about a call, in this order.
_TELLING = ("command", "path", "sourcePath", "targetPath", "pattern", "query", "title", "name", "key", "toolName", "sessionId")
_MAX_ARGUMENT, _MAX_SENTENCE, _SHORTEST = 200, 400, 8


class _OpenCall(msgspec.Struct, frozen=True):
    name: str
    input: Any
    time: int


class EventLines:
    """Makes the lines of events, in their order. It remembers calls until their results arrive."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._calls: dict[str, _OpenCall] = {}

    def render(self, event: Event, body: Mapping[str, Any]) -> list[str]:
        """The lines of an event; `body` is its body with all texts. Most bookkeeping has none."""
        if event.type in (e.TOOL_USE, e.CUSTOM_TOOL_USE):
            self._calls[str(body.get("id", ""))] = _OpenCall(str(body.get("name", "")), body.get("input"), event.time)
            return []
        if event.type == e.TOOL_RESULT:
            return self._fold_call(event, body)
        if event.type == e.AGENT_MESSAGE:
            return list(self._layout.quote_text(join_content(dict(body)), max_lines=None))
        if event.type == e.USER_MESSAGE:
            return [*self._wrap(f"{_who(event)}:"), *self._layout.quote_text(join_content(dict(body)), max_lines=None)]
        sentence = _SENTENCES.get(event.type)
        return list(self._wrap(sentence(event, body))) if sentence is not None else []

    def describe_call(self, tool_use: str) -> str:
        """An open call on a line; empty if it is not known."""
        call = self._calls.get(tool_use)
        return "" if call is None else _describe_call(call, self._layout.width - 8)

    @property
    def newest_call(self) -> str:
        return next(reversed(self._calls), "")

    def _fold_call(self, event: Event, body: Mapping[str, Any]) -> list[str]:
        call = self._calls.pop(str(body.get("tool_use_id", "")), None) or _OpenCall(str(body.get("name", "")), {}, event.time)
        result = describe_result(body)
        seconds = (event.time - call.time) / 1000
        after = f" ({seconds:.1f} s)" if seconds >= 0.1 else ""
        mark = "!" if body.get("is_error") else "-"
        # The end of the line says how it went, so the arguments are cut first; what a tool said of an error is cut too.
        end = self._layout.shorten(f": {result}{after}", max(self._layout.width // 2, self._layout.width - 40))
        return [f"{mark} {_describe_call(call, self._layout.width - measure(end) - 2)}{end}"]

    def _wrap(self, line: str) -> Iterator[str]:
        return self._layout.wrap_line(line) if line else iter(())


def _describe_call(call: _OpenCall, width: int) -> str:
    name = quote_name(call.name)
    summary, left = summarize_input(call.input), width - measure(name) - 3
    return f"{name} {quote_name(summary, left)}" if summary and left >= _SHORTEST else name


def summarize_input(arguments: Any) -> str:
    """The argument of a call that says most, or all of them as JSON."""
    if not isinstance(arguments, Mapping):
        return escape_line(str(arguments or ""))[:_MAX_ARGUMENT]
    if isinstance(inner := arguments.get("arguments"), Mapping) and "name" in arguments:
        return f"{escape_line(str(arguments['name']))} {summarize_input(inner)}"[:_MAX_ARGUMENT]
    value = next((arguments[key] for key in _TELLING if isinstance(arguments.get(key), str)), None)
    if value is None:
        return escape_line(msgspec.json.encode(arguments).decode())[:_MAX_ARGUMENT] if arguments else ""
    words = [value, *(word for word in arguments.get("args") or () if isinstance(word, str))]
    return escape_line(" ".join(words))[:_MAX_ARGUMENT]


def describe_result(body: Mapping[str, Any]) -> str:
    """How a call went, in a few words."""
    result = body.get("result")
    fields = result if isinstance(result, Mapping) else {}
    if body.get("is_error"):
        error = fields.get("error")
        message = error.get("message", "") if isinstance(error, Mapping) else result
        return f"failed. {escape_line(str(message or ''))[:_MAX_SENTENCE]}".rstrip(". ") + "."
    output = fields.get("output") if isinstance(fields.get("output"), Mapping) else fields
    assert isinstance(output, Mapping)
    if output.get("timedOut"):
        return "ended by its time limit"
    if isinstance(output.get("exitCode"), int):
        return f"exit code {output['exitCode']}"
    return "still running" if output.get("status") == "running" else "done"


def _who(event: Event) -> str:
    return quote_name(event.actor.removeprefix("person:") or "somebody")


def _sentence(text: Any) -> str:
    return escape_line(str(text or ""))[:_MAX_SENTENCE]


def _quote(text: Any) -> str:
    """A text of the agent or of a person inside of a line of ours."""
    return quote_name(str(text or ""), _MAX_ARGUMENT)


def _time(value: Any) -> str:
    return f"{format_local(value)}" if isinstance(value, int) else "later"


def _describe_error(_: Event, body: Mapping[str, Any]) -> str:
    error = body.get("error") or {}
    status = (error.get("retry_status") or {}).get("type")
    message = _sentence(error.get("message"))
    if status == "retrying":
        return f"! {message} It is tried again."
    return f"! {message} {_sentence(error.get('remedy'))}".rstrip()


_STOPPED = {
    "budget_reached": "It has stopped: a limit is reached.",
    "retries_exhausted": "It has stopped after an error. The next message starts it again.",
    "refusal": "It has stopped: the model refused to answer.",
}


def _describe_idle(_: Event, body: Mapping[str, Any]) -> str:
    return _STOPPED.get((body.get("stop_reason") or {}).get("type", ""), "")


def _describe_rescheduled(_: Event, body: Mapping[str, Any]) -> str:
    return f"It goes on by itself at {_time(body.get('due'))}." if body.get("reason") == "follow_up" else ""


def _describe_queued(_: Event, body: Mapping[str, Any]) -> str:
    # Wakes that the runtime queues for itself are announced by the event that comes with them.
    if str(body.get("reason", "")).startswith("session."):
        return ""
    note = f", with the note {_quote(body['note'])}" if body.get("note") else ""
    return f"It wakes at {_time(body.get('due'))}: {_quote(body.get('reason'))}{note}"


def _describe_cancelled(_: Event, body: Mapping[str, Any]) -> str:
    count = len(body.get("ids") or ())
    return f"{count} queued wake{'' if count == 1 else 's'} cancelled."


def _describe_schedule(_: Event, body: Mapping[str, Any]) -> str:
    name = quote_name(str(body.get("name", "")))
    every = body.get("every_seconds")
    return f"Schedule {name}: every {every} s, next at {_time(body.get('next'))}." if every else f"Schedule {name} was removed."


def _describe_verdict(_: Event, body: Mapping[str, Any]) -> str:
    trend = str(body.get("trend", "")).replace("_", " ")
    return f"Outcome, iteration {body.get('iteration', 0)}: {_quote(body.get('status'))}, {escape_line(trend)}."


def _describe_outcome(event: Event, body: Mapping[str, Any]) -> str:
    count = describe_count(len(body.get("criteria") or ()), "criterion", "criteria")
    return f"Outcome {_quote(body.get('title'))} with {count}, defined by {_who(event)}."


def _describe_confirmation(event: Event, body: Mapping[str, Any]) -> str:
    comment = f": {_quote(body['deny_message'])}" if body.get("deny_message") else ""
    return f"{_who(event)} {'allows' if body.get('result') == 'allow' else 'denies'} it{comment}"


def _describe_decision(event: Event, body: Mapping[str, Any]) -> str:
    return f"{_who(event)} decides on the outcome: {_quote(body.get('decision'))}."


def _describe_child(_: Event, body: Mapping[str, Any]) -> str:
    return f"It delegates {_quote(body.get('outcomeTitle'))} to session {_quote(body.get('childSessionId'))}."


def _describe_idle_child(_: Event, body: Mapping[str, Any]) -> str:
    reason = escape_line(str(body.get("childStopReason") or "end_turn").replace("_", " "))
    return f"Session {_quote(body.get('childSessionId'))} is idle: {reason}."


def _describe_returned(_: Event, body: Mapping[str, Any]) -> str:
    units = {"tokens": "tokens", "usd": "US dollars", "wall_seconds": "seconds"}
    budget: Mapping[str, Any] = body.get("budget") or {}
    amounts = [f"{budget[name]:,.10g} {unit}" for name, unit in units.items() if budget.get(name)]
    return f"Session {_quote(body.get('childSessionId'))} returns {', '.join(amounts) or 'nothing'} of its share of the budget."


_SENTENCES: Mapping[str, Callable[[Event, Mapping[str, Any]], str]] = {
    e.SESSION_ERROR: _describe_error,
    e.STATUS_IDLE: _describe_idle,
    e.STATUS_RESCHEDULED: _describe_rescheduled,
    e.WAKE_QUEUED: _describe_queued,
    e.WAKES_CANCELLED: _describe_cancelled,
    e.SCHEDULE_SET: _describe_schedule,
    e.EVALUATION_ENDED: _describe_verdict,
    e.OUTCOME_DEFINED: _describe_outcome,
    e.OUTCOME_DECIDED: lambda event, body: (
        f"{_who(event)} decides on the outcome: {quote_name(str(body.get('decision', '')))}."
    ),
    e.USER_CONFIRMATION: _describe_confirmation,
    e.USER_INTERRUPT: lambda event, _: f"{_who(event)} interrupts.",
    e.USER_TOOL_RESULT: lambda event, _: f"{_who(event)} gives the result of a custom tool.",
    e.WORKER_RESULT: lambda event, _: f"{_who(event)} gives the result of a call that a worker has carried out.",
    e.SYSTEM_MESSAGE: lambda event, _: f"{_who(event)} adds to the instructions.",
    e.CONTEXT_COMPACTED: lambda _, __: "Older messages are summarised for the model.",
    e.CHILD_CREATED: _describe_child,
    e.CHILD_IDLE: _describe_idle_child,
    e.CHILD_BUDGET_RETURNED: _describe_returned,
    e.SESSION_ARCHIVED: lambda event, _: f"{_who(event)} archives the session.",
    e.ENDED: lambda event, _: f"The session was ended by {_who(event)}.",
}
