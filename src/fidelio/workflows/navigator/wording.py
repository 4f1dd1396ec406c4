"""Words the messages of the navigator dialect: what a call has done, and where the session is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fidelio.definitions.models import Workflow
from fidelio.engine.apply_move import MoveRequest
from fidelio.engine.moves import Situation
from fidelio.engine.record import LOOP_ADVANCED, EventDraft, Record
from fidelio.engine.state import Refusal
from fidelio.engine.transitions import ends_workflow
from fidelio.workflows.unit_of_work import WorkflowCall

NOT_YOURS = "NOT_YOURS"
_GO_ON = "Nothing was done. Go on with the state of this reply, which shows what is possible now, or of nav_situation."


def describe_start(workflow: Workflow) -> str:
    more = " Its activities are independent of each other: enter the one that fits." if workflow.independent else ""
    return f"Started workflow '{workflow.id}'.{more}"


def describe_move(workflow: Workflow, act: MoveRequest, after: Situation) -> str:
    """What a move has done."""
    if act.action == "complete_step":
        return f"Completed step '{act.target}'"
    if act.action == "advance_loop":
        return _pass(act.target, after)
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


def describe_position(workflow: Workflow, record: Record, found: Situation) -> str:
    """Where a session stands, for whoever comes back to it."""
    if record.status == "completed":
        return describe_end(workflow)
    if not record.activity:
        return f"Workflow '{workflow.id}' has not entered an activity yet."
    if found.checkpoint:
        return f"In activity '{record.activity}': checkpoint '{found.checkpoint}' is to be answered."
    step = found.position.step
    return f"In activity '{record.activity}': step '{step}' is next." if step else f"In activity '{record.activity}'."


def describe_switch(left: Workflow, entered: Workflow, *, begins: bool) -> str:
    if begins:
        return f"Workflow '{entered.id}' begins; '{left.id}' waits for its end."
    return f"Back in workflow '{entered.id}'."


def describe_stale(then: Record | None, call: WorkflowCall) -> tuple[str, str]:
    """`then` is the record of the state, where it carries one."""
    stood = _at(then) if then is not None else f"'{call.claims.act or 'the start'}'"
    sentence = f"This state is stale: it stands at {stood}, the session at {_at(call.record)}."
    return sentence, _GO_ON


def _at(record: Record) -> str:
    running, activity = record.here.running, f"'{record.activity or 'the start'}'"
    visit = f"{activity}, visit {record.visit}" if record.activity else activity
    return visit if running is None else f"{visit}, pass {running.iteration} of loop '{running.loop}'"


def describe_moved_on(workflow: Workflow) -> tuple[str, str]:
    sentence = f"This state is stale: the work has gone on in workflow '{workflow.id}'."
    return sentence, _GO_ON


def no_resource(record: Record, reference: str, numbers: Sequence[str], problem: str) -> Refusal:
    """`problem` is what is wrong with the file, where there is one."""
    if (waiting := record.waiting) is not None:
        return Refusal("CHECKPOINT_BLOCKING", f"Checkpoint '{waiting.checkpoint}' is to be answered first.")
    listed = f"Those that can be read here are: {', '.join(numbers)}." if numbers else "There is none to read here."
    return Refusal("RESOURCE_NOT_FOUND", problem or f"Resource not found: {reference}.", listed)


def loop_warnings(drafts: Iterable[EventDraft]) -> Iterator[str]:
    """That a loop goes over less than its list has."""
    for draft in drafts:
        if draft.type == LOOP_ADVANCED and (rest := draft.body.get("left_out")):
            taken, loop = len(draft.body["items"]), draft.body["loop"]
            yield (
                f"Loop '{loop}' goes over the first {taken} of {taken + rest} items: its maxIterations is {taken}. "
                "Raise it in the definition, or do the rest by yourself and say so."
            )


def _pass(loop: str, after: Situation) -> str:
    running = next((one for one in reversed(after.position.loops) if one.id == loop), None)
    if running is None:
        return f"Loop '{loop}' goes into its next pass"
    total = f" of {running.total}" if running.total is not None else ""
    return f"Loop '{loop}': pass {running.iteration}{total}"
