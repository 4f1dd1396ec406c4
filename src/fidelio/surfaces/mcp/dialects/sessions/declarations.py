"""Tool declarations of the `sessions` dialect: names, titles and descriptions, as a model reads them."""

from __future__ import annotations

from typing import Any

from fidelio.surfaces.mcp import schemas
from fidelio.surfaces.mcp.dialects.sessions import parameters as p
from fidelio.toolkit import Tool

INSTRUCTIONS = (
    "Fidelio leads you through a workflow one activity at a time. Call discover for the procedure: list_workflows, "
    "start_session, get_workflow, next_activity, get_activity. At a checkpoint call yield_checkpoint and stop until it was "
    "answered; then call resume_checkpoint. Always pass the newest session_token."
)
HEALTH_CHECK = Tool(
    "health_check",
    "Check the server",
    "Returns the server's state and version.",
    p.NoParameters,
    read_only=True,
    output_schema=schemas.HEALTH_CHECK,
)
# A worker carries out an activity: it neither chooses a workflow, nor moves its session, nor answers for people.
NOT_FOR_WORKERS = frozenset({"discover", "list_workflows", "next_activity", "present_checkpoint", "respond_checkpoint"})
TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "discover",
        "How to begin",
        "Start here: how to start a session and follow a workflow.",
        p.NoParameters,
        read_only=True,
    ),
    Tool(
        "list_workflows",
        "List workflows",
        "Lists the workflows; match the user's goal to one.",
        p.NoParameters,
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
        "get_workflow_status",
        "Where the session stands",
        "Returns status, activities, variables, the checkpoint that waits, and every transition with whether it holds.",
        p.GetStatus,
        read_only=True,
        output_schema=schemas.GET_WORKFLOW_STATUS,
    ),
    Tool(
        "next_activity",
        "Enter an activity",
        "Moves the session to an activity and checks the move. Report the steps of the activity you leave in step_manifest. "
        "Read the new one with get_activity.",
        p.NextActivity,
        output_schema=schemas.NEXT_ACTIVITY,
    ),
    Tool(
        "get_trace",
        "Read the trace",
        "Returns the calls of this session, or those of trace_tokens. With `next`, more follow.",
        p.GetTrace,
        read_only=True,
    ),
    Tool(
        "yield_checkpoint",
        "Stop at a checkpoint",
        "Stops at a checkpoint until it is answered. Returns the checkpoint_handle for the orchestrator.",
        p.YieldCheckpoint,
        output_schema=schemas.YIELD_CHECKPOINT,
    ),
    Tool(
        "resume_checkpoint",
        "Go on after a checkpoint",
        "Reads the answer and continues: option, effect, changed variables. An error while it waits.",
        p.ResumeCheckpoint,
        idempotent=True,
        output_schema=schemas.RESUME_CHECKPOINT,
    ),
    Tool(
        "present_checkpoint",
        "Read a checkpoint",
        "Returns the question and its options, to put to the user.",
        p.PresentCheckpoint,
        read_only=True,
    ),
    Tool(
        "respond_checkpoint",
        "Answer a checkpoint",
        "Passes on the user's choice. Exactly one of option_id, auto_advance and condition_not_met. Never choose for the user.",
        p.RespondCheckpoint,
        idempotent=True,
        output_schema=schemas.RESPOND_CHECKPOINT,
    ),
    Tool(
        "get_workflow",
        "Read the workflow",
        "Returns the primary skill, a line ---, rules, variables, initialActivity and activities.",
        p.GetWorkflow,
        read_only=True,
    ),
    Tool(
        "get_activity",
        "Read the activity",
        "Returns the whole current activity: steps, checkpoints, loops, transitions, rules.",
        p.TokenReference,
        read_only=True,
    ),
    Tool(
        "get_skills",
        "Read the workflow's skill",
        "Returns the workflow's primary skill.",
        p.GetSkills,
        read_only=True,
    ),
    Tool(
        "get_skill",
        "Read a skill",
        "Returns the skill of a step, else of the activity, else of the workflow.",
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
