"""Tool declarations of the orchestrator: names, titles and descriptions, as a model reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fidelio.surfaces.mcp.schemas import (
    BOOLEAN,
    INTEGER,
    OBJECT,
    TEXT,
    TEXT_OR_NULL,
    TEXTS,
    Schema,
    array_schema,
    object_schema,
)
from fidelio.surfaces.mcp.toolsets.orchestrator import parameters as p
from fidelio.toolkit import Tool

if TYPE_CHECKING:
    from fidelio.surfaces.mcp.toolsets.orchestrator.handlers import AgentToolset

_STATUS: Schema = {"enum": ["running", "finished", "not_existent"]}
_OPTION = object_schema("id", "label", id=TEXT, label=TEXT)
_QUESTION = object_schema(
    "request_id", "kind", "text", "options", request_id=TEXT, kind=TEXT, text=TEXT, options=array_schema(_OPTION), detail=OBJECT
)
_QUESTIONS = {"questions": array_schema(_QUESTION)}
_RUN: dict[str, Schema] = {"session_name": TEXT, "session_id": TEXT, "run": INTEGER, "status": _STATUS, "state": TEXT}
_USAGE = object_schema(
    "turns",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    turns=INTEGER,
    input_tokens=INTEGER,
    output_tokens=INTEGER,
    cost_usd={"type": "number"},
)
# A session that does not exist has only `status`.
_SESSION_STATUS = object_schema(
    "status",
    **_RUN,
    reason=TEXT,
    detail=TEXT,
    last_activity=TEXT,
    tool_calls=INTEGER,
    usage=_USAGE,
    started_at=TEXT,
    ended_at=TEXT,
    question=TEXT,
    queued_messages=INTEGER,
    changes=TEXT,
    **_QUESTIONS,
)
_ACCEPTED = object_schema(*_RUN, "message", **_RUN, message=TEXT, **_QUESTIONS)
# `data` may be any JSON; the output schema of the blueprint describes it.
_RESULT_PROPERTIES: dict[str, Schema] = {"result": TEXT, "data": {}, "next_offset": INTEGER}
_RESULT = object_schema(*_RUN, "result", **_RUN, **_RESULT_PROPERTIES)
# `result` after the end of the run, `message` before.
_RESULT_OR_MESSAGE = object_schema(*_RUN, **_RUN, **_RESULT_PROPERTIES, message=TEXT, **_QUESTIONS)
_SESSION = object_schema(
    "name",
    "session_id",
    "project_dir",
    "status",
    "state",
    name=TEXT,
    session_id=TEXT,
    project_dir=TEXT,
    status=_STATUS,
    state=TEXT,
    blueprint=TEXT_OR_NULL,
    updated_at=TEXT,
    **_QUESTIONS,
)
_BLUEPRINT = object_schema("name", "description", "permissions", name=TEXT, description=TEXT, permissions=TEXT)
_BROKEN = object_schema("name", "error", name=TEXT, error=TEXT)
_EVENT = object_schema("seq", "type", "time", "body", seq=INTEGER, type=TEXT, time=TEXT, body=OBJECT)


def declare_tools(toolset: AgentToolset) -> list[Tool[Any]]:
    return [*_declare_contract(toolset), *_declare_extensions(toolset)]


def _declare_contract(toolset: AgentToolset) -> list[Tool[Any]]:
    return [
        Tool(
            "list_agent_blueprints",
            "List agent blueprints",
            "Lists the agent blueprints that sessions can be started from, each with name, description and what the agent may "
            "do without asking.",
            p.ListBlueprints,
            toolset.list_agent_blueprints,
            read_only=True,
            idempotent=True,
            output_schema=object_schema(
                "total",
                "agents",
                total=INTEGER,
                agents=array_schema(_BLUEPRINT),
                broken=array_schema(_BROKEN),
                next_cursor=TEXT,
            ),
        ),
        Tool(
            "list_agent_sessions",
            "List agent sessions",
            "Lists agent sessions, newest first, each with name, id, project directory and status.",
            p.ListSessions,
            toolset.list_agent_sessions,
            read_only=True,
            idempotent=True,
            output_schema=object_schema("total", "sessions", total=INTEGER, sessions=array_schema(_SESSION), next_cursor=TEXT),
        ),
        Tool(
            "start_agent_session",
            "Start an agent session",
            "Starts a new agent session that begins to work at once, and returns its result. With async true it returns at "
            "once and the agent works in the background. A call that takes too long for clients returns status running "
            "instead; the work goes on.",
            p.StartAgentSession,
            toolset.start_agent_session,
            open_world=True,
            output_schema=_RESULT_OR_MESSAGE,
        ),
        Tool(
            "resume_agent_session",
            "Resume an agent session",
            "Continues an agent session that has finished: the agent still knows what was said and done before.",
            p.ResumeAgentSession,
            toolset.resume_agent_session,
            open_world=True,
            output_schema=_RESULT_OR_MESSAGE,
        ),
        Tool(
            "delete_all_agent_sessions",
            "Delete all agent sessions",
            "Stops and permanently deletes all agent sessions, or those of one project.",
            p.DeleteAllSessions,
            toolset.delete_all_agent_sessions,
            destructive=True,
            idempotent=True,
            output_schema=object_schema("message", "removed", message=TEXT, removed=INTEGER),
        ),
        Tool(
            "get_agent_session_status",
            "Status of an agent session",
            "Returns status running, finished or not_existent, and behind it the state, the reason, what the agent did last "
            "and what it has used. wait_seconds waits for a change.",
            p.GetStatus,
            toolset.get_agent_session_status,
            read_only=True,
            idempotent=True,
            output_schema=_SESSION_STATUS,
        ),
        Tool(
            "get_agent_session_result",
            "Result of an agent session",
            "Returns the result of a finished agent session, a part at a time when it is long. A run that failed is an error "
            "with the reason and what the agent had said until then.",
            p.GetResult,
            toolset.get_agent_session_result,
            read_only=True,
            idempotent=True,
            output_schema=_RESULT,
        ),
    ]


def _declare_extensions(toolset: AgentToolset) -> list[Tool[Any]]:
    return [
        Tool(
            "wait_for_agent_sessions",
            "Wait for agent sessions",
            "Waits until any or all of the agent sessions have finished, and returns early when they have.",
            p.WaitForSessions,
            toolset.wait_for_agent_sessions,
            read_only=True,
            idempotent=True,
            output_schema=object_schema(
                "finished",
                "running",
                "deleted",
                "sessions",
                finished=TEXTS,
                running=TEXTS,
                deleted=TEXTS,
                sessions=array_schema(_SESSION),
            ),
        ),
        Tool(
            "stop_agent_session",
            "Stop an agent session",
            "Stops the agent at work, with everything it has started. The session stays and can be resumed.",
            p.SessionReference,
            toolset.stop_agent_session,
            idempotent=True,
            output_schema=_SESSION_STATUS,
        ),
        Tool(
            "delete_agent_session",
            "Delete an agent session",
            "Stops and permanently deletes one agent session; its name is free again.",
            p.SessionReference,
            toolset.delete_agent_session,
            destructive=True,
            output_schema=object_schema(
                "session_name",
                "session_id",
                "status",
                session_name=TEXT,
                session_id=TEXT,
                status=_STATUS,
                kept_worktree=TEXT,
            ),
        ),
        Tool(
            "send_agent_message",
            "Send a message to an agent",
            "Sends a message to an agent: a busy agent gets it with its next turn, an idle agent starts to work on it.",
            p.SendMessage,
            toolset.send_agent_message,
            open_world=True,
            output_schema=_ACCEPTED,
        ),
        Tool(
            "get_agent_session_events",
            "What an agent did",
            "Returns what happened in an agent session, in order: what the agent said, the tools it used, how its runs ended.",
            p.GetEvents,
            toolset.get_agent_session_events,
            read_only=True,
            idempotent=True,
            output_schema=object_schema(
                "events", "next_after", "more", events=array_schema(_EVENT), next_after=INTEGER, more=BOOLEAN, **_QUESTIONS
            ),
        ),
        Tool(
            "answer_agent_question",
            "Answer an agent's question",
            "Answers the question or permission request that an agent session waits for; its status shows them with their "
            "options. Ask your user first: the record says that you passed the answer on. An agent cannot answer for itself or "
            "for those who started it.",
            p.AnswerQuestion,
            toolset.answer_agent_question,
            output_schema=_SESSION_STATUS,
        ),
        Tool(
            "run_workflow",
            "Let agents carry out a workflow",
            "Carries out a workflow with agents, one activity at a time, in the background; questions wait in the inbox of a "
            "person. Calling it again goes on with a run that was interrupted or has failed, and says how it stands.",
            p.RunWorkflow,
            toolset.run_workflow,
            open_world=True,
            output_schema=object_schema(
                "session_id",
                "workflow_id",
                "status",
                session_id=TEXT,
                workflow_id=TEXT,
                status=TEXT,
                activity=TEXT,
                completed_activities=TEXTS,
                question=TEXT,
                reason=TEXT,
            ),
        ),
    ]
