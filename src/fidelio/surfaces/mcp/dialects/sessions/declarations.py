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
    "Returns the server's state, version, number of workflows and uptime. Needs no token.",
    p.NoParameters,
    read_only=True,
    output_schema=schemas.HEALTH_CHECK,
)
TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "discover",
        "How to begin",
        "Start here. Returns the server's name and version and the procedure for starting a session and following a "
        "workflow. Needs no token.",
        p.NoParameters,
        read_only=True,
    ),
    Tool(
        "list_workflows",
        "List workflows",
        "Lists the workflows that can be started, each with id, title, version and tags. Match the user's goal to one. "
        "Needs no token.",
        p.NoParameters,
        read_only=True,
    ),
    HEALTH_CHECK,
    Tool(
        "start_session",
        "Start or continue a session",
        "Starts a session of a workflow (default: meta), continues one (session_token) or starts a child of one "
        "(parent_session_token). Returns the session_token that every other tool needs.",
        p.StartSession,
        output_schema=schemas.START_SESSION,
    ),
    Tool(
        "get_workflow_status",
        "Where the session stands",
        "Returns status (active, blocked, completed, cancelled), current and completed activities, variables, the "
        "checkpoint that waits, and every transition with whether it holds now. Works while a checkpoint waits, too.",
        p.TokenReference,
        read_only=True,
        output_schema=schemas.GET_WORKFLOW_STATUS,
    ),
    Tool(
        "next_activity",
        "Enter an activity",
        "Moves the session to an activity, or to its end with __terminal__, and checks the move. Report the steps of the "
        "activity you leave in step_manifest. Returns only id and name; read the activity with get_activity.",
        p.NextActivity,
        output_schema=schemas.NEXT_ACTIVITY,
    ),
    Tool(
        "get_trace",
        "Read the trace",
        "Returns the calls of this session, or those that the given trace_tokens commit to. Where `next` is "
        "there, more follow.",
        p.GetTrace,
        read_only=True,
    ),
    Tool(
        "yield_checkpoint",
        "Stop at a checkpoint",
        "For the worker: stops the session at a checkpoint of the current activity until it is answered. Returns the "
        "checkpoint_handle to give to the orchestrator.",
        p.YieldCheckpoint,
        output_schema=schemas.YIELD_CHECKPOINT,
    ),
    Tool(
        "resume_checkpoint",
        "Go on after a checkpoint",
        "For the worker: reads the answer and continues. Returns the option, its effect and the changed variables. "
        "An error while the checkpoint still waits.",
        p.ResumeCheckpoint,
        idempotent=True,
        output_schema=schemas.RESUME_CHECKPOINT,
    ),
    Tool(
        "present_checkpoint",
        "Read a checkpoint",
        "For the orchestrator: returns the question behind a checkpoint_handle, with its options and their effects, to "
        "put to the user.",
        p.PresentCheckpoint,
        read_only=True,
    ),
    Tool(
        "respond_checkpoint",
        "Answer a checkpoint",
        "For the orchestrator: passes on the user's choice (option_id), or takes the default after its time "
        "(auto_advance), or dismisses a conditional checkpoint (condition_not_met). Exactly one of the three. Never choose "
        "for the user. An answer is given once.",
        p.RespondCheckpoint,
        idempotent=True,
        output_schema=schemas.RESPOND_CHECKPOINT,
    ),
    Tool(
        "get_workflow",
        "Read the workflow",
        "Returns the workflow's primary skill, a line ---, and the workflow: rules, variables, initialActivity and the "
        "list of activities (summary), or the whole file (summary=false).",
        p.GetWorkflow,
        read_only=True,
    ),
    Tool(
        "get_activity",
        "Read the activity",
        "For the worker: returns the whole definition of the current activity: steps, checkpoints, loops, decisions, "
        "transitions, rules and skills.",
        p.TokenReference,
        read_only=True,
    ),
    Tool(
        "get_skills",
        "Read the workflow's skill",
        "Returns the workflow's primary skill: how to conduct it.",
        p.GetSkills,
        read_only=True,
    ),
    Tool(
        "get_skill",
        "Read a skill",
        "Returns the skill of a step (step_id), else the activity's primary skill, else the workflow's.",
        p.GetSkill,
        read_only=True,
    ),
    Tool(
        "get_resource",
        "Read a resource",
        "Returns a resource by its number, such as 03, or workflow/03 for one of another workflow.",
        p.GetResource,
        read_only=True,
    ),
)
