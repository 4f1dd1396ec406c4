"""Everything an executor has to be told before a turn, put together from the session, its blueprint and this machine."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import msgspec

from fidelio.errors import SessionNotFound
from fidelio.ids import run_id
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.blueprints.servers import with_agent_header, with_secrets
from fidelio.orchestrator.executors.contract import Executor, Turn
from fidelio.orchestrator.record.record import Record
from fidelio.orchestrator.record.unit_of_work import LoadedAgent
from fidelio.orchestrator.runs import worktrees
from fidelio.orchestrator.runs.cleanup import spool_of
from fidelio.orchestrator.runs.context import OrchestratorContext, require_directory
from fidelio.orchestrator.runs.environment import environment_for, fidelio_environment, with_fidelio_environment
from fidelio.orchestrator.runs.queueing import prompt_of
from fidelio.orchestrator.runs.worktrees import Worktree


class Prepared(msgspec.Struct, frozen=True):
    """A turn and who carries it out. `made` is the worktree that was made for it, and goes again if it does not begin."""

    executor: Executor
    blueprint: Blueprint
    turn: Turn
    made: Worktree | None = None


async def prepare(context: OrchestratorContext, at: LoadedAgent) -> Prepared:
    """For a turn that is to begin. Checks again what was checked when it was asked for: that may be days ago."""
    record = at.record
    require_directory(record.project)
    blueprint = await context.blueprint_of(record)
    executor = await context.executor_for(blueprint, record.executor)
    directory = _directory(record)
    require_directory(directory)
    turn = await _turn(context, at, ready(context, blueprint, record.run.id), directory=directory, fresh=str(uuid.uuid4()))
    if not record.wants_worktree or record.worktree:
        return Prepared(executor, blueprint, turn)
    # Last, because whatever fails from here on has to take it back.
    made = await worktrees.create(record.project, context.home.worktrees, at.session.name or at.id, at.id)
    return Prepared(executor, blueprint, msgspec.structs.replace(turn, directory=Path(made.directory)), made)


def ready(context: OrchestratorContext, blueprint: Blueprint, run: str) -> Blueprint:
    """The blueprint as an executor needs it to begin something: not to be kept or shown."""
    return with_fidelio_environment(
        with_agent_header(with_secrets(blueprint, os.environ), run), fidelio_environment(os.environ, context.home)
    )


async def recall(context: OrchestratorContext, at: LoadedAgent) -> Prepared:
    """For a turn that has begun: as it was, as far as that can be told."""
    blueprint = await context.blueprint_begun_with(at.record)
    executor = context.known_executor(at.record.executor)
    directory = _directory(at.record)
    return Prepared(executor, blueprint, await _turn(context, at, blueprint, directory=directory, fresh=at.record.run.fresh))


async def sweep_worktrees(context: OrchestratorContext) -> None:
    """Takes back what a host has made and was killed before it could record. For a host, before it begins anything."""
    for note in worktrees.notes(context.home.worktrees):
        try:
            session = await context.ledger.session(note.session)
        except SessionNotFound:
            # Of another record, which may be used in turn with this one.
            continue
        made = note.worktree
        if session.record.get("worktree") == made.path:
            worktrees.forget_note(made)
        else:
            await worktrees.take_back(note.project, made)


def _directory(record: Record) -> str:
    return worktrees.recorded(record).directory if record.worktree else record.project


async def _turn(context: OrchestratorContext, at: LoadedAgent, blueprint: Blueprint, *, directory: str, fresh: str) -> Turn:
    record, run = at.record, at.record.run
    # An id that we chose for a turn that was lost: the agent knows it if it came that far.
    chosen = run.fresh if run.resumes else ""
    return Turn(
        run=run_id(at.id, run.number),
        session=at.id,
        prompt=await prompt_of(context.ledger, at.id, run),
        blueprint=blueprint,
        directory=Path(directory),
        conversation=record.conversation or chosen or None,
        fresh=fresh,
        spool=spool_of(context.home, at.id, run.number, run.part),
        environment=environment_for(blueprint, record.executor, run.id, os.environ, context.home),
        keep=context.home.agent_homes / at.id,
    )
