"""Parameters of the orchestrator's tools. A model reads the descriptions in `tools/list`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

ProjectDir = Annotated[
    str,
    Meta(description="An absolute path. Only set it when instructed to!"),
]
Format = Literal["markdown", "json"]
Name = Annotated[
    str,
    Meta(description="Its name or id."),
]
Cursor = Annotated[str, Meta(description="next_cursor of the last reply.")]
Limit = Annotated[int, Meta(ge=1, le=200)]
Text = Annotated[str, Meta(min_length=1, max_length=4_000_000)]
IsAsync = Annotated[
    bool,
    Meta(description="true: return at once, and let the agent work in the background."),
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
        Meta(description="running: all that are at work."),
    ] = ""
    cursor: Cursor = ""
    limit: Limit = 50


class StartAgentSession(msgspec.Struct, rename={"is_async": "async"}):
    """Parameters of start_agent_session."""

    session_name: Annotated[
        str,
        Meta(description="A new name: letters, digits, dash and underscore, 1 to 60."),
    ]
    prompt: Annotated[Text | dict[str, Any], Meta(description="The task; an object where the blueprint has an input schema.")]
    agent_blueprint_name: Annotated[str, Meta(description="As list_agent_blueprints names it.")] = ""
    agent_name: Annotated[str, Meta(description="The same as agent_blueprint_name.")] = ""
    project_dir: ProjectDir = ""
    is_async: IsAsync = False
    model: Annotated[str, Meta(max_length=200, description="Instead of the blueprint's.")] = ""
    callback: Annotated[bool, Meta(description="Send the result to you, as your next message.")] = False


class ResumeAgentSession(msgspec.Struct, rename={"is_async": "async"}):
    """Parameters of resume_agent_session."""

    session_name: Name
    prompt: Annotated[Text, Meta(description="What to do next.")]
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
    wait_seconds: Annotated[int, Meta(ge=0, le=300, description="Wait for a change.")] = 0


class GetResult(msgspec.Struct):
    """Parameters of get_agent_session_result."""

    session_name: Name
    project_dir: ProjectDir = ""
    offset: Annotated[int, Meta(ge=0, description="Begin at this character.")] = 0
    limit: Annotated[int, Meta(ge=1, le=100_000)] = 25_000
    run: Annotated[int, Meta(ge=0, description="An earlier run, from 1. 0: the newest.")] = 0


class WaitForSessions(msgspec.Struct):
    """Parameters of wait_for_agent_sessions."""

    session_names: Annotated[list[str], Meta(min_length=1, max_length=100)]
    mode: Annotated[Literal["any", "all"], Meta()] = "all"
    timeout_seconds: Annotated[int, Meta(ge=0, le=300)] = 45
    project_dir: ProjectDir = ""


class SendMessage(msgspec.Struct):
    """Parameters of send_agent_message."""

    session_name: Name
    message: Text
    project_dir: ProjectDir = ""


class GetEvents(msgspec.Struct):
    """Parameters of get_agent_session_events."""

    session_name: Name
    project_dir: ProjectDir = ""
    after: Annotated[int, Meta(ge=0, le=2**53, description="next_after of the last reply.")] = 0
    limit: Limit = 50


class RunWorkflow(msgspec.Struct):
    """Parameters of run_workflow."""

    workflow_id: Annotated[str, Meta(min_length=1, max_length=256)]
    agent_blueprint_name: Annotated[str, Meta(description="Who does the work.")] = "workflow-worker"
    activity_agents: Annotated[dict[str, str], Meta(description="Other blueprints, by activity id.")] = {}
    inputs: Annotated[dict[str, Any], Meta(description="Variables, by name.")] = {}
    new: Annotated[bool, Meta(description="Begin anew although a run has not ended.")] = False
    wait_seconds: Annotated[int, Meta(ge=0, le=300, description="Wait for the end.")] = 0
    project_dir: ProjectDir = ""


class AnswerQuestion(msgspec.Struct):
    """Parameters of answer_agent_question."""

    session_name: Name
    option_id: Annotated[str, Meta(max_length=200)] = ""
    text: Annotated[str, Meta(max_length=20_000, description="Where the question has no options.")] = ""
    request_id: Annotated[str, Meta(max_length=64, description="Needed only when several wait.")] = ""
    project_dir: ProjectDir = ""
