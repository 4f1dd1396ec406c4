"""Erasure by a person: `fidelio sessions --delete` and `fidelio redact`.

Both show what will be erased and ask before they do it. They read from the terminal, so they are no coroutine functions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from fidelio.app.records import Records, RedactionPlan
from fidelio.clock import format_iso, format_local
from fidelio.errors import Command, Hint, UsageProblem
from fidelio.inbox import require_person
from fidelio.ledger.model import Event, Session
from fidelio.surfaces.cli.context import (
    CliContext,
    escape_line,
    json_option,
    json_text,
    print_json,
    print_sentence,
    run_async,
    shorten,
    terminal_width,
    with_cli_context,
)
from fidelio.surfaces.cli.references import SESSION

_LISTED = 20
yes_option = click.option("--yes", is_flag=True, help="Erase without asking, for scripts.")


def delete_session(cli: CliContext, name: str, reason: str, *, yes: bool, as_json: bool) -> None:
    """Delete a session and those that it has started, for good."""
    person = require_person()
    _require_reason(reason)
    sessions = run_async(_plan_deletion(cli, name))
    if not as_json or not yes:
        for session in sessions[:_LISTED]:
            print_sentence(f"  {session.id}  {session.kind}, {session.status}, {session.last_seq} events", err=as_json)
    others = f" and {len(sessions) - 1} that it has started" if len(sessions) > 1 else ""
    _confirm(f"Erase session {sessions[0].id}{others} for good?", yes=yes)
    retained = run_async(_delete(cli, sessions, person, reason))
    if as_json:
        print_json({"deleted": [session.id for session in sessions], "retained_worktrees": list(retained)})
        return
    print_sentence(f"Session {sessions[0].id}{others} is deleted. The record says by whom and why; `verify` still works.")
    for path in retained:
        print_sentence(f"  The worktree {escape_line(path)} holds changes and stays.")


async def _plan_deletion(cli: CliContext, name: str) -> list[Session]:
    async with cli.records() as records:
        return await records.plan_deletion(await records.find(name))


async def _delete(cli: CliContext, sessions: Sequence[Session], person: str, reason: str) -> tuple[str, ...]:
    async with cli.open() as application:
        retained = await application.delete_sessions(sessions, by=person, reason=reason)
        await _print_pending(await application.records())
        return retained


async def _print_pending(records: Records) -> None:
    if await records.erasure_pending():
        print_sentence(
            "Some bytes are in the file until the process that reads them has ended; then they are erased.", err=True
        )


@click.command("redact")
@click.argument("session", type=SESSION)
@click.option("--event", "seqs", type=click.IntRange(1), multiple=True, help="Erase the body of this event (repeatable).")
@click.option("--text", default="", help="Erase the bodies of all events that contain this text.")
@click.option("--reason", default="", help="Why; the record keeps it.")
@click.option("--dry-run", is_flag=True, help="Only show what would be erased.")
@yes_option
@json_option
@with_cli_context
def redact_command(cli: CliContext, /, session: str, seqs: tuple[int, ...], text: str, as_json: bool, **how: Any) -> int:
    """Erase what events of SESSION (an id or a name) contain, for good.

    Their bodies are erased, also from the search and from the file, and an event says who did it and why. Number, type, actor
    and time of the events stay, so the session can still be verified. A name that begins with a dash comes after --.
    """
    if bool(seqs) is bool(text):
        raise UsageProblem(
            "redact needs --event or --text, and not both.", remedy=Hint(Command("events", session), " lists them.")
        )
    person = "" if how["dry_run"] else require_person()
    if not how["dry_run"]:
        _require_reason(how["reason"])
    plan = run_async(_plan_redaction(cli, session, seqs, text))
    if how["dry_run"] or not plan.events:
        _print_plan(plan, as_json=as_json)
        return 1 if plan.remains else 0
    if not how["yes"]:
        _print_plan(plan, as_json=False)
    _confirm(f"Erase {_count(plan.events)} of session {plan.session.id} for good?", yes=how["yes"])
    notes, remains = run_async(_redact(cli, plan, person, how["reason"], text))
    _print_redacted(plan, notes, remains, as_json=as_json)
    return 1 if remains else 0


async def _plan_redaction(cli: CliContext, session: str, seqs: Sequence[int], text: str) -> RedactionPlan:
    async with cli.records() as records:
        return await records.plan_redaction(await records.find(session), seqs, text)


async def _redact(cli: CliContext, plan: RedactionPlan, person: str, reason: str, text: str) -> tuple[list[int], list[str]]:
    """Erase the events. Returns the events that say so, and what still contains the text."""
    async with cli.records() as records:
        session = plan.session.id
        for seqs in plan.batches():
            await records.redact(session, seqs, actor=person, reason=reason)
        await _print_pending(records)
        notes = await records.events(session, after=plan.session.last_seq, types=["event.redacted"])
        return [event.seq for event in notes], await records.find_remains(session, text) if text else []


def _print_plan(plan: RedactionPlan, *, as_json: bool) -> None:
    if as_json:
        events = [
            {"seq": event.seq, "type": event.type, "time": format_iso(event.time), "body": event.body} for event in plan.events
        ]
        unerasable = [event.seq for event in plan.unerasable]
        print_json({"session": plan.session.id, "events": events, "unerasable": unerasable, "remains": list(plan.remains)})
        return
    if not plan.events:
        print_sentence(f"Session {plan.session.id} has no such event that is not erased already.")
    for event in plan.events[:_LISTED]:
        start = f"  {event.seq:>5}  {format_local(event.time)}  {escape_line(event.type)}  "
        click.echo(start + shorten(json_text(event.body), max(20, terminal_width() - len(start))))
    if len(plan.events) > _LISTED:
        click.echo(f"  and {len(plan.events) - _LISTED} more")
    _print_unerasable(plan, plan.remains)


def _print_redacted(plan: RedactionPlan, notes: list[int], remains: list[str], *, as_json: bool) -> None:
    seqs = [event.seq for event in plan.events]
    if as_json:
        unerasable = [event.seq for event in plan.unerasable]
        print_json(
            {"session": plan.session.id, "erased": seqs, "recorded": notes, "unerasable": unerasable, "remains": remains}
        )
        return
    print_sentence(f"{_count(plan.events)} of session {plan.session.id} erased; event {notes[-1]} says by whom and why.")
    _print_unerasable(plan, remains)


def _print_unerasable(plan: RedactionPlan, remains: Sequence[str]) -> None:
    if plan.unerasable:
        seqs = ", ".join(str(event.seq) for event in plan.unerasable[:_LISTED])
        print_sentence(
            f"The text is also in the actor of events {seqs}. The chain contains it, so it cannot be erased.", err=True
        )
    for remaining in remains:
        click.echo(f"The text is still in {escape_line(remaining)}.", err=True)


def _count(events: Sequence[Event]) -> str:
    return f"{len(events)} event{'' if len(events) == 1 else 's'}"


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise UsageProblem("Erasing needs a reason, which stays on record.", remedy="Pass --reason TEXT.")


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageProblem("Nothing was erased: there is no terminal to ask at.", remedy="Pass --yes.")
    click.confirm(question, abort=True, err=True)
