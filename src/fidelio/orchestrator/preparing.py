"""Everything an executor has to be told before a turn, put together from the session, its blueprint and this machine."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import msgspec

from fidelio.orchestrator import worktrees
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.blueprints.servers import with_secrets
from fidelio.orchestrator.desk import Draft, Opened
from fidelio.orchestrator.environment import environment_for
from fidelio.orchestrator.executors.contract import Executor, Turn
from fidelio.orchestrator.parts import Parts, require_directory, require_sound
from fidelio.orchestrator.record import WORKTREE, Record
from fidelio.orchestrator.rules import run_id
from fidelio.orchestrator.spools import spool_of
from fidelio.orchestrator.turns import prompt_of


class Prepared(msgspec.Struct, frozen=True):
    """A turn and who carries it out. `drafts` is what preparing it has changed."""

    executor: Executor
    blueprint: Blueprint
    turn: Turn
    drafts: tuple[Draft, ...] = ()


async def prepare(parts: Parts, at: Opened) -> Prepared:
    """For a turn that is to begin. Checks again what was checked when it was asked for: that may be days ago."""
    record = at.record
    require_directory(record.project)
    blueprint = await parts.blueprint_of(record)
    executor = await parts.working_executor(record.executor)
    require_sound(executor, blueprint)
    directory = _directory(record)
    drafts: tuple[Draft, ...] = ()
    if record.wants_worktree and not record.worktree:
        made = await worktrees.create(record.project, parts.home.worktrees, at.session.name or at.id, at.id)
        directory, drafts = made.directory, (Draft(WORKTREE, msgspec.structs.asdict(made)),)
    require_directory(directory)
    turn = await _turn(parts, at, with_secrets(blueprint, os.environ), directory=directory, fresh=str(uuid.uuid4()))
    return Prepared(executor, blueprint, turn, drafts)


async def recall(parts: Parts, at: Opened) -> Prepared:
    """For a turn that has begun: as it was, as far as that can be told."""
    blueprint = await parts.blueprint_of(at.record)
    executor = parts.known_executor(at.record.executor)
    directory = _directory(at.record)
    return Prepared(executor, blueprint, await _turn(parts, at, blueprint, directory=directory, fresh=at.record.run.fresh))


def _directory(record: Record) -> str:
    return worktrees.recorded(record).directory if record.worktree else record.project


async def _turn(parts: Parts, at: Opened, blueprint: Blueprint, *, directory: str, fresh: str) -> Turn:
    record, run = at.record, at.record.run
    # An id that we chose for a turn that was lost: the agent knows it if it came that far.
    chosen = run.fresh if run.resumes else ""
    return Turn(
        run=run_id(at.id, run.number),
        session=at.id,
        prompt=await prompt_of(parts.ledger, at.id, run),
        blueprint=blueprint,
        directory=Path(directory),
        conversation=record.conversation or chosen or None,
        fresh=fresh,
        spool=spool_of(parts.home, at.id, run.number, run.part),
        environment=environment_for(blueprint, record.executor, run.id, os.environ, parts.home),
        keep=parts.home.agent_homes / at.id,
    )
