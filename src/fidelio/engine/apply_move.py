"""Making a move: the events that it consists of, or the reason why it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fidelio.engine import phrases
from fidelio.engine.answers import Choice, Circumstances, Resolution, resolve
from fidelio.engine.checkpoints import asking, current_checkpoint
from fidelio.engine.departures import departure
from fidelio.engine.manifests import LONGEST_OUTPUT
from fidelio.engine.moves import Action, Move, Situation, situation
from fidelio.engine.problems import Refusal
from fidelio.engine.progress import collection
from fidelio.engine.record import ANSWERED, LOOP_ADVANCED, STEP_COMPLETED, YIELDED, Draft, foreseen
from fidelio.engine.scope import known, running_loop
from fidelio.engine.state import Pass, Record
from fidelio.engine.transitions import exists
from fidelio.engine.variables import set_by_step, too_much

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Loop, Workflow


@dataclass(frozen=True, slots=True)
class Act:
    """A move that somebody asks for. `items` is what a loop over a list goes over, when the record does not know it.

    `output` is what came of a step, in the agent's words.

    A question that is answered before anybody has put it on record is put there with its answer: as `request`, and as if it had
    been there since `reached`.
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
class Actor:
    """Who asks for it, and over which channel an answer comes."""

    by: str
    channel: str = "relayed"
    assurance: str = "relayed"


def accept(
    workflow: Workflow, record: Record, act: Act, how: Circumstances, actor: Actor, *, found: Situation | None = None
) -> list[Draft] | Refusal:
    """The events of the move if it is one that `situation` offers; `found` is what that is, where it is known already."""
    offered = found or situation(workflow, record, now=how.now, person=how.demands_person)
    move = next((move for move in offered.offered if (move.action, move.target) == (act.action, act.target)), None)
    if move is None:
        return _refused(workflow, record, act, offered.blocked, how)
    match act.action:
        case "complete_step":
            return _completed(workflow, record, move, act.output)
        case "advance_loop":
            return _advanced(workflow, record, move, act.items)
        case "transition":
            return departure(workflow, record, act.target, again=act.target == record.activity)
        case _:
            return _answered(workflow, record, act, how, actor)


def _completed(workflow: Workflow, record: Record, move: Move, output: str) -> list[Draft] | Refusal:
    task = move.task
    if task is None or task.step is None:
        return []
    if move.needs == "output" and not output.strip():
        return Refusal("OUTPUT_REQUIRED", f"Step '{task.id}' has no output.", "Say in `output` what came of it.")
    body = {"activity": record.activity, "step": task.id, "at": task.at, "loop": task.loop}
    if output:
        body["output"] = output[:LONGEST_OUTPUT]
    running = record.here.running
    if task.loop and running is not None:
        body["iteration"] = running.iteration
    return [Draft(STEP_COMPLETED, body), *set_by_step(workflow, record, task.step)]


def _advanced(workflow: Workflow, record: Record, move: Move, items: Sequence[Any] | None) -> list[Draft] | Refusal:
    activity, task = workflow.activity(record.activity), move.task
    loop = next((loop for loop in activity.loops if loop.id == move.target), None) if activity is not None else None
    if loop is None or task is None:
        return Refusal("LOOP_NOT_FOUND", f"Loop not found: {move.target}.")
    running = record.here.running if running_loop(workflow, record.here) is loop else None
    whole = _items(workflow, record, loop, items) if running is None else _still(loop, running, items)
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
    return [Draft(LOOP_ADVANCED, body)]


def _items(workflow: Workflow, record: Record, loop: Loop, given: Sequence[Any] | None) -> tuple[Any, ...] | Refusal | None:
    """What the loop goes over: what the record knows, else what is given."""
    if loop.type != "forEach":
        return None
    listed = collection(loop, known(workflow, record))
    if listed and given and tuple(given) != listed:
        return _other_items(loop)
    items = listed or tuple(given or ())
    if not items:
        remedy = f"Give loop_items, or report {loop.over} in `variables`." if loop.over else "Give loop_items."
        return Refusal("LOOP_ITEMS_REQUIRED", f"It is not known what loop '{loop.id}' goes over.", remedy)
    return too_much({}, {loop.over or loop.id: list(items)}) or items


def _still(loop: Loop, running: Pass, given: Sequence[Any] | None) -> tuple[Any, ...] | Refusal | None:
    """A loop that is running goes over what it began with."""
    if loop.type == "forEach" and given and tuple(given)[: loop.max_iterations] != running.items:
        return _other_items(loop)
    return running.items


