"""What a person decides about outcomes: definitions, decisions, and switching the gate off for a single write.

Only services that act for a person call these functions; no tool does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fidelio.errors import UsageProblem
from fidelio.ledger.long_text import sanitize_text
from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.outcomes.checks import validate_rules
from fidelio.runtime.outcomes.parsing import Author, check_definition, parse_outcome
from fidelio.runtime.stores import refuse_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

Decision = Literal["pass", "fail"]
_MAX_NOTE = 2_000


async def plan_outcome(
    session: LoadedRuntime, body: Mapping[str, Any], *, author: Author, by: str = "", wake: str = ""
) -> NewEvent:
    """The event of a definition that fits the session. Raises `UsageProblem`."""
    event = parse_outcome(body, author=author, by=by, wake=wake)
    check_definition(session.record.outcomes, event)
    await validate_rules(criterion.get("check", {}) for criterion in event.body["criteria"])
    return event


async def decide_outcome(
    context: RuntimeContext, session: str, outcome_id: str, decision: Decision, *, by: str, note: str = ""
) -> None:
    """Record a person's decision about an outcome. It holds until the outcome is replaced or decided again."""
    if decision not in ("pass", "fail"):
        raise UsageProblem(f"{decision!r:.80} is not a decision.", remedy="Use pass or fail.")

    def decide(current: LoadedRuntime) -> SessionDecision[None]:
        refuse_store(current)
        if current.record.outcomes.find(outcome_id) is None:
            known = ", ".join(f"{outcome.id} ({outcome.title})" for outcome in current.record.outcomes.outcomes) or "none"
            raise UsageProblem(f"Session {session} has no outcome {outcome_id!r:.80}.", remedy=f"Its outcomes: {known}.")
        body = {"outcome_id": outcome_id, "decision": decision, "by": by, "note": sanitize_text(note)[:_MAX_NOTE]}
        return SessionDecision(None, events=(NewEvent(type=e.OUTCOME_DECIDED, body=body, actor=by),))

    await context.unit.update(session, decide)


async def override_gate(context: RuntimeContext, session: str, *, by: str, note: str = "") -> None:
    """Switch the gate off for the next write of shared content. The write itself still needs its approval."""

    def decide(current: LoadedRuntime) -> SessionDecision[None]:
        refuse_store(current)
        body = {"by": by, "note": sanitize_text(note)[:_MAX_NOTE]}
        return SessionDecision(None, events=(NewEvent(type=e.GATE_OVERRIDDEN, body=body, actor=by),))

    await context.unit.update(session, decide)
