"""Parameters of the tools of the `gates` dialect, where they differ from the `sessions` dialect."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fidelio.surfaces.mcp.dialects.sessions.parameters import AgentId, AutoAdvance, ConditionNotMet, Full, OptionId, Token

Name = Annotated[str, Meta(min_length=1, max_length=256)]

ResumedToken = Annotated[
    str,
    Meta(
        min_length=1,
        description="Continues this session, with its position and its pending checkpoints. For workers and for resuming.",
    ),
]


class StartSession(msgspec.Struct):
    """Parameters of start_session."""

    workflow_id: Annotated[
        str,
        Meta(min_length=1, description="The workflow; discover names them. With session_token: the workflow of that session."),
    ]
    session_token: ResumedToken | msgspec.UnsetType = msgspec.UNSET
    agent_id: AgentId | msgspec.UnsetType = msgspec.UNSET
    parent_session_token: Annotated[
        str, Meta(description="Makes the fresh session a child of this one, for a workflow that the activity starts.")
    ] = ""


class GetWorkflow(msgspec.Struct):
    """Parameters of get_workflow."""

    session_token: Token
    summary: Annotated[
        bool, Meta(description="true: rules, variables and the list of activities. false: the full definition.")
    ] = True
    full: Full = False


class GetCheckpoint(msgspec.Struct):
    """Parameters of get_checkpoint."""

    session_token: Token
    activity_id: Annotated[Name, Meta(description="The activity that has the checkpoint. It need not be the current one.")]
    checkpoint_id: Annotated[Name, Meta(description="The checkpoint.")]


class RespondCheckpoint(msgspec.Struct):
    """Parameters of respond_checkpoint."""

    session_token: Token
    checkpoint_id: Annotated[Name, Meta(description="One of the pending checkpoints.")]
    option_id: OptionId = msgspec.UNSET
    auto_advance: AutoAdvance = False
    condition_not_met: ConditionNotMet = False


class GetSkill(msgspec.Struct):
    """Parameters of get_skill."""

    session_token: Token
    step_id: Annotated[Name, Meta(description="A step of the current activity that names a skill.")]
    full: Full = False


class GetResource(msgspec.Struct):
    """Parameters of get_resource."""

    session_token: Token
    resource_index: Annotated[
        str, Meta(min_length=1, max_length=512, description="A number such as 03, or workflow/03 for one of another workflow.")
    ]
    full: Full = False
