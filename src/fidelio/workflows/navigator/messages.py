"""Messages of the navigator dialect: the result of a call, and the position of the session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fidelio.definitions.models import Workflow
from fidelio.engine import phrases
from fidelio.engine.apply_move import MoveRequest
from fidelio.engine.moves import Situation
from fidelio.engine.record import LOOP_ADVANCED, EventDraft, Record
from fidelio.engine.state import Refusal
from fidelio.engine.transitions import ends_workflow
from fidelio.workflows.unit_of_work import WorkflowCall

NOT_YOURS = "NOT_YOURS"
_GO_ON = "Nothing was done. Go on with the state of this reply, which shows what is possible now, or of nav_situation."


def describe_start(workflow: Workflow) -> str:
    note = " Its activities are independent of each other: enter the one that fits." if workflow.independent else ""
    return f"Started workflow '{workflow.id}'.{note}"


def describe_move(workflow: Workflow, act: MoveRequest, after: Situation) -> str:
    """Describe the result of a move."""
    if act.action == "complete_step":
        return f"Completed step '{act.target}'"
    if act.action == "advance_loop":
        return _describe_iteration(act.target, after)
    if act.action == "transition":
        ends = ends_workflow(workflow, act.target)
        return describe_end(workflow) if ends else f"Entered activity '{act.target}'"
    return describe_answer(
        act.target, act.option or ("condition_not_met" if act.action == "dismiss_checkpoint" else "its default")
    )


def describe_answer(checkpoint: str, option: str) -> str:
    return f"Checkpoint '{checkpoint}' is answered: {option}"


def describe_end(workflow: Workflow) -> str:
    return f"Workflow '{workflow.id}' is completed."


def describe_position(workflow: Workflow, record: Record, situation: Situation) -> str:
    """Describe the position of a session."""
    if record.ended:
        return describe_end(workflow) if record.status == "completed" else phrases.session_ended(record.status)
    if not record.activity:
        return f"Workflow '{workflow.id}' has not entered an activity yet."
    if situation.checkpoint:
        return f"In activity '{record.activity}': checkpoint '{situation.checkpoint}' is to be answered."
    step = situation.position.step
    return f"In activity '{record.activity}': step '{step}' is next." if step else f"In activity '{record.activity}'."


def describe_switch(left: Workflow, entered: Workflow, *, begins: bool) -> str:
    if begins:
        return f"Workflow '{entered.id}' begins; '{left.id}' waits for its end."
    return f"Back in workflow '{entered.id}'."


def describe_stale(earlier: Record | None, call: WorkflowCall) -> tuple[str, str]:
    """Return the sentence and remedy for a stale state; `earlier` is the record that the state carries, if any."""
    position = _describe_record(earlier) if earlier is not None else f"'{call.claims.act or 'the start'}'"
    sentence = f"This state is stale: it was made at {position}, the session is at {_describe_record(call.record)}."
    return sentence, _GO_ON


def _describe_record(record: Record) -> str:
    running, activity = record.here.running, f"'{record.activity or 'the start'}'"
    visit = f"{activity}, visit {record.visit}" if record.activity else activity
    return visit if running is None else f"{visit}, pass {running.iteration} of loop '{running.loop}'"


def describe_moved_on(workflow: Workflow) -> tuple[str, str]:
    """Return the sentence and remedy for a state of a session that the agent has left."""
    sentence = f"This state is stale: the session now continues in workflow '{workflow.id}'."
    return sentence, _GO_ON


def no_resource(record: Record, reference: str, numbers: Sequence[str], problem: str) -> Refusal:
    """Refuse to read a resource; `problem` is the error of its file, empty if there is no such file."""
    if (waiting := record.waiting) is not None:
        return Refusal("CHECKPOINT_BLOCKING", f"Checkpoint '{waiting.checkpoint}' is to be answered first.")
    listed = f"Those that can be read here are: {', '.join(numbers)}." if numbers else "There is none to read here."
    return Refusal("RESOURCE_NOT_FOUND", problem or f"Resource not found: {reference}.", listed)


def loop_warnings(drafts: Iterable[EventDraft]) -> Iterator[str]:
    """Warn of loops whose maximum is lower than the number of their items."""
    for draft in drafts:
        if draft.type == LOOP_ADVANCED and (rest := draft.body.get("left_out")):
            count, loop = len(draft.body["items"]), draft.body["loop"]
            yield (
                f"Loop '{loop}' goes over the first {count} of {count + rest} items: its maxIterations is {count}. "
                "Raise it in the definition, or do the rest by yourself and say so."
            )


def _describe_iteration(loop: str, after: Situation) -> str:
    running = next((running for running in reversed(after.position.loops) if running.id == loop), None)
    if running is None:
        return f"Loop '{loop}' goes into its next pass"
    total = f" of {running.total}" if running.total is not None else ""
    return f"Loop '{loop}': pass {running.iteration}{total}"
