"""Gathers what the notes of a wake are made from: the verdict, the live shell, fitting skills, recalled and recent sessions.

Nothing here starts a sandbox or calls a model, and the cost does not grow with the number of sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelio.runtime.navigation.context import describe_pressure
from fidelio.runtime.navigation.listing import describe_visible, rank
from fidelio.runtime.navigation.summaries import render_summary
from fidelio.runtime.notes.notes import MAX_SESSIONS, MAX_SKILLS, NoteSubject, build_notes
from fidelio.runtime.outcomes.verdicts import read_verdict
from fidelio.runtime.recall.automatic import recall_automatically
from fidelio.runtime.sessions import session_namespace
from fidelio.runtime.shell.live import LiveShell, observe
from fidelio.runtime.skills.tools import rank_skills
from fidelio.runtime.specs import build_spec
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext, ToolCall
from fidelio.runtime.wakes.preparation import Prepared
from fidelio.sandbox.model import SandboxSpec

# The newest sessions that are looked at where recall has found nothing.
_RECENT = 20


async def gather_notes(
    context: RuntimeContext, session: LoadedRuntime, prepared: Prepared, *, message: str, outcome: str, setup: str
) -> tuple[str, ...]:
    """The notes of a wake that begins. `message` is the newest text of the person, `outcome` what a new outcome is about."""
    call = ToolCall(context, session, "", DEFINITIONS["session_list"], SandboxSpec("", "", ()), prepared.tools)
    call.build_spec = build_spec
    live = (await observe(call)).shell
    found = await recall_automatically(context, session, message=message, tools=prepared.tools, outcome=outcome)
    ranked = rank_skills(prepared.skills, message, MAX_SKILLS) if message else ()
    subject = NoteSubject(
        session=session,
        message=message,
        verdict=_read_verdict(session, live, prepared.tools, now=context.clock()),
        setup=setup,
        recall=found.describe() if found.hits else None,
        skills=tuple(each.skill for each in ranked),
        sessions=() if found.hits else await _list_recent(call),
        pressure=describe_pressure(session.record, prepared.info.window, tools=prepared.tools),
        live=live,
        tools=prepared.tools,
        now=context.clock(),
    )
    return build_notes(subject)


def _read_verdict(session: LoadedRuntime, live: LiveShell | None, tools: frozenset[str], *, now: int) -> Mapping[str, Any]:
    is_busy = live is not None and live.busy
    return read_verdict(session.record, shell_busy=is_busy, tools=tools, now=now)


async def _list_recent(call: ToolCall) -> tuple[Mapping[str, Any], ...]:
    """The most useful of the newest sessions of the agent."""
    namespace = session_namespace(call.record.project)
    page = await call.context.ledger.sessions(kind="runtime", namespace=namespace, limit=_RECENT)
    others = [row for row in page.items if row.id != call.session.id]
    best = sorted(await describe_visible(call, others), key=rank, reverse=True)[:MAX_SESSIONS]
    return tuple(render_summary(each, 0, call.tools) for each in best)
