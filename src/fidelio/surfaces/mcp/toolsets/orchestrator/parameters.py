"""Parameters of the orchestrator's tools. A model reads the descriptions in `tools/list`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

ProjectDir = Annotated[
    str,
    Meta(description="Project directory path (must be an absolute path). Only set it when instructed to set a project dir!"),
]
Format = Annotated[Literal["markdown", "json"], Meta(description="How the reply is written.")]
Name = Annotated[
    str,
    Meta(description="Name of the agent session: letters, digits, dash and underscore, at most 60. Its id will do as well."),
]
Cursor = Annotated[str, Meta(description="Where an earlier reply said that there is more.")]
Limit = Annotated[int, Meta(ge=1, le=200, description="How many at most.")]
Text = Annotated[str, Meta(min_length=1, max_length=4_000_000)]
IsAsync = Annotated[
    bool,
    Meta(
        description="true returns at once and the agent works in the background; then use get_agent_session_status, "
        "wait_for_agent_sessions and get_agent_session_result."
    ),
]


class ListBlueprints(msgspec.Struct):
    """Parameters of list_agent_blueprints."""

    project_dir: ProjectDir = ""
    response_format: Format = "markdown"
    cursor: Cursor = ""
    limit: Limit = 50


class ListSessions(msgspec.Struct):
    """Parameters of list_agent_sessions."""

    project_dir: ProjectDir = ""
    response_format: Format = "markdown"
    state: Annotated[
        Literal["", "queued", "starting", "running", "waiting", "succeeded", "failed", "stopped", "lost"],
        Meta(description="Only sessions in this state; running: all that are at work."),
    ] = ""
    cursor: Cursor = ""
    limit: Limit = 50


class StartAgentSession(msgspec.Struct, rename={"is_async": "async"}):
    """Parameters of start_agent_session."""

    session_name: Annotated[
        str,
        Meta(description="Unique name for the new agent session: letters, digits, dash and underscore, 1 to 60 characters."),
    ]
    prompt: Annotated[Text | dict[str, Any], Meta(description="The task. An object where the blueprint has an input schema.")]
    agent_blueprint_name: Annotated[str, Meta(description="The blueprint to start from; list_agent_blueprints names them.")] = (
        ""
    )
    agent_name: Annotated[str, Meta(description="The same as agent_blueprint_name.")] = ""
    project_dir: ProjectDir = ""
    is_async: IsAsync = False
    model: Annotated[str, Meta(max_length=200, description="Another model than the blueprint's, for this session.")] = ""
    callback: Annotated[
        bool, Meta(description="Send the result to the agent session that makes this call, as its next message.")
    ] = False


class ResumeAgentSession(msgspec.Struct, rename={"is_async": "async"}):
    """Parameters of resume_agent_session."""

    session_name: Name
    prompt: Annotated[Text, Meta(description="What to do next; the agent still knows what was said before.")]
    project_dir: ProjectDir = ""
    is_async: IsAsync = False


class DeleteAllSessions(msgspec.Struct):
    """Parameters of delete_all_agent_sessions."""

    project_dir: ProjectDir = ""


class SessionReference(msgspec.Struct):
    """Parameters of the tools about a session."""

    session_name: Name
    project_dir: ProjectDir = ""


class GetStatus(msgspec.Struct):
    """Parameters of get_agent_session_status."""

    session_name: Name
    project_dir: ProjectDir = ""
    wait_seconds: Annotated[
        int, Meta(ge=0, le=300, description="Wait this long for a change before replying; returns early when it comes.")
    ] = 0


class GetResult(msgspec.Struct):
    """Parameters of get_agent_session_result."""

    session_name: Name
    project_dir: ProjectDir = ""
    offset: Annotated[int, Meta(ge=0, description="Begin at this character of a long result.")] = 0
    limit: Annotated[int, Meta(ge=1, le=100_000, description="How many characters at most.")] = 25_000
    run: Annotated[int, Meta(ge=0, description="The result of this earlier run (1 is the first). 0: the newest.")] = 0


class WaitForSessions(msgspec.Struct):
    """Parameters of wait_for_agent_sessions."""

    session_names: Annotated[list[str], Meta(min_length=1, max_length=100, description="The sessions to wait for.")]
    mode: Annotated[Literal["any", "all"], Meta(description="Return when any of them, or when all of them have finished.")] = (
        "all"
    )
    timeout_seconds: Annotated[int, Meta(ge=0, le=300, description="Return after this time at the latest.")] = 45
    project_dir: ProjectDir = ""


class SendMessage(msgspec.Struct):
    """Parameters of send_agent_message."""

    session_name: Name
    message: Annotated[Text, Meta(description="What to tell the agent. A busy one gets it with its next turn.")]
    project_dir: ProjectDir = ""


class GetEvents(msgspec.Struct):
    """Parameters of get_agent_session_events."""

    session_name: Name
    project_dir: ProjectDir = ""
    after: Annotated[int, Meta(ge=0, le=2**53, description="Only events after this number; next_after of the last reply.")] = 0
    limit: Limit = 50


class RunWorkflow(msgspec.Struct):
    """Parameters of run_workflow."""

    workflow_id: Annotated[str, Meta(min_length=1, max_length=256, description="The workflow to carry out.")]
    agent_blueprint_name: Annotated[str, Meta(description="Who does the work.")] = "workflow-worker"
    activity_agents: Annotated[dict[str, str], Meta(description="Who does single activities: blueprint by activity id.")] = {}
    inputs: Annotated[dict[str, Any], Meta(description="Variables of the workflow to begin with, by name.")] = {}
    new: Annotated[bool, Meta(description="Begin anew even when a run of this workflow has not come to its end.")] = False
    wait_seconds: Annotated[int, Meta(ge=0, le=300, description="Wait this long for the end before replying.")] = 0
    project_dir: ProjectDir = ""


class AnswerQuestion(msgspec.Struct):
    """Parameters of answer_agent_question."""

    session_name: Name
    option_id: Annotated[str, Meta(max_length=200, description="One of the options of the question.")] = ""
    text: Annotated[str, Meta(max_length=20_000, description="The answer, where the question has no options.")] = ""
    request_id: Annotated[str, Meta(max_length=64, description="Which question; needed only when several wait.")] = ""
    project_dir: ProjectDir = ""
