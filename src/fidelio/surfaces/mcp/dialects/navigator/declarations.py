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
TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "nav_start",
        "Start a workflow",
        "Starts a workflow and returns where you are (position), which actions are required, optional or blocked "
        "(availableActions), the checkpoint to answer, if there is one, and the state that the next call needs.",
        p.NavStart,
    ),
    Tool(
        "nav_situation",
        "Where the workflow stands",
        "Returns the same for a saved state, as it is now. Use it to come back to a workflow. Changes nothing.",
        p.StateReference,
        read_only=True,
    ),
    Tool(
        "nav_action",
        "Do what is possible",
        "Makes one of the moves that the last reply offers: complete_step (step_id) after you have done the step, "
        "respond_to_checkpoint (checkpoint_id, option_id) with the user's choice, transition (activity_id), advance_loop "
        "(loop_id, loop_items), get_resource (index). Anything else is refused with the reason and changes nothing. An "
        "answer that comes before wait_ms have passed is too fast to be the user's.",
        p.NavAction,
    ),
    Tool(
        "nav_checkpoint",
        "Read the checkpoint",
        "Returns the checkpoint that has to be answered before anything else goes on, with its options, to put to the "
        "user; or that there is none.",
        p.StateReference,
        read_only=True,
        output_schema=schemas.NAV_CHECKPOINT,
    ),
    Tool(
        "list_workflows",
        "List workflows",
        "Lists the workflows that can be started, each with id, title, version and description.",
        NoParameters,
        read_only=True,
    ),
    Tool(
        "get_workflow",
        "Read a workflow",
        "Returns a workflow whole, with all its activities. Large: nav_start leads you through it without reading it.",
        p.WorkflowReference,
        read_only=True,
    ),
    Tool(
        "get_workflow_activity",
        "Read an activity of a workflow",
        "Returns one activity: steps, checkpoints, loops, decisions, transitions, rules and skills.",
        p.GetWorkflowActivity,
        read_only=True,
    ),
    Tool(
        "get_checkpoint",
        "Read a checkpoint of an activity",
        "Returns a checkpoint with its options and their effects, whether or not it is to be answered now.",
        p.GetCheckpoint,
        read_only=True,
    ),
    Tool(
        "validate_transition",
        "Check a transition",
        "Says whether the definition has a transition from one activity to another, and why not.",
        p.ValidateTransition,
        read_only=True,
        output_schema=schemas.VALIDATE_TRANSITION,
    ),
    HEALTH_CHECK,
    Tool(
        "get_activities",
        "Find an activity",
        "Start here. Lists the activities of all workflows by the problem they solve, with phrases of users to match.",
        NoParameters,
        read_only=True,
    ),
    Tool(
        "get_activity",
        "Read an activity",
        "Returns an activity by its id, whichever workflow it is in, and what to read next.",
        p.GetActivity,
        read_only=True,
    ),
    Tool(
        "get_skills",
        "Find a skill",
        "Lists all skills with what they are for: those for every workflow, and those of each.",
        NoParameters,
        read_only=True,
    ),
    Tool(
        "list_skills",
        "List skills",
        "Lists the skills for every workflow and, with workflow_id, those of that workflow.",
        p.ListSkills,
        read_only=True,
    ),
    Tool(
        "get_skill",
        "Read a skill",
        "Returns a skill: of the workflow if it has one of that name, else the universal one.",
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
        "Summarises workflows, activities, skills, resources and templates, each with the tool that serves it.",
        NoParameters,
        read_only=True,
    ),
)
