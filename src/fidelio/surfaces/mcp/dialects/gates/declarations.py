"""Tool declarations of the `gates` dialect: names, titles and descriptions, as a model reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fidelio.surfaces.mcp import schemas
from fidelio.surfaces.mcp.dialects.gates import parameters as p
from fidelio.surfaces.mcp.dialects.sessions.parameters import GetTrace, NextActivity, NoParameters, TokenReference
from fidelio.toolkit import Tool

if TYPE_CHECKING:
    from fidelio.surfaces.mcp.dialects.gates.handlers import GatesDialect


def declare_tools(dialect: GatesDialect) -> list[Tool[Any]]:
    return [*_declare_discovery(dialect), *_declare_moves(dialect), *_declare_checkpoints(dialect), *_declare_reads(dialect)]


def _declare_discovery(dialect: GatesDialect) -> list[Tool[Any]]:
    return [
        Tool(
            "discover",
            "How to begin",
            "Start here. Returns the server's name and version, the workflows that can be started, and the procedure. Needs no "
            "token.",
            NoParameters,
            dialect.discover,
            read_only=True,
        ),
        Tool(
            "list_workflows",
            "List workflows",
            "Lists the workflows that can be started, each with id, title, version and description. Needs no token.",
            NoParameters,
            dialect.list_workflows,
            read_only=True,
        ),
        dialect.make_health_tool(dialect.health_check),
    ]


def _declare_moves(dialect: GatesDialect) -> list[Tool[Any]]:
    return [
        Tool(
            "start_session",
            "Start or continue a session",
            "Starts a session of a workflow, or continues one (session_token), as a worker or later. Returns the session_token "
            "that every other tool needs.",
            p.StartSession,
            dialect.start_session,
            output_schema=schemas.START_SESSION,
        ),
        Tool(
            "next_activity",
            "Enter an activity",
            "Moves the session to an activity and returns its whole definition, or ends it with __terminal__. Its required "
            "checkpoints become pending: answer each with respond_checkpoint before anything else. Report the steps of the "
            "activity you leave in step_manifest. Entering the current activity shows it again and moves nothing.",
            NextActivity,
            dialect.next_activity,
        ),
        Tool(
            "get_trace",
            "Read the trace",
            "Returns the calls of this session, or those that the given trace_tokens commit to. Where `next` is there, more "
            "follow. Works while checkpoints are pending, too.",
            GetTrace,
            dialect.get_trace,
            read_only=True,
        ),
    ]


def _declare_checkpoints(dialect: GatesDialect) -> list[Tool[Any]]:
    return [
        Tool(
            "get_checkpoint",
            "Read a checkpoint",
            "Returns a question with its options and their effects, to put to the user. Reading it moves nothing.",
            p.GetCheckpoint,
            dialect.get_checkpoint,
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
            dialect.respond_checkpoint,
            idempotent=True,
            output_schema=schemas.RESPOND_PENDING_CHECKPOINT,
        ),
    ]


def _declare_reads(dialect: GatesDialect) -> list[Tool[Any]]:
    return [
        Tool(
            "get_workflow",
            "Read the workflow",
            "Returns the rules, the variables, who carries it out, initialActivity and the list of activities (summary), or "
            "the full definition (summary=false). Held while a checkpoint is pending.",
            p.GetWorkflow,
            dialect.get_workflow,
            read_only=True,
        ),
        Tool(
            "get_skills",
            "Read the workflow's skills",
            "Returns the skills of the workflow as a whole, by id: how to conduct it. `_resources` name what to read with "
            "get_resource.",
            TokenReference,
            dialect.get_skills,
            read_only=True,
        ),
        Tool(
            "get_skill",
            "Read the skill of a step",
            "Returns the skill of a step of the current activity; `_resources` name what to read with get_resource. Held while "
            "a checkpoint is pending.",
            p.GetSkill,
            dialect.get_skill,
            read_only=True,
        ),
        Tool(
            "get_resource",
            "Read a resource",
            "Returns a resource by its number, such as 03, or workflow/03 for one of another workflow. Held while a checkpoint "
            "is pending.",
            p.GetResource,
            dialect.get_resource,
            read_only=True,
        ),
    ]