def _other_items(loop: Loop) -> Refusal:
    sentence = f"Loop '{loop.id}' goes over what is on record; other loop_items are not taken."
    before = f", or report {loop.over} in `variables` before the first pass" if loop.over else ""
    return Refusal("LOOP_ITEMS_KNOWN", sentence, f"Leave loop_items out{before}.")


def _answered(workflow: Workflow, record: Record, act: Act, how: Circumstances, actor: Actor) -> list[Draft] | Refusal:
    asked = asking(workflow, record, act.target)
    before: list[Draft] = []
    if record.waiting_for(asked) is None:
        request = act.request or asked.key
        before = [Draft(YIELDED, {"checkpoint": act.target, "request": request, "iteration": asked.iteration})]
        if act.reached is None:
            how = replace(how, min_response_ms=0)
        record = foreseen(record, before, how.now if act.reached is None else act.reached)
    found = resolve(workflow, record, choice_of(act), how, asked=asked)
    if isinstance(found, Resolution):
        body = found.body(by=actor.by, channel=actor.channel, assurance=actor.assurance)
        return [*before, Draft(ANSWERED, body)]
    return found


def choice_of(act: Act) -> Choice:
    """How an act answers a question."""
    if act.action == "dismiss_checkpoint":
        return Choice(condition_not_met=True)
    return Choice(auto_advance=True) if act.action == "take_default" else Choice(act.option)


def _refused(workflow: Workflow, record: Record, act: Act, blocked: Sequence[Move], how: Circumstances) -> Refusal:
    why = next((move for move in blocked if (move.action, move.target) == (act.action, act.target)), None)
    if record.status == "completed":
        return Refusal("WORKFLOW_COMPLETED", "The workflow is complete.")
    activity = workflow.activity(record.activity)
    if act.action == "transition":
        return _no_transition(workflow, record, act.target, why)
    if activity is None:
        return Refusal("ACTIVITY_NOT_FOUND", phrases.NO_CURRENT_ACTIVITY, "Enter an activity first.")
    if act.action == "complete_step":
        return _no_step(activity, record, act.target, why)
    if act.action == "advance_loop":
        return _no_loop(activity, act.target, why)
    return _no_answer(workflow, record, act, how, why)


def _no_transition(workflow: Workflow, record: Record, target: str, why: Move | None) -> Refusal:
    if not exists(workflow, target):
        return Refusal("TARGET_ACTIVITY_NOT_FOUND", phrases.activity_not_found(target))
    sentence = phrases.no_valid_transition(target, record.activity or "the start")
    return Refusal(why.code, f"{sentence} {why.reason}") if why is not None else Refusal("INVALID_TRANSITION", sentence)


def _no_step(activity: Activity, record: Record, step: str, why: Move | None) -> Refusal:
    inside = [one.id for loop in activity.loops for one in loop.steps]
    if step not in (*(one.id for one in activity.steps), *inside):
        return Refusal("STEP_NOT_FOUND", f"Step not found: {step} in activity {activity.id}.")
    if why is not None:
        return Refusal(why.code, f"Step '{step}' cannot be completed: {why.reason}")
    running = record.here.running
    if step in record.here.done or (running is not None and step in running.done):
        return Refusal("STEP_ALREADY_COMPLETE", f"Step '{step}' is complete already.")
    return Refusal("STEP_NOT_NEXT", f"Step '{step}' is not one that can come next.")


def _no_loop(activity: Activity, loop: str, why: Move | None) -> Refusal:
    if loop not in [one.id for one in activity.loops]:
        return Refusal("LOOP_NOT_FOUND", f"Loop not found: {loop} in activity {activity.id}.")
    sentence = f"Loop '{loop}' has no pass to go into."
    return Refusal(why.code, f"{sentence} {why.reason}") if why is not None else Refusal("LOOP_NOT_NEXT", sentence)


def _no_answer(workflow: Workflow, record: Record, act: Act, how: Circumstances, why: Move | None) -> Refusal:
    if record.pending_as(act.target) is not None:
        # It waits, so what speaks against this way of answering is what speaks against it everywhere.
        found = resolve(workflow, record, choice_of(act), how, asked=asking(workflow, record, act.target))
        if isinstance(found, Refusal):
            return found
    if current_checkpoint(workflow, record, act.target) is None:
        return Refusal("CHECKPOINT_NOT_FOUND", phrases.checkpoint_not_found(act.target, record.activity))
    if (answer := record.answer_to(act.target)) is not None:
        said = answer.option or "condition_not_met"
        return Refusal("CHECKPOINT_ALREADY_RESPONDED", phrases.answered_otherwise(act.target, said))
    sentence = why.reason if why is not None else f"Checkpoint '{act.target}' is not to be answered now."
    return Refusal("CHECKPOINT_NOT_REACHED", sentence)
