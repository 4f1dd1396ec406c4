"""Tool declarations of the `navigator` dialect: names, titles and descriptions, as a model reads them."""

from __future__ import annotations

from typing import Any

from fidelio.surfaces.mcp import schemas
from fidelio.surfaces.mcp.dialects.navigator import parameters as p
from fidelio.surfaces.mcp.dialects.sessions.declarations import HEALTH_CHECK
from fidelio.surfaces.mcp.dialects.sessions.parameters import NoParameters
from fidelio.toolkit import Tool

INSTRUCTIONS = (
    "Fidelio leads you through a workflow step by step. Call get_activities or list_workflows to find what fits, then "
    "nav_start. Every reply says where you are and which actions are required, optional or blocked; do the work, then call "
    "nav_action with one of them. A checkpoint is the user's to answer. Always pass the newest state."
)
# A worker carries out an activity: it neither chooses a workflow, nor moves its session, nor answers for people.
NOT_FOR_WORKERS = frozenset({"nav_start", "list_workflows", "get_activities", "discover_resources"})
TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "nav_start",
        "Start a workflow",
        "Starts a workflow. Returns position, availableActions (required, optional, blocked), the checkpoint to answer, and "
        "the state: pass the newest, exactly as returned, to the next call.",
        p.NavStart,
    ),
    Tool(
        "nav_situation",
        "Where the workflow stands",
        "Returns the same for a saved state, as it is now.",
        p.StateReference,
        read_only=True,
    ),
    Tool(
        "nav_action",
        "Do what is possible",
        "Makes a move that the last reply offers: complete_step (step_id) after you did it, respond_to_checkpoint "
        "(checkpoint_id, option_id) with the user's choice, not before wait_ms, transition (activity_id), advance_loop "
        "(loop_id, loop_items), get_resource (index).",
        p.NavAction,
    ),
    Tool(
        "nav_checkpoint",
        "Read the checkpoint",
        "Returns the checkpoint to answer first, with its options, to put to the user.",
        p.StateReference,
        read_only=True,
        output_schema=schemas.NAV_CHECKPOINT,
    ),
    Tool(
        "list_workflows",
        "List workflows",
        "Lists the workflows that can be started.",
        NoParameters,
        read_only=True,
    ),
    Tool(
        "get_workflow",
        "Read a workflow",
        "Returns a whole workflow. Large: nav_start leads through it without reading it.",
        p.WorkflowReference,
        read_only=True,
    ),
    Tool(
        "get_workflow_activity",
        "Read an activity of a workflow",
        "Returns one activity.",
        p.GetWorkflowActivity,
        read_only=True,
    ),
    Tool(
        "get_checkpoint",
        "Read a checkpoint of an activity",
        "Returns a checkpoint, to be answered now or not.",
        p.GetCheckpoint,
        read_only=True,
    ),
    Tool(
        "validate_transition",
        "Check a transition",
        "Says whether there is such a transition.",
        p.ValidateTransition,
        read_only=True,
        output_schema=schemas.VALIDATE_TRANSITION,
    ),
    HEALTH_CHECK,
    Tool(
        "get_activities",
        "Find an activity",
        "Start here: the activities of all workflows, with phrases of users to match.",
        NoParameters,
        read_only=True,
    ),
    Tool(
        "get_activity",
        "Read an activity",
        "Returns an activity of any workflow.",
        p.GetActivity,
        read_only=True,
    ),
    Tool(
        "get_skills",
        "Find a skill",
        "Lists all skills with what they are for.",
        NoParameters,
        read_only=True,
    ),
    Tool(
        "list_skills",
        "List skills",
        "Lists the universal skills and those of a workflow.",
        p.ListSkills,
        read_only=True,
    ),
    Tool(
        "get_skill",
        "Read a skill",
        "Returns a skill of the workflow, else the universal one.",
        p.GetSkill,
        read_only=True,
    ),
    Tool(
        "list_workflow_resources",
        "List resources",
        "Lists the resources of a workflow by their numbers.",
        p.WorkflowReference,
        read_only=True,
    ),
    Tool(
        "get_resource",
        "Read a resource",
        "Returns a resource of a workflow by its number.",
        p.IndexReference,
        read_only=True,
    ),
    Tool(
        "list_templates",
        "List templates",
        "Lists the templates of a workflow by their numbers.",
        p.WorkflowReference,
        read_only=True,
    ),
    Tool(
        "get_template",
        "Read a template",
        "Returns a template of a workflow by its number, to be filled in.",
        p.IndexReference,
        read_only=True,
    ),
    Tool(
        "discover_resources",
        "See what there is",
        "Summarises what there is, with the tool that serves it.",
        NoParameters,
        read_only=True,
    ),
)
