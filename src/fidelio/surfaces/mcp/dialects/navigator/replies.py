"""Replies of the `navigator` dialect: position, possible actions, the open checkpoint, and the state token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fidelio.definitions.models import Activity, Checkpoint, Option, Step
from fidelio.engine.checkpoints import find_current_checkpoint, needs_person
from fidelio.engine.moves import LoopPosition, PossibleMove
from fidelio.engine.scope import collect_values, fill_template, find_expected_artifacts, render_text
from fidelio.engine.transitions import ends_workflow
from fidelio.errors import WorkflowRefusal
from fidelio.surfaces.mcp.dialects.common import as_json, origin_json, validation_json
from fidelio.toolkit import CallContext, Done
from fidelio.workflows.navigator.service import NavigatorReply
from fidelio.workflows.navigator.situations import NavigatorView

Json = dict[str, Any]


def render_situation(context: CallContext, found: NavigatorReply) -> Done:
    """Return the reply of every navigation tool: position, actions, checkpoint, state."""
    body = _describe_situation(context, found.view, found.message, found.state, success=True)
    if found.resource is not None:
        about = {"index": found.resource.index, "name": found.resource.name, "title": found.resource.title}
        body["resource"] = {**about, "content": found.resource.content}
    validation = validation_json(context, found.warnings)
    if validation["warnings"]:
        body["warnings"] = validation["warnings"]
    # As text alone: the reply grows long, and clients drop the text if there is structured content.
    origin = {"definition": origin_json(context, found.definition)} if found.definition is not None else {}
    return Done(as_json(body), {"session_token": found.token, "validation": validation, **origin})


def render_refusal(context: CallContext, refusal: WorkflowRefusal, standing: NavigatorView, state: str) -> Done:
    """Return the reply to a refused move: the error, and the unchanged situation with its possible actions."""
    message = context.render(refusal.text)
    body = _describe_situation(context, standing, f"Action failed: {message}", state, success=False)
    return Done(as_json({**body, "error": {"code": _find_code(refusal.reason), "message": message}}), is_error=True)


def render_checkpoint(context: CallContext, found: NavigatorReply) -> Done:
    body: Json = {"active": False, "message": f"No checkpoint has to be answered now. {found.message}"}
    if (question := _describe_question(context, found.view)) is not None:
        how = "Put it to the user; answer with respond_to_checkpoint." if question["options"] else question["message"]
        body = {"active": True, "checkpoint": question, "message": how}
    whole = {**body, "state": found.state}
    return Done(as_json(whole), {"session_token": found.token}, structured=whole)


def _describe_situation(context: CallContext, standing: NavigatorView, message: str, state: str, *, success: bool) -> Json:
    unverified = {"unverified": True} if standing.record.unverified else {}
    return {
        "success": success,
        "position": _describe_position(standing),
        "message": message,
        "status": standing.record.status,
        "availableActions": _describe_actions(context, standing),
        "checkpoint": _describe_question(context, standing),
        **unverified,
        "state": state,
    }


def _describe_position(standing: NavigatorView) -> Json:
    position, activity = standing.situation.position, _find_activity(standing)
    body: Json = {"workflow": position.workflow, "activity": None, "step": None, "loop": None}
    if activity is not None:
        body["activity"] = {"id": activity.id, "name": activity.name, **_describe_artifacts(standing)}
    if position.step:
        body["step"] = {"id": position.step, "index": position.step_number, "name": position.step_name}
    if position.loops:
        *outer, inner = position.loops
        body["loop"] = {
            **_render_loop(inner),
            **({"within": [_render_loop(loop) for loop in reversed(outer)]} if outer else {}),
        }
    return body


def _describe_artifacts(standing: NavigatorView) -> Json:
    """The expected artifacts of the activity; only before its first step, so that they are sent once."""
    here = standing.record.here
    expected = [] if here.at or here.running else find_expected_artifacts(standing.workflow, standing.record)
    listed = [{"id": item.id, "name": item.name, "directory": item.directory, "action": item.action} for item in expected]
    return {"artifacts": listed} if listed else {}


def _render_loop(loop: LoopPosition) -> Json:
    item = {} if loop.item is None else {"item": loop.item}
    return {"id": loop.id, "name": loop.name, "iteration": loop.iteration, "total": loop.total, **item}


def _describe_actions(context: CallContext, standing: NavigatorView) -> Json:
    found = standing.situation
    optional = [_describe_offer(standing, move) for move in found.optional]
    if standing.resources:
        optional.append({"action": "get_resource", "resources": list(standing.resources)})
    return {
        "required": [_describe_offer(standing, move) for move in found.required],
        "optional": optional,
        "blocked": [{**_name_move(move), "reason": context.render(move.reason)} for move in found.blocked],
    }


def _describe_offer(standing: NavigatorView, move: PossibleMove) -> Json:
    offer = _name_move(move)
    offer.update(_describe_details(standing, move))
    return offer


_TARGETS = {"complete_step": "step", "advance_loop": "loop", "transition": "activity"}
# The engine has separate actions for these answers; this dialect has a single action with a flag.
_FLAGS = {"dismiss_checkpoint": "condition_not_met", "take_default": "auto_advance"}


def _name_move(move: PossibleMove) -> Json:
    if (kind := _TARGETS.get(move.action)) is not None:
        return {"action": move.action, kind: move.target}
    flag = {_FLAGS[move.action]: True} if move.action in _FLAGS else {}
    return {"action": "respond_to_checkpoint", "checkpoint": move.target, **flag}


def _describe_details(standing: NavigatorView, move: PossibleMove) -> Iterator[tuple[str, Any]]:
    if move.options:
        yield "options", list(move.options)
    if move.person:
        yield "answered_by", "person"
    elif standing.wait_ms and move.action == "respond_to_checkpoint":
        yield "wait_ms", standing.wait_ms
    if move.needs:
        yield "needs", move.needs
    if move.task is not None and move.task.step is not None:
        yield from _describe_step(standing, move.task.step)
    elif move.action == "transition":
        yield from _describe_activity(standing, move.target)
    elif move.action == "advance_loop":
        yield from _describe_loop(standing, move.target)


def _describe_step(standing: NavigatorView, step: Step) -> Iterator[tuple[str, Any]]:
    yield "name", step.name
    if step.description:
        yield "description", render_text(standing.workflow, standing.record, step.description)
    if step.skill:
        yield "skill", step.skill
    if step.triggers:
        yield "starts", [trigger.workflow for trigger in step.triggers]


def _describe_activity(standing: NavigatorView, target: str) -> Iterator[tuple[str, Any]]:
    activity = standing.workflow.activity(target)
    if activity is None:
        yield from [("ends", True)] if ends_workflow(standing.workflow, target) else []
        return
    yield "name", activity.name
    if standing.record.activity or not standing.workflow.independent:
        return
    yield from [("problem", activity.problem)] if activity.problem else []
    yield "recognition", list(activity.recognition)


def _describe_loop(standing: NavigatorView, name: str) -> Iterator[tuple[str, Any]]:
    activity, running = _find_activity(standing), standing.record.here.running
    loop = next((loop for loop in activity.loops if loop.id == name), None) if activity is not None else None
    if loop is None:
        return
    yield "name", loop.name
    yield "iteration", running.iteration + 1 if running is not None and running.loop == name else 1


def _describe_question(context: CallContext, standing: NavigatorView) -> Json | None:
    name = standing.situation.checkpoint
    checkpoint = find_current_checkpoint(standing.workflow, standing.record, name) if name else None
    if checkpoint is None:
        return _describe_undefined_question(context, standing)
    values = collect_values(standing.workflow, standing.record)
    body: Json = {"id": checkpoint.id, "name": checkpoint.name, "message": fill_template(checkpoint.message, values)}
    body["options"] = [_render_option(option, values) for option in checkpoint.options]
    return {**body, **_describe_answerer(standing, checkpoint)}


def _describe_undefined_question(context: CallContext, standing: NavigatorView) -> Json | None:
    """Describe a pending checkpoint that the definition no longer has, which only a person can answer."""
    waiting = standing.record.waiting
    if waiting is None or not standing.situation.checkpoint:
        return None
    (blocked,) = standing.situation.blocked
    about = {
        "id": waiting.checkpoint,
        "name": waiting.checkpoint,
        "message": context.render(blocked.reason),
        "options": list[Json](),
    }
    return {**about, "answered_by": "person", "request_id": waiting.request}


def _describe_answerer(standing: NavigatorView, checkpoint: Checkpoint) -> Json:
    waiting = standing.record.find_pending(checkpoint.id)
    person = needs_person(standing.workflow, standing.record, checkpoint, server=standing.person)
    return {
        **({"answered_by": "person"} if person else {}),
        **({"request_id": waiting.request} if waiting is not None else {}),
    }


def _render_option(option: Option, values: Mapping[str, Any]) -> Json:
    extra = {"description": fill_template(option.description, values)} if option.description else {}
    return {"id": option.id, "label": fill_template(option.label, values), **extra}


def _find_activity(standing: NavigatorView) -> Activity | None:
    return standing.workflow.activity(standing.record.activity)


_CODES = {
    "checkpoint.option": "OPTION_NOT_FOUND",
    "checkpoint.not-found": "CHECKPOINT_NOT_FOUND",
    "checkpoint.answered": "CHECKPOINT_ALREADY_RESPONDED",
}


def _find_code(reason: str) -> str:
    return _CODES.get(reason) or reason.upper().replace(".", "_").replace("-", "_")
