"""Parameters of the tools of the `navigator` dialect. A model reads the descriptions in `tools/list`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MAX_LOOP_ITEMS = 1000
State = Annotated[
    str,
    Meta(min_length=1, description="The state of the newest reply, exactly as it was returned. A session_token does, too."),
]
Name = Annotated[str, Meta(max_length=256)]
WorkflowId = Annotated[str, Meta(min_length=1, max_length=256, description="As list_workflows names it.")]
Action = Literal["complete_step", "respond_to_checkpoint", "transition", "advance_loop", "get_resource"]


class NavStart(msgspec.Struct):
    """Parameters of nav_start."""

    workflow_id: WorkflowId
    initial_variables: Annotated[
        dict[str, Any], Meta(description="Variables of the workflow that are known already, by name.")
    ] = {}
    agent_id: Annotated[str, Meta(min_length=1, max_length=48, description="Who is calling, for the record.")] = "orchestrator"


class StateReference(msgspec.Struct):
    """Parameters of the tools that need only a session."""

    state: State


class NavAction(msgspec.Struct):
    """Parameters of nav_action."""

    state: State
    action: Annotated[Action, Meta(description="One of the actions that the last reply offers as required or optional.")]
    step_id: Annotated[Name, Meta(description="For complete_step.")] = ""
    checkpoint_id: Annotated[Name, Meta(description="For respond_to_checkpoint.")] = ""
    option_id: Annotated[
        Name | msgspec.UnsetType, Meta(description="For respond_to_checkpoint: what the user chose. Never choose for the user.")
    ] = msgspec.UNSET
    condition_not_met: Annotated[
        bool, Meta(description="For respond_to_checkpoint, instead of option_id, where it is offered: it does not apply.")
    ] = False
    auto_advance: Annotated[
        bool, Meta(description="For respond_to_checkpoint, instead of option_id, where it is offered: time has run out.")
    ] = False
    activity_id: Annotated[Name, Meta(description="For transition; __terminal__ ends the workflow.")] = ""
    loop_id: Annotated[Name, Meta(description="For advance_loop: starts the first or the next iteration.")] = ""
    loop_items: Annotated[
        Annotated[list[Any], Meta(max_length=MAX_LOOP_ITEMS)] | msgspec.UnsetType,
        Meta(description="For the first iteration of a loop over a list that the record does not know."),
    ] = msgspec.UNSET
    index: Annotated[Name, Meta(description="For get_resource: a number, such as 03.")] = ""
    output: Annotated[
        str,
        Meta(
            max_length=10_000,
            description="For complete_step: what came of it, in a sentence, for the record. Required where the step needs it.",
        ),
    ] = ""
    variables: Annotated[
        dict[str, Any], Meta(description="Variables of the workflow that you found out meanwhile. They count for this action.")
    ] = {}


class WorkflowReference(msgspec.Struct):
    """Parameters of the tools about a workflow."""

    workflow_id: WorkflowId


class GetWorkflowActivity(msgspec.Struct):
    """Parameters of get_workflow_activity."""

    workflow_id: WorkflowId
    activity_id: Name


class GetCheckpoint(msgspec.Struct):
    """Parameters of get_checkpoint."""

    workflow_id: WorkflowId
    activity_id: Name
    checkpoint_id: Name


class ValidateTransition(msgspec.Struct):
    """Parameters of validate_transition."""

    workflow_id: WorkflowId
    from_activity: Name
    to_activity: Name


class GetActivity(msgspec.Struct):
    """Parameters of get_activity."""

    activity_id: Annotated[Name, Meta(description="As get_activities names it; workflow/activity for one of several.")]


class ListSkills(msgspec.Struct):
    """Parameters of list_skills."""

    workflow_id: Annotated[Name, Meta(description="Also lists the skills of this workflow.")] = ""


class GetSkill(msgspec.Struct):
    """Parameters of get_skill."""

    skill_id: Name
    workflow_id: Annotated[Name, Meta(description="Looked up here first, then among the universal skills.")] = ""


class IndexReference(msgspec.Struct):
    """Parameters of get_resource and get_template."""

    workflow_id: WorkflowId
    index: Annotated[Name, Meta(description="A number such as 03, or the name.")]
