"""Parameters of the tools of the `sessions` dialect. A model reads the descriptions in `tools/list`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

# An entry is needed for each step of each iteration of a loop. The limits of the transports bound the bytes.
MAX_MANIFEST_ENTRIES = 2_000
Token = Annotated[str, Meta(min_length=1, description="The newest session_token, exactly as it was returned.")]
Variables = Annotated[
    dict[str, Any],
    Meta(description="Variables of the workflow that you found out meanwhile, by name. They are recorded with your agent_id."),
]


AgentId = Annotated[str, Meta(max_length=48, description="Who is calling, such as orchestrator or worker-1.")]


class NoParameters(msgspec.Struct):
    """A tool without parameters."""


class StartSession(msgspec.Struct):
    """Parameters of start_session."""

    workflow_id: Annotated[
        str, Meta(description="The workflow of a fresh session; list_workflows names them. Default: meta.")
    ] = ""
    parent_session_token: Annotated[
        str, Meta(description="Makes the fresh session a child of this one. A token that is not genuine is an error.")
    ] = ""
    session_token: Annotated[
        str, Meta(description="Continues this session instead; the workflow is the token's. For workers and for resuming.")
    ] = ""
    agent_id: AgentId = "orchestrator"
    fidelity: Annotated[
        Literal["advise", "enforce"] | msgspec.UnsetType,
        Meta(description="enforce refuses what advise only warns of. The strictest of server, workflow and session counts."),
    ] = msgspec.UNSET


class TokenReference(msgspec.Struct):
    """Parameters of the tools that need only a session."""

    session_token: Token


Full = Annotated[bool, Meta(description="true: the whole text, also if you got it before on this connection.")]


class GetSkills(msgspec.Struct):
    """Parameters of get_skills."""

    session_token: Token
    full: Full = False


class GetWorkflow(msgspec.Struct):
    """Parameters of get_workflow."""

    session_token: Token
    summary: Annotated[bool, Meta(description="true: rules, variables and the list of activities. false: the whole file.")] = (
        True
    )
    full: Full = False


class StepEntry(msgspec.Struct):
    """A completed step."""

    step_id: Annotated[str, Meta(max_length=256)]
    output: Annotated[str, Meta(max_length=10_000, description="What came of it, in a sentence.")]
    iteration: (
        Annotated[
            int,
            Meta(
                ge=1, lt=1 << 31, description="For a step of a loop: its iteration, from 1. One entry per step and iteration."
            ),
        ]
        | None
    ) = None
    item: Annotated[
        Any, Meta(description="For a step of a forEach loop, instead of iteration: the item of the list, as it is on record.")
    ] = msgspec.UNSET


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
            description="The activity to enter: initialActivity first, then a target of the transitions; __terminal__ ends.",
        ),
    ]
    transition_condition: Annotated[
        str | msgspec.UnsetType,
        Meta(description="The condition that led there, as the definition writes it, or `default`. It is checked."),
    ] = msgspec.UNSET
    step_manifest: Annotated[
        Annotated[list[StepEntry], Meta(max_length=MAX_MANIFEST_ENTRIES)] | msgspec.UnsetType,
        Meta(description="The steps of the activity you leave, in order, with their output; those of loops with iteration."),
    ] = msgspec.UNSET
    activity_manifest: Annotated[
        Annotated[list[ActivityEntry], Meta(max_length=MAX_MANIFEST_ENTRIES)] | msgspec.UnsetType,
        Meta(description="The activities completed so far, with their outcome."),
    ] = msgspec.UNSET
    variables: Variables = {}


class YieldCheckpoint(msgspec.Struct):
    """Parameters of yield_checkpoint."""

    session_token: Token
    checkpoint_id: Annotated[str, Meta(min_length=1, max_length=256, description="A checkpoint of the current activity.")]
    variables: Variables = {}


class ResumeCheckpoint(msgspec.Struct):
    """Parameters of resume_checkpoint."""

    session_token: Token
    variables: Variables = {}


Handle = Annotated[str, Meta(description="The checkpoint_handle that yield_checkpoint returned (preferred).")]
FallbackToken = Annotated[
    str, Meta(description="The session_token, when there is no handle. Either this or checkpoint_handle.")
]


class PresentCheckpoint(msgspec.Struct):
    """Parameters of present_checkpoint."""

    checkpoint_handle: Handle = ""
    session_token: FallbackToken = ""


OptionId = Annotated[
    str | msgspec.UnsetType,
    Meta(description="The option that the user chose. Pass exactly one of option_id, auto_advance and condition_not_met."),
]
AutoAdvance = Annotated[
    bool, Meta(description="true takes the default option of a non-blocking checkpoint once its time has run out.")
]
ConditionNotMet = Annotated[bool, Meta(description="true dismisses a conditional checkpoint whose condition does not hold.")]


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
        Meta(description="A step of the current activity that names a skill. Without it: the activity's primary skill."),
    ] = msgspec.UNSET
    full: Full = False


class GetResource(msgspec.Struct):
    """Parameters of get_resource."""

    session_token: Token
    resource_id: Annotated[
        str, Meta(min_length=1, max_length=512, description="A number such as 03, or workflow/03 for one of another workflow.")
    ]
    full: Full = False


class GetTrace(msgspec.Struct):
    """Parameters of get_trace."""

    session_token: Token
    trace_tokens: Annotated[
        list[str],
        Meta(max_length=1000, description="The trace_tokens of next_activity. Without them: all calls of the session."),
    ] = []
    after: Annotated[
        int, Meta(ge=0, lt=1 << 53, description="Goes on with a long trace: what the reply before gave as `next`.")
    ] = 0
