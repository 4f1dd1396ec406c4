"""Tool declarations of the orchestrator: names, titles and descriptions, as a model reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelio.app.application import Application
from fidelio.processes.caller import ProcessSigns, decide_caller
from fidelio.processes.table import AGENT_MARKER
from fidelio.surfaces.mcp.endpoint import ServedTools
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
    optional,
)
from fidelio.surfaces.mcp.toolsets.orchestrator import parameters as p
from fidelio.toolkit import Tool, ToolHandlers, ToolTable

_STATUS: Schema = {"enum": ["running", "finished", "not_existent"]}
_OPTION = object_schema(id=TEXT, label=TEXT)
_QUESTION = object_schema(request_id=TEXT, kind=TEXT, text=TEXT, options=array_schema(_OPTION), **optional(detail=OBJECT))
_QUESTIONS = optional(questions=array_schema(_QUESTION))
_RUN: dict[str, Schema] = {"session_name": TEXT, "session_id": TEXT, "run": INTEGER, "status": _STATUS, "state": TEXT}
_USAGE = object_schema(turns=INTEGER, input_tokens=INTEGER, output_tokens=INTEGER, cost_usd={"type": "number"})
# A session that does not exist has only `status`.
_SESSION_STATUS = object_schema(
    **{**optional(**_RUN), "status": _STATUS},
    **optional(
        reason=TEXT,
        detail=TEXT,
        last_activity=TEXT,
        tool_calls=INTEGER,
        usage=_USAGE,
        started_at=TEXT,
        ended_at=TEXT,
        question=TEXT,
        queued_messages=INTEGER,
        waits_because=TEXT,
        changes=TEXT,
    ),
    **_QUESTIONS,
)
_ACCEPTED = object_schema(**_RUN, message=TEXT, **_QUESTIONS)
# `data` may be any JSON; the output schema of the blueprint describes it.
_RESULT_DETAILS = optional(data={}, next_offset=INTEGER)
_RESULT = object_schema(**_RUN, result=TEXT, **_RESULT_DETAILS)
# `result` after the end of the run, `message` before.
_RESULT_OR_MESSAGE = object_schema(**_RUN, **optional(result=TEXT), **_RESULT_DETAILS, **optional(message=TEXT), **_QUESTIONS)
_SESSION = object_schema(
    name=TEXT,
    session_id=TEXT,
    project_dir=TEXT,
    status=_STATUS,
    state=TEXT,
    **optional(blueprint=TEXT_OR_NULL, updated_at=TEXT, waits_because=TEXT),
    **_QUESTIONS,
)
_BLUEPRINT = object_schema(name=TEXT, description=TEXT, permissions=TEXT)
_BROKEN = object_schema(name=TEXT, error=TEXT)
_EVENT = object_schema(seq=INTEGER, type=TEXT, time=TEXT, body=OBJECT)

INSTRUCTIONS = (
    "Fidelio starts and watches other coding agents. list_agent_blueprints shows what can be started; start_agent_session with "
    "async true returns at once; wait_for_agent_sessions waits; get_agent_session_result gives what the agent has found. "
    "resume_agent_session goes on with a finished one, send_agent_message reaches a busy one."
)
TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "list_agent_blueprints",
        "List agent blueprints",
        "Lists what agent sessions can be started from, and what each agent may do without asking.",
        p.ListBlueprints,
        read_only=True,
        idempotent=True,
        output_schema=object_schema(
            total=INTEGER, agents=array_schema(_BLUEPRINT), **optional(broken=array_schema(_BROKEN), next_cursor=TEXT)
        ),
    ),
    Tool(
        "list_agent_sessions",
        "List agent sessions",
        "Lists agent sessions, newest first, with their status.",
        p.ListSessions,
        read_only=True,
        idempotent=True,
        output_schema=object_schema(total=INTEGER, sessions=array_schema(_SESSION), **optional(next_cursor=TEXT)),
    ),
    Tool(
        "start_agent_session",
        "Start an agent session",
        "Starts a new agent session and returns its result; with async, or when it takes too long for clients, status "
        "running while the work goes on.",
        p.StartAgentSession,
        open_world=True,
        output_schema=_RESULT_OR_MESSAGE,
    ),
    Tool(
        "resume_agent_session",
        "Resume an agent session",
        "Continues a finished agent session: the agent still knows what was said and done.",
        p.ResumeAgentSession,
        open_world=True,
        output_schema=_RESULT_OR_MESSAGE,
    ),
    Tool(
        "delete_all_agent_sessions",
        "Delete all agent sessions",
        "Stops and permanently deletes all agent sessions, or those of one project.",
        p.DeleteAllSessions,
        destructive=True,
        idempotent=True,
        output_schema=object_schema(message=TEXT, removed=INTEGER),
    ),
    Tool(
        "get_agent_session_status",
        "Status of an agent session",
        "Returns status running, finished or not_existent, the state, the reason, what the agent did last and has used.",
        p.GetStatus,
        read_only=True,
        idempotent=True,
        output_schema=_SESSION_STATUS,
    ),
    Tool(
        "get_agent_session_result",
        "Result of an agent session",
        "Returns the result of a finished agent session, a long one in parts. A failed run is an error with the reason.",
        p.GetResult,
        read_only=True,
        idempotent=True,
        output_schema=_RESULT,
    ),
    Tool(
        "wait_for_agent_sessions",
        "Wait for agent sessions",
        "Waits until any or all of the agent sessions have finished.",
        p.WaitForSessions,
        read_only=True,
        idempotent=True,
        output_schema=object_schema(finished=TEXTS, running=TEXTS, deleted=TEXTS, sessions=array_schema(_SESSION)),
    ),
    Tool(
        "stop_agent_session",
        "Stop an agent session",
        "Stops the agent at work, with everything it has started. The session stays and can be resumed.",
        p.SessionReference,
        idempotent=True,
        output_schema=_SESSION_STATUS,
    ),
    Tool(
        "delete_agent_session",
        "Delete an agent session",
        "Stops and permanently deletes one agent session; its name is free again.",
        p.SessionReference,
        destructive=True,
        output_schema=object_schema(session_name=TEXT, session_id=TEXT, status=_STATUS, **optional(kept_worktree=TEXT)),
    ),
    Tool(
        "send_agent_message",
        "Send a message to an agent",
        "Sends a message to an agent: a busy agent gets it with its next turn, an idle one starts to work.",
        p.SendMessage,
        open_world=True,
        output_schema=_ACCEPTED,
    ),
    Tool(
        "get_agent_session_events",
        "What an agent did",
        "Returns what happened in an agent session, in order.",
        p.GetEvents,
        read_only=True,
        idempotent=True,
        output_schema=object_schema(events=array_schema(_EVENT), next_after=INTEGER, more=BOOLEAN, **_QUESTIONS),
    ),
    Tool(
        "answer_agent_question",
        "Answer an agent's question",
        "Answers the question that an agent session waits for; its status shows the options. Ask your user first: the record "
        "says that you passed the answer on.",
        p.AnswerQuestion,
        output_schema=_SESSION_STATUS,
    ),
    Tool(
        "run_workflow",
        "Let agents carry out a workflow",
        "Carries out a workflow with agents in the background; questions wait in the inbox of a person. Calling it again goes "
        "on with an interrupted run, and says how it stands.",
        p.RunWorkflow,
        open_world=True,
        output_schema=object_schema(
            session_id=TEXT,
            workflow_id=TEXT,
            status=TEXT,
            **optional(activity=TEXT, completed_activities=TEXTS, question=TEXT, reason=TEXT),
        ),
    ),
)


def open_tools(app: Application, *, environ: Mapping[str, str] | None = None) -> ServedTools:
    def load_handlers() -> ToolHandlers:
        from fidelio.surfaces.mcp.toolsets.orchestrator.handlers import AgentToolset  # noqa: PLC0415  # the first call loads the services, not the start

        return AgentToolset(app)

    return ServedTools(
        ToolTable(TOOLS, load_handlers),
        instructions=INSTRUCTIONS,
        program=app.program,
        ask=app.ask,
        own=app.identify_self() if environ is None else decide_caller([ProcessSigns(environ.get(AGENT_MARKER))]),
    )
