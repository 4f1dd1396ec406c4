"""Tool declarations of the `gates` dialect: names, titles and descriptions, as a model reads them."""

from __future__ import annotations

from typing import Any

from fidelio.surfaces.mcp import schemas
from fidelio.surfaces.mcp.dialects.gates import parameters as p
from fidelio.surfaces.mcp.dialects.sessions.declarations import HEALTH_CHECK
from fidelio.surfaces.mcp.dialects.sessions.parameters import GetSkills, GetTrace, NextActivity, NoParameters
from fidelio.toolkit import Tool

INSTRUCTIONS = (
    "Fidelio leads you through a workflow one activity at a time. Call discover for the procedure and the workflows: "
    "start_session, get_skills, get_workflow, next_activity. Entering an activity asks its checkpoints; answer every pending "
    "one with respond_checkpoint before you go on. Always pass the newest session_token."
)
# A worker carries out an activity: it neither chooses a workflow, nor moves its session, nor answers for people.
NOT_FOR_WORKERS = frozenset({"discover", "list_workflows", "next_activity", "respond_checkpoint"})
TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "discover",
        "How to begin",
        "Start here: the workflows that can be started, and the procedure.",
        NoParameters,
        read_only=True,
    ),
    Tool(
        "list_workflows",
        "List workflows",
        "Lists the workflows; match the user's goal to one.",
        NoParameters,
        read_only=True,
    ),
    HEALTH_CHECK,
    Tool(
        "start_session",
        "Start or continue a session",
        "Starts or continues a session. Returns the session_token: pass the newest, exactly as returned, to every other tool.",
        p.StartSession,
        output_schema=schemas.START_SESSION,
    ),
    Tool(
        "next_activity",
        "Enter an activity",
        "Moves the session to an activity and returns its whole definition. Its required checkpoints become pending: answer "
        "each first. Report the steps of the activity you leave in step_manifest.",
        NextActivity,
    ),
    Tool(
        "get_trace",
        "Read the trace",
        "Returns the calls of this session, or those of trace_tokens. With `next`, more follow.",
        GetTrace,
        read_only=True,
    ),
    Tool(
        "get_checkpoint",
        "Read a checkpoint",
        "Returns a question with its options, to put to the user.",
        p.GetCheckpoint,
        read_only=True,
        output_schema=schemas.GET_CHECKPOINT,
    ),
    Tool(
        "respond_checkpoint",
        "Answer a checkpoint",
        "Passes on the user's choice. Exactly one of option_id, auto_advance and condition_not_met. Never choose for the user. "
        "Returns what is still pending.",
        p.RespondCheckpoint,
        idempotent=True,
        output_schema=schemas.RESPOND_PENDING_CHECKPOINT,
    ),
    Tool(
        "get_workflow",
        "Read the workflow",
        "Returns rules, variables, who carries it out, initialActivity and activities.",
        p.GetWorkflow,
        read_only=True,
    ),
    Tool(
        "get_skills",
        "Read the workflow's skills",
        "Returns the skills of the whole workflow; `_resources` name what get_resource takes.",
        GetSkills,
        read_only=True,
    ),
    Tool(
        "get_skill",
        "Read the skill of a step",
        "Returns the skill of a step; `_resources` name what get_resource takes.",
        p.GetSkill,
        read_only=True,
    ),
    Tool(
        "get_resource",
        "Read a resource",
        "Returns a resource that a skill names.",
        p.GetResource,
        read_only=True,
    ),
)
