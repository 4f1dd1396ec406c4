"""Parameters of the tools of the `navigator` dialect. A model reads the descriptions in `tools/list`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MAX_LOOP_ITEMS = 1000
State = Annotated[
    str,
    Meta(min_length=1),
]
Name = Annotated[str, Meta(max_length=256)]
WorkflowId = Annotated[str, Meta(min_length=1, max_length=256)]
Action = Literal["complete_step", "respond_to_checkpoint", "transition", "advance_loop", "get_resource"]


class NavStart(msgspec.Struct):
    """Parameters of nav_start."""

    workflow_id: WorkflowId
    initial_variables: Annotated[dict[str, Any], Meta(description="What is known already, by name.")] = {}
    agent_id: Annotated[str, Meta(min_length=1, max_length=48, description="Who is calling.")] = "orchestrator"


class StateReference(msgspec.Struct):
    """Parameters of the tools that need only a session."""

    state: State


class NavAction(msgspec.Struct):
    """Parameters of nav_action."""

    state: State
    action: Annotated[Action, Meta(description="One that the last reply offers.")]
    step_id: Name = ""
    checkpoint_id: Name = ""
    option_id: Annotated[Name | msgspec.UnsetType, Meta(description="What the user chose. Never choose for the user.")] = (
        msgspec.UNSET
    )
    condition_not_met: Annotated[bool, Meta(description="Instead of option_id, where offered: it does not apply.")] = False
    auto_advance: Annotated[bool, Meta(description="Instead of option_id, where offered: time has run out.")] = False
    activity_id: Annotated[Name, Meta(description="__terminal__ ends the workflow.")] = ""
    loop_id: Annotated[Name, Meta(description="Starts its first or next iteration.")] = ""
    loop_items: Annotated[
        Annotated[list[Any], Meta(max_length=MAX_LOOP_ITEMS)] | msgspec.UnsetType,
        Meta(description="For the first iteration over a list that is not known."),
    ] = msgspec.UNSET
    index: Annotated[Name, Meta(description="A number such as 03.")] = ""
    output: Annotated[
        str,
        Meta(
            max_length=10_000,
            description="What came of the step.",
        ),
    ] = ""
    variables: Annotated[dict[str, Any], Meta(description="What you found out, by name. It counts for this action.")] = {}


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

    activity_id: Annotated[Name, Meta(description="Or workflow/activity.")]


class ListSkills(msgspec.Struct):
    """Parameters of list_skills."""

    workflow_id: Name = ""


class GetSkill(msgspec.Struct):
    """Parameters of get_skill."""

    skill_id: Name
    workflow_id: Name = ""


class IndexReference(msgspec.Struct):
    """Parameters of get_resource and get_template."""

    workflow_id: WorkflowId
    index: Annotated[Name, Meta(description="A number or the name.")]
