"""Apply a move to a session: build its events, or explain why it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fidelio.engine import phrases
from fidelio.engine.answers import AnswerChoice, AnswerContext, Resolution, resolve_answer
from fidelio.engine.checkpoints import evaluate_condition, find_current_checkpoint, find_instance, needs_person
from fidelio.engine.due_iterations import find_due_items
from fidelio.engine.manifests import MAX_OUTPUT_LENGTH, is_blank
from fidelio.engine.moves import Action, PossibleMove, describe_situation
from fidelio.engine.person_checkpoints import refuse_unanswered
from fidelio.engine.progress import find_checkpoint_before
from fidelio.engine.record import ANSWERED, LOOP_ADVANCED, STEP_COMPLETED, YIELDED, EventDraft, fold_drafts
from fidelio.engine.scope import collect_values, find_running_loop
from fidelio.engine.state import LoopIteration, Record, Refusal
from fidelio.engine.transition_events import draft_transition
from fidelio.engine.transitions import list_transitions, target_exists
from fidelio.engine.variables import check_size, draft_step_variables

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Loop, Workflow


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """A move that a caller requests. `items` are the items of a `forEach` loop, if the record does not know them.

    `output` is the agent's description of a step's result.

    A checkpoint that is answered before it was opened is opened together with its answer: under the id `request`, and with
    `reached` as its opening time.
    """

    action: Action
    target: str
    option: str = ""
    items: Sequence[Any] | None = None
    output: str = ""
    request: str = ""
    reached: int | None = None

    @property
    def answers(self) -> bool:
        return self.action in ("respond_to_checkpoint", "dismiss_checkpoint", "take_default")


@dataclass(frozen=True, slots=True)
class MoveActor:
    """Who requests the move, and the channel and assurance of an answer."""

    by: str
    channel: str = "relayed"
    assurance: str = "relayed"


def apply_move(
    workflow: Workflow,
    record: Record,
    request: MoveRequest,
    context: AnswerContext,
    actor: MoveActor,
    *,
    earlier: Record | None = None,
) -> list[EventDraft] | Refusal:
    """The events of the move, if `describe_situation` offers it.

    `earlier` is the record without what the call reports: it does not report away a question that only a person answers.
    """
    transitions, person = list_transitions(workflow, record), context.demands_person
    offered = describe_situation(workflow, record, now=context.now, person=person, transitions=transitions)
    move = next((move for move in offered.offered if (move.action, move.target) == (request.action, request.target)), None)
    if move is None:
        return _explain_refusal(workflow, record, request, offered.blocked, context)
    match request.action:
        case "complete_step":
            refusal = _refuse_reported_away(workflow, record, earlier, move, server=person) if earlier is not None else None
            return refusal or _complete_step(workflow, record, move, request.output)
        case "advance_loop":
            return _advance_loop(workflow, record, move, request.items)
        case "transition":
            new_visit = request.target == record.activity
            drafts = draft_transition(workflow, record, request.target, new_visit=new_visit, candidates=transitions)
            return refuse_unanswered(workflow, record, drafts, earlier=earlier, server=person) or drafts
        case _:
            return _answer_checkpoint(workflow, record, request, context, actor)


def _refuse_reported_away(
    workflow: Workflow, record: Record, earlier: Record, move: PossibleMove, *, server: bool
) -> Refusal | None:
    """Refuse a step whose checkpoint a person has to answer, if only what the call itself reports says otherwise."""
    task = move.task
    if task is None or (checkpoint := find_checkpoint_before(workflow, earlier, task)) is None:
        return None
    demanded = checkpoint.required and needs_person(workflow, record, checkpoint, server=server)
    if not demanded or evaluate_condition(workflow, earlier, checkpoint) is not True:
        return None
    return Refusal("CHECKPOINT_BLOCKING", f"Step '{task.id}' cannot be completed.", phrases.answered_first(checkpoint.id))


def _complete_step(workflow: Workflow, record: Record, move: PossibleMove, output: str) -> list[EventDraft] | Refusal:
    task = move.task
    if task is None or task.step is None:
        return []
    if move.needs == "output" and is_blank(output):
        return Refusal("OUTPUT_REQUIRED", f"Step '{task.id}' has no output.", "Say in `output` what came of it.")
    body = {"activity": record.activity, "step": task.id, "at": task.at, "loop": task.loop}
    if output:
        body["output"] = output[:MAX_OUTPUT_LENGTH]
    running = record.here.running
    if task.loop and running is not None:
        body["iteration"] = running.iteration
    return [EventDraft(STEP_COMPLETED, body), *draft_step_variables(workflow, record, task.step)]


def _advance_loop(
    workflow: Workflow, record: Record, move: PossibleMove, items: Sequence[Any] | None
) -> list[EventDraft] | Refusal:
    activity, task = workflow.activity(record.activity), move.task
    loop = next((loop for loop in activity.loops if loop.id == move.target), None) if activity is not None else None
    if loop is None or task is None:
        return Refusal("LOOP_NOT_FOUND", f"Loop not found: {move.target}.")
    running = record.here.running if find_running_loop(workflow, record.here) is loop else None
    whole = _choose_items(workflow, record, loop, items) if running is None else _keep_items(loop, running, items)
    if isinstance(whole, Refusal):
        return whole
    body = {
        "activity": record.activity,
        "loop": loop.id,
        "iteration": running.iteration + 1 if running is not None else 1,
        "items": list(whole[: loop.max_iterations]) if whole is not None else None,
        "at": task.at,
        "loops_over": list(task.loops_over),
    }
    if whole is not None and len(whole) > loop.max_iterations:
        body["left_out"] = len(whole) - loop.max_iterations
    return [EventDraft(LOOP_ADVANCED, body)]


def _choose_items(
    workflow: Workflow, record: Record, loop: Loop, requested: Sequence[Any] | None
) -> tuple[Any, ...] | Refusal | None:
    """The items of the loop: those in the record, else those in the request."""
    if loop.type != "forEach":
        return None
    listed = find_due_items(loop, record, collect_values(workflow, record))
    if listed and requested and tuple(requested) != listed:
        return _refuse_other_items(loop)
    items = listed or tuple(requested or ())
    if not items:
        remedy = f"Give loop_items, or report {loop.over} in `variables`." if loop.over else "Give loop_items."
        return Refusal("LOOP_ITEMS_REQUIRED", f"It is not known what loop '{loop.id}' goes over.", remedy)
    return check_size({}, {loop.over or loop.id: list(items)}) or items


def _keep_items(loop: Loop, running: LoopIteration, requested: Sequence[Any] | None) -> tuple[Any, ...] | Refusal | None:
    """The items that a running loop began with; other items are refused."""
    if loop.type == "forEach" and requested and tuple(requested)[: loop.max_iterations] != running.items:
        return _refuse_other_items(loop)
    return running.items


def _refuse_other_items(loop: Loop) -> Refusal:
    sentence = f"Loop '{loop.id}' goes over what is on record; other loop_items are not taken."
    before = f", or report {loop.over} in `variables` before the first pass" if loop.over else ""
    return Refusal("LOOP_ITEMS_KNOWN", sentence, f"Leave loop_items out{before}.")


def _answer_checkpoint(
    workflow: Workflow, record: Record, request: MoveRequest, context: AnswerContext, actor: MoveActor
) -> list[EventDraft] | Refusal:
    instance = find_instance(workflow, record, request.target)
    before: list[EventDraft] = []
    if record.find_open(instance) is None:
        request_id = request.request or instance.key
        before = [EventDraft(YIELDED, {"checkpoint": request.target, "request": request_id, "iteration": instance.iteration})]
        if request.reached is None:
            context = replace(context, min_response_ms=0)
        record = fold_drafts(record, before, context.now if request.reached is None else request.reached)
    found = resolve_answer(workflow, record, build_choice(request), context, instance=instance)
    if isinstance(found, Resolution):
        body = found.body(by=actor.by, channel=actor.channel, assurance=actor.assurance)
        return [*before, EventDraft(ANSWERED, body)]
    return found


def build_choice(request: MoveRequest) -> AnswerChoice:
    """The answer to a checkpoint that the request contains."""
    if request.action == "dismiss_checkpoint":
        return AnswerChoice(condition_not_met=True)
    return AnswerChoice(auto_advance=True) if request.action == "take_default" else AnswerChoice(request.option)


def _explain_refusal(
    workflow: Workflow, record: Record, request: MoveRequest, blocked: Sequence[PossibleMove], context: AnswerContext
) -> Refusal:
    why = next((move for move in blocked if (move.action, move.target) == (request.action, request.target)), None)
    if record.ended:
        code = "WORKFLOW_COMPLETED" if record.status == "completed" else "WORKFLOW_CANCELLED"
        return Refusal(code, phrases.session_ended(record.status))
    activity = workflow.activity(record.activity)
    if request.action == "transition":
        return _refuse_transition(workflow, record, request.target, why)
    if activity is None:
        return Refusal("ACTIVITY_NOT_FOUND", phrases.NO_CURRENT_ACTIVITY, "Enter an activity first.")
    if request.action == "complete_step":
        return _refuse_step(activity, record, request.target, why)
    if request.action == "advance_loop":
        return _refuse_loop(activity, request.target, why)
    return _refuse_answer(workflow, record, request, context, why)


def _refuse_transition(workflow: Workflow, record: Record, target: str, why: PossibleMove | None) -> Refusal:
    if not target_exists(workflow, target):
        return Refusal("TARGET_ACTIVITY_NOT_FOUND", phrases.activity_not_found(target))
    sentence = phrases.no_valid_transition(target, record.activity or "the start")
    return Refusal(why.code, sentence, why.reason) if why is not None else Refusal("INVALID_TRANSITION", sentence)


def _refuse_step(activity: Activity, record: Record, step: str, why: PossibleMove | None) -> Refusal:
    if step not in [known_step.id for known_step in activity.all_steps]:
        return Refusal("STEP_NOT_FOUND", f"Step not found: {step} in activity {activity.id}.")
    if why is not None:
        return Refusal(why.code, f"Step '{step}' cannot be completed.", why.reason)
    running = record.here.running
    if step in record.here.done or (running is not None and step in running.done):
        return Refusal("STEP_ALREADY_COMPLETE", f"Step '{step}' is complete already.")
    return Refusal("STEP_NOT_NEXT", f"Step '{step}' cannot come next.")


def _refuse_loop(activity: Activity, loop: str, why: PossibleMove | None) -> Refusal:
    if loop not in [known_loop.id for known_loop in activity.loops]:
        return Refusal("LOOP_NOT_FOUND", f"Loop not found: {loop} in activity {activity.id}.")
    sentence = f"Loop '{loop}' has no pass to go into."
    return Refusal(why.code, sentence, why.reason) if why is not None else Refusal("LOOP_NOT_NEXT", sentence)


def _refuse_answer(
    workflow: Workflow, record: Record, request: MoveRequest, context: AnswerContext, why: PossibleMove | None
) -> Refusal:
    if record.find_pending(request.target) is not None:
        # The checkpoint is open, so the general rules for answers give the reason.
        found = resolve_answer(
            workflow, record, build_choice(request), context, instance=find_instance(workflow, record, request.target)
        )
        if isinstance(found, Refusal):
            return found
    if find_current_checkpoint(workflow, record, request.target) is None:
        return Refusal("CHECKPOINT_NOT_FOUND", phrases.checkpoint_not_found(request.target, record.activity))
    if (answer := record.find_answer(request.target)) is not None:
        recorded = answer.option or "condition_not_met"
        return Refusal("CHECKPOINT_ALREADY_RESPONDED", phrases.already_answered(request.target, recorded))
    sentence = f"Checkpoint '{request.target}' is not to be answered now."
    return Refusal("CHECKPOINT_NOT_REACHED", sentence, why.reason if why is not None else "")
