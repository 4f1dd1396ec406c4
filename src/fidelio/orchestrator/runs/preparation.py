"""Preparation of a turn: everything an executor needs, from the session, its blueprint and this machine."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import msgspec

from fidelio.errors import SessionNotFound
from fidelio.ids import run_id
from fidelio.orchestrator.blueprints.model import Blueprint, reduce_limits
from fidelio.orchestrator.blueprints.servers import add_agent_header, fill_placeholders
from fidelio.orchestrator.executors.contract import Executor, Turn
from fidelio.orchestrator.record.record import AgentRecord
from fidelio.orchestrator.record.unit_of_work import LoadedAgent
from fidelio.orchestrator.runs import worktrees
from fidelio.orchestrator.runs.cleanup import spool_directory
from fidelio.orchestrator.runs.context import OrchestratorContext, require_directory
from fidelio.orchestrator.runs.environment import add_fidelio_environment, build_agent_environment, build_fidelio_environment
from fidelio.orchestrator.runs.queueing import load_prompt
from fidelio.orchestrator.runs.worktrees import Worktree


class PreparedTurn(msgspec.Struct, frozen=True):
    """A turn and its executor. `new_worktree` was created for it, and is removed if the turn does not begin."""

    executor: Executor
    blueprint: Blueprint
    turn: Turn
    new_worktree: Worktree | None = None


async def prepare_turn(context: OrchestratorContext, agent: LoadedAgent) -> PreparedTurn:
    """Prepare a turn that is to begin. Repeats the checks of the start, which may have been days ago."""
    record = agent.record
    require_directory(record.project)
    blueprint = await context.load_session_blueprint(record)
    # Runs that no person asked for share the limits of a single run.
    limits = reduce_limits(blueprint.limits, record.spent_unasked, record.unasked_ms)
    blueprint = msgspec.structs.replace(blueprint, limits=limits)
    executor = await context.choose_executor(blueprint, record.executor)
    directory = _directory(record)
    require_directory(directory)
    turn = await _build_turn(context, agent, blueprint, directory=directory, fresh=str(uuid.uuid4()))
    turn = msgspec.structs.replace(turn, blueprint=resolve_blueprint(context, blueprint, record.run.id))
    if not record.wants_worktree or record.worktree:
        return PreparedTurn(executor, blueprint, turn)
    # Created last, because a failure after this has to remove it.
    made = await worktrees.create(record.project, context.home.worktrees, agent.session.name or agent.id, agent.id)
    return PreparedTurn(executor, blueprint, msgspec.structs.replace(turn, directory=Path(made.directory)), made)


def resolve_blueprint(context: OrchestratorContext, blueprint: Blueprint, run: str) -> Blueprint:
    """The blueprint with secrets and run-specific variables, for an executor; it must not be stored or shown."""
    return add_fidelio_environment(
        add_agent_header(fill_placeholders(blueprint, os.environ), run), build_fidelio_environment(os.environ, context.home)
    )


async def restore_turn(context: OrchestratorContext, agent: LoadedAgent) -> PreparedTurn:
    """Restore a turn that has begun, as far as the record allows."""
    blueprint = await context.load_run_blueprint(agent.record)
    executor = context.require_executor(agent.record.executor)
    directory = _directory(agent.record)
    return PreparedTurn(
        executor, blueprint, await _build_turn(context, agent, blueprint, directory=directory, fresh=agent.record.run.fresh)
    )


async def sweep_worktrees(context: OrchestratorContext) -> None:
    """Remove worktrees that a host created and could not record before it was killed. Called before runs begin."""
    for note in worktrees.read_notes(context.home.worktrees):
        try:
            session = await context.ledger.session(note.session)
        except SessionNotFound:
            # A session of another ledger that uses the same home.
            continue
        if session.record.get("worktree") == note.worktree.path:
            worktrees.remove_note(note.worktree)
        else:
            await worktrees.discard(note.project, note.worktree)


def _directory(record: AgentRecord) -> str:
    return worktrees.recorded_worktree(record).directory if record.worktree else record.project


async def _build_turn(
    context: OrchestratorContext, agent: LoadedAgent, blueprint: Blueprint, *, directory: str, fresh: str
) -> Turn:
    record, run = agent.record, agent.record.run
    # The id that was chosen for a lost turn: the agent may know the conversation under it.
    chosen = run.fresh if run.resumes else ""
    return Turn(
        run=run_id(agent.id, run.number),
        session=agent.id,
        prompt=await load_prompt(context.ledger, agent.id, run),
        blueprint=blueprint,
        template=blueprint,
        directory=Path(directory),
        conversation=record.conversation or chosen or None,
        fresh=fresh,
        spool=spool_directory(context.home, agent.id, run.number, run.part),
        environment=build_agent_environment(blueprint, record.executor, run.id, os.environ, context.home),
        keep=context.home.agent_homes / agent.id,
        proof=run.proof,
        outlives_host=context.is_attended,
    )
