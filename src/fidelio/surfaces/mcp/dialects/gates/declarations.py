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
TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "discover",
        "How to begin",
        "Start here. Returns the server's name and version, the workflows that can be started, and the procedure. Needs no "
        "token.",
        NoParameters,
        read_only=True,
    ),
    Tool(
        "list_workflows",
        "List workflows",
        "Lists the workflows that can be started, each with id, title, version and description. Needs no token.",
        NoParameters,
        read_only=True,
    ),
    HEALTH_CHECK,
    Tool(
        "start_session",
        "Start or continue a session",
        "Starts a session of a workflow, or continues one (session_token), as a worker or later. Returns the session_token "
        "that every other tool needs.",
        p.StartSession,
        output_schema=schemas.START_SESSION,
    ),
    Tool(
        "next_activity",
        "Enter an activity",
        "Moves the session to an activity and returns its whole definition, or ends it with __terminal__. Its required "
        "checkpoints become pending: answer each with respond_checkpoint before anything else. Report the steps of the "
        "activity you leave in step_manifest. Entering the current activity shows it again and moves nothing.",
        NextActivity,
    ),
    Tool(
        "get_trace",
        "Read the trace",
        "Returns the calls of this session, or those that the given trace_tokens commit to. Where `next` is there, more "
        "follow. Works while checkpoints are pending, too.",
        GetTrace,
        read_only=True,
    ),
    Tool(
        "get_checkpoint",
        "Read a checkpoint",
        "Returns a question with its options and their effects, to put to the user. Reading it moves nothing.",
        p.GetCheckpoint,
        read_only=True,
        output_schema=schemas.GET_CHECKPOINT,
    ),
    Tool(
        "respond_checkpoint",
        "Answer a checkpoint",
        "Answers one pending checkpoint: passes on the user's choice (option_id), or takes the default after its time "
        "(auto_advance), or dismisses a conditional one (condition_not_met). Exactly one of the three. Never choose for "
        "the user. An answer is given once. Returns what is still pending.",
        p.RespondCheckpoint,
        idempotent=True,
        output_schema=schemas.RESPOND_PENDING_CHECKPOINT,
    ),
    Tool(
        "get_workflow",
        "Read the workflow",
        "Returns the rules, the variables, who carries it out, initialActivity and the list of activities (summary), or "
        "the full definition (summary=false). Held while a checkpoint is pending.",
        p.GetWorkflow,
        read_only=True,
    ),
    Tool(
        "get_skills",
        "Read the workflow's skills",
        "Returns the skills of the workflow as a whole, by id: how to conduct it. `_resources` name what to read with "
        "get_resource.",
        GetSkills,
        read_only=True,
    ),
    Tool(
        "get_skill",
        "Read the skill of a step",
        "Returns the skill of a step of the current activity; `_resources` name what to read with get_resource. Held while "
        "a checkpoint is pending.",
        p.GetSkill,
        read_only=True,
    ),
    Tool(
        "get_resource",
        "Read a resource",
        "Returns a resource by its number, such as 03, or workflow/03 for one of another workflow. Held while a checkpoint "
        "is pending.",
        p.GetResource,
        read_only=True,
    ),
)
