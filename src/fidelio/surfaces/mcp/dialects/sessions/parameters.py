"""Parameters of the tools of the `sessions` dialect. A model reads the descriptions in `tools/list`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

# An entry is needed for each step of each iteration of a loop. The limits of the transports bound the bytes.
MAX_MANIFEST_ENTRIES = 2_000
# Without a description: thirteen tools take it, and start_session says what it is.
Token = Annotated[str, Meta(min_length=1)]
Variables = Annotated[
    dict[str, Any],
    Meta(description="What you found out, by name."),
]


AgentId = Annotated[str, Meta(max_length=48, description="Such as worker-1.")]


class NoParameters(msgspec.Struct):
    """A tool without parameters."""


class StartSession(msgspec.Struct):
    """Parameters of start_session."""

    workflow_id: Annotated[str, Meta(description="Default: meta.")] = ""
    parent_session_token: Annotated[str, Meta(description="Starts a child of this session.")] = ""
    session_token: Annotated[str, Meta(description="Continues this session instead.")] = ""
    agent_id: AgentId = "orchestrator"
    fidelity: Annotated[
        Literal["advise", "enforce"] | msgspec.UnsetType,
        Meta(description="The stricter counts."),
    ] = msgspec.UNSET


class TokenReference(msgspec.Struct):
    """Parameters of the tools that need only a session."""

    session_token: Token


class GetStatus(msgspec.Struct):
    """Parameters of get_workflow_status."""

    session_token: Token
    # Below the limit of clients for a call.
    wait_seconds: Annotated[int, Meta(ge=0, le=50, description="Wait for an answer.")] = 0


Full = Annotated[bool, Meta(description="true: send it again.")]


class GetSkills(msgspec.Struct):
    """Parameters of get_skills."""

    session_token: Token
    full: Full = False


class GetWorkflow(msgspec.Struct):
    """Parameters of get_workflow."""

    session_token: Token
    summary: Annotated[bool, Meta(description="false: the whole file.")] = True
    full: Full = False


class StepEntry(msgspec.Struct):
    """A completed step."""

    step_id: Annotated[str, Meta(max_length=256)]
    output: Annotated[str, Meta(max_length=10_000, description="What came of it.")]
    iteration: (
        Annotated[
            int,
            Meta(ge=1, lt=1 << 31, description="In a loop: its number, from 1."),
        ]
        | None
    ) = None
    item: Annotated[Any, Meta(description="In a forEach loop, instead of iteration: the item.")] = msgspec.UNSET


class ActivityEntry(msgspec.Struct):
    """A completed activity."""

    activity_id: Annotated[str, Meta(max_length=256)]
    outcome: Annotated[str, Meta(max_length=10_000)]
    transition_condition: Annotated[str, Meta(max_length=10_000)] | msgspec.UnsetType = msgspec.UNSET


class NextActivity(msgspec.Struct):
    """Parameters of next_activity."""

    session_token: Token
    activity_id: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=256,
            description="initialActivity first, then a target of the transitions; __terminal__ ends.",
        ),
    ]
    transition_condition: Annotated[
        str | msgspec.UnsetType,
        Meta(description="As the definition writes it, or `default`."),
    ] = msgspec.UNSET
    step_manifest: Annotated[
        Annotated[list[StepEntry], Meta(max_length=MAX_MANIFEST_ENTRIES)] | msgspec.UnsetType,
        Meta(description="In order; one entry per loop iteration."),
    ] = msgspec.UNSET
    activity_manifest: Annotated[
        Annotated[list[ActivityEntry], Meta(max_length=MAX_MANIFEST_ENTRIES)] | msgspec.UnsetType,
        Meta(description="The activities completed so far."),
    ] = msgspec.UNSET
    variables: Variables = {}


class YieldCheckpoint(msgspec.Struct):
    """Parameters of yield_checkpoint."""

    session_token: Token
    checkpoint_id: Annotated[str, Meta(min_length=1, max_length=256)]
    variables: Variables = {}


class ResumeCheckpoint(msgspec.Struct):
    """Parameters of resume_checkpoint."""

    session_token: Token
    variables: Variables = {}


Handle = Annotated[str, Meta(description="From yield_checkpoint.")]
FallbackToken = Annotated[str, Meta(description="If there is no handle.")]


class PresentCheckpoint(msgspec.Struct):
    """Parameters of present_checkpoint."""

    checkpoint_handle: Handle = ""
    session_token: FallbackToken = ""


OptionId = Annotated[
    str | msgspec.UnsetType,
    Meta(description="The option that the user chose."),
]
AutoAdvance = Annotated[bool, Meta(description="true: the default, after its time.")]
ConditionNotMet = Annotated[bool, Meta(description="true: its condition does not hold.")]


class RespondCheckpoint(msgspec.Struct):
    """Parameters of respond_checkpoint."""

    checkpoint_handle: Handle = ""
    session_token: FallbackToken = ""
    option_id: OptionId = msgspec.UNSET
    auto_advance: AutoAdvance = False
    condition_not_met: ConditionNotMet = False


class GetSkill(msgspec.Struct):
    """Parameters of get_skill."""

    session_token: Token
    step_id: Annotated[
        str | msgspec.UnsetType,
        Meta(description="Of the current activity."),
    ] = msgspec.UNSET
    full: Full = False


class GetResource(msgspec.Struct):
    """Parameters of get_resource."""

    session_token: Token
    resource_id: Annotated[str, Meta(min_length=1, max_length=512, description="A number such as 03, or workflow/03.")]
    full: Full = False


class GetTrace(msgspec.Struct):
    """Parameters of get_trace."""

    session_token: Token
    trace_tokens: Annotated[
        list[str],
        Meta(max_length=1000),
    ] = []
    after: Annotated[int, Meta(ge=0, lt=1 << 53, description="From `next` of the last reply.")] = 0
