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
        description="Continues this session instead.",
    ),
]


class StartSession(msgspec.Struct):
    """Parameters of start_session."""

    workflow_id: Annotated[
        str,
        Meta(min_length=1, description="With session_token: the workflow of that session."),
    ]
    session_token: ResumedToken | msgspec.UnsetType = msgspec.UNSET
    agent_id: AgentId | msgspec.UnsetType = msgspec.UNSET
    parent_session_token: Annotated[str, Meta(description="Starts a child of this session.")] = ""


class GetWorkflow(msgspec.Struct):
    """Parameters of get_workflow."""

    session_token: Token
    summary: Annotated[bool, Meta(description="false: the full definition.")] = True
    full: Full = False


class GetCheckpoint(msgspec.Struct):
    """Parameters of get_checkpoint."""

    session_token: Token
    activity_id: Annotated[Name, Meta(description="Not only the current one.")]
    checkpoint_id: Name


class RespondCheckpoint(msgspec.Struct):
    """Parameters of respond_checkpoint."""

    session_token: Token
    checkpoint_id: Name
    option_id: OptionId = msgspec.UNSET
    auto_advance: AutoAdvance = False
    condition_not_met: ConditionNotMet = False


class GetSkill(msgspec.Struct):
    """Parameters of get_skill."""

    session_token: Token
    step_id: Annotated[Name, Meta(description="Of the current activity.")]
    full: Full = False


class GetResource(msgspec.Struct):
    """Parameters of get_resource."""

    session_token: Token
    resource_index: Annotated[str, Meta(min_length=1, max_length=512, description="A number such as 03, or workflow/03.")]
    full: Full = False
