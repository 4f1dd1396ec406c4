"""Automatic recall: the cue that a wake searches with at its beginning, and the search itself.

The cue is composed from what the wake is about. It is not shown to the model; the hits become notes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from fidelio.runtime import events as e
from fidelio.runtime.memory.session_memory import load_session_memory
from fidelio.runtime.navigation.verdicts import find_verdict, read_standing
from fidelio.runtime.outcomes.record import Outcome
from fidelio.runtime.outcomes.verdicts import read_grade
from fidelio.runtime.recall.model import RecallResult, RecallScope
from fidelio.runtime.recall.search import recall
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.wakes.content import join_texts

MAX_PIECES = 6
MAX_PIECE = 240
MAX_HITS = 3
# The newest events in which the last message of the agent is looked for.
_NEWEST = 64


class CueSubject(msgspec.Struct, frozen=True, kw_only=True):
    """What a cue is composed from; everything may be empty. `outcome` was defined by what the wake received."""

    message: str = ""
    outcome: str = ""
    open_loop: str = ""
    blocked_tool: str = ""
    grade: str = ""
    evaluation: str = ""
    summary: str = ""
    response: str = ""
    working_buffer: str = ""
    session_state: str = ""
    checkpoint_outcome: str = ""


def compose_cue(subject: CueSubject) -> str:
    """The pieces that are not empty, each once and cut, the first of them in their order."""
    pieces = dict.fromkeys(" ".join(piece.split())[:MAX_PIECE].strip() for piece in msgspec.structs.astuple(subject))
    return "\n".join([piece for piece in pieces if piece][:MAX_PIECES])


def read_subject(session: LoadedRuntime, *, message: str, outcome: str, tools: Collection[str], now: int) -> CueSubject:
    """What the record tells for the cue. `message` and `outcome` are what the wake has received."""
    record = session.record
    pending, active = read_standing(record, now=now).pending, record.outcomes.active
    busy = record.shell.running is not None
    grade = read_grade(record, shell_busy=busy, tools=tools, now=now) if active is not None else {}
    verdict = find_verdict(record, tools, now=now) if active is not None else None
    return CueSubject(
        message=message,
        outcome=outcome,
        open_loop=" ".join(_describe_open_loop(session)),
        blocked_tool=pending.tool if pending is not None else "",
        grade=str(grade.get("summary") or ""),
        evaluation=str(verdict.json.get("summary") or "") if verdict is not None else "",
        summary=record.wakes.summary,
        checkpoint_outcome=_describe_outcome(active),
    )


async def recall_automatically(
    context: RuntimeContext, session: LoadedRuntime, *, message: str, tools: Collection[str], outcome: str = ""
) -> RecallResult:
    """The recall of a wake."""
    subject = read_subject(session, message=message, outcome=outcome, tools=tools, now=context.clock())
    subject = await _add_texts(context, session, subject)
    cue = compose_cue(subject)
    if not cue:
        return RecallResult()
    scope = RecallScope(limit=MAX_HITS, backends=("memory", "session_context", "session_trace"), is_automatic=True)
    return await recall(context, session, cue, tools=tools, scope=scope)


async def _add_texts(context: RuntimeContext, session: LoadedRuntime, subject: CueSubject) -> CueSubject:
    """Add the last message of the agent and its notes, which are not in the record."""
    last = session.session.last_seq
    newest = await context.ledger.events(session.id, after=max(0, last - _NEWEST), types=(e.AGENT_MESSAGE,), limit=_NEWEST)
    buffer = await load_session_memory(context, session.id, "working_buffer")
    state = await load_session_memory(context, session.id, "session_state")
    return msgspec.structs.replace(
        subject,
        response=join_texts(newest[-1].body.get("content", [])) if newest else "",
        working_buffer=buffer.text,
        session_state=state.text,
    )


def _describe_open_loop(session: LoadedRuntime) -> Iterator[str]:
    """What the session stopped at: a reason other than the end of its turn, and a tool that the caller has to carry out."""
    wakes = session.record.wakes
    if wakes.stop_reason not in ("", "end_turn"):
        yield wakes.stop_reason
    yield from (call.name for call in wakes.open_calls if call.state == "custom")
    yield from (wake.reason for wake in wakes.queued)


def _describe_outcome(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    return " ".join((outcome.title, outcome.detail, *(criterion.text for criterion in outcome.criteria)))
