"""What the navigation says of a session in a sentence: what a call has done, and where it stands."""

from __future__ import annotations

from fidelio.definitions.models import Workflow
from fidelio.engine.acting import Act
from fidelio.engine.moves import Situation
from fidelio.engine.record import Record
from fidelio.engine.transitions import ends_workflow
from fidelio.engine.verdicts import Refusal
from fidelio.workflows.desk import Opened


def started(workflow: Workflow) -> str:
    more = " Its activities are independent of each other: enter the one that fits." if workflow.independent else ""
    return f"Started workflow '{workflow.id}'.{more}"


def made(workflow: Workflow, act: Act, after: Situation) -> str:
    """What a move has done."""
    if act.action == "complete_step":
        return f"Completed step '{act.target}'"
    if act.action == "advance_loop":
        return _pass(act.target, after)
    if act.action == "transition":
        ends = ends_workflow(workflow, act.target)
        return completed(workflow) if ends else f"Entered activity '{act.target}'"
    return answered(act.target, act.option or ("condition_not_met" if act.action == "dismiss_checkpoint" else "its default"))


def answered(checkpoint: str, option: str) -> str:
    return f"Checkpoint '{checkpoint}' is answered: {option}"


def completed(workflow: Workflow) -> str:
    return f"Workflow '{workflow.id}' is completed."


def standing(workflow: Workflow, record: Record, found: Situation) -> str:
    """Where a session stands, for whoever comes back to it."""
    if record.status == "completed":
        return completed(workflow)
    if not record.activity:
        return f"Workflow '{workflow.id}' has not entered an activity yet."
    if found.checkpoint:
        return f"In activity '{record.activity}': checkpoint '{found.checkpoint}' is to be answered."
    step = found.position.step
    return f"In activity '{record.activity}': step '{step}' is next." if step else f"In activity '{record.activity}'."


def elsewhere(left: Workflow, entered: Workflow, *, begins: bool) -> str:
    if begins:
        return f"Workflow '{entered.id}' begins; '{left.id}' waits for its end."
    return f"Back in workflow '{entered.id}'."


def stale(opened: Opened) -> tuple[str, str]:
    then, now = opened.claims.act or "the start", opened.record.activity or "the start"
    sentence = f"This state is stale: it stands at '{then}', the session at '{now}'."
    return sentence, "Somebody else moved the session. Call nav_situation and go on with the state it returns."


def moved_on(workflow: Workflow) -> tuple[str, str]:
    sentence = f"This state is stale: the work has gone on in workflow '{workflow.id}'."
    return sentence, "Call nav_situation and go on with the state it returns."


def no_resources(record: Record) -> Refusal:
    if (waiting := record.waiting) is not None:
        return Refusal("CHECKPOINT_BLOCKING", f"Checkpoint '{waiting.checkpoint}' is to be answered first.")
    return Refusal("RESOURCE_NOT_FOUND", "Resource not found: there is none to read here.")


def _pass(loop: str, after: Situation) -> str:
    running = next((one for one in reversed(after.position.loops) if one.id == loop), None)
    if running is None:
        return f"Loop '{loop}' goes into its next pass"
    total = f" of {running.total}" if running.total is not None else ""
    return f"Loop '{loop}': pass {running.iteration}{total}"
