"""Commands over the ledger: `fidelio sessions`, `events`, `search` and `verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fidelio.clock import format_iso
from fidelio.errors import ChainBroken, UsageProblem
from fidelio.surfaces.cli.context import (
    CliContext,
    json_option,
    json_text,
    pass_cli,
    print_json,
    print_table,
    printable,
    run_async,
    shorten,
    terminal_width,
    workflows_option,
)
from fidelio.surfaces.commands import as_typed

if TYPE_CHECKING:
    from fidelio.app.records import ChainVerdict, Records
    from fidelio.ledger.model import Event, Hit, Session


KINDS = click.Choice(["workflow", "agent", "runtime"])


@click.command("sessions")
@click.option("--kind", type=KINDS, help="Only sessions of this kind.")
@click.option("--status", help="Only sessions with this status, such as active, blocked or completed.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@click.option("--after", metavar="CURSOR", help="Go on where an earlier answer said so.")
@click.option("--end", "ending", metavar="SESSION", help="List nothing: end SESSION, whose workflow is no longer there.")
@workflows_option
@json_option
@pass_cli
def sessions_command(
    cli: CliContext, /, kind: Any, status: str | None, limit: int, after: str | None, as_json: bool, **ending: Any
) -> None:
    """List sessions, newest first.

    With --end: end a session whose workflow was deleted or cannot be read any more, without its definition. The record says so.
    It is looked for in the place that it came from, or in --workflows.
    """
    if ending["ending"]:
        run_async(_end_session(cli, as_json=as_json, **ending))
        return

    async def work() -> None:
        async with cli.records() as records:
            page = await records.sessions(kind=kind, status=status, cursor=after, limit=limit)
        if as_json:
            print_json({"sessions": [_session_json(session) for session in page.items], "next": page.next})
        elif not page.items:
            click.echo("No such sessions." if kind or status else f"No sessions yet. `{cli.program} tour` makes one.")
        else:
            print_table(
                [_session_row(session) for session in page.items], ["id", "kind", "about", "status", "events", "changed"]
            )
            if page.next:
                click.echo(f"More with: {cli.program} sessions --after {page.next}")

    run_async(work())


@click.command("events")
@click.argument("session")
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this number.")
@click.option("--type", "types", multiple=True, help="Only events of this type (repeatable).")
@click.option("--limit", type=click.IntRange(1, 10_000), default=200, show_default=True, help="How many at most.")
@click.option("--follow", is_flag=True, help="Go on showing events as they happen, until Ctrl-C.")
@json_option
@pass_cli
def events_command(
    cli: CliContext, session: str, after: int, types: tuple[str, ...], limit: int, follow: bool, as_json: bool
) -> None:
    """Show what happened in SESSION (an id or a name), in order."""

    async def work() -> None:
        async with cli.records() as records:
            found = await records.find(session)
            if follow:
                async for event in records.follow(found.id, after=after, types=types):
                    _print_event(event, as_json=as_json)
            else:
                for event in await records.events(found.id, after=after, types=types, limit=limit):
                    _print_event(event, as_json=as_json)

    run_async(work())


@click.command("search")
@click.argument("text")
@click.option("--session", help="Only in this session, or with --relation around it.")
@click.option("--relation", type=click.Choice(["parent", "children", "siblings"]), help="Look in the relatives of --session.")
@click.option("--kind", type=KINDS, help="Only in sessions of this kind.")
@click.option("--type", "types", multiple=True, help="Only in events of this type (repeatable).")
@click.option("--source", type=click.Choice(["event", "document"]), help="Only in events, or only in documents.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many finds at most.")
@json_option
@pass_cli
def search_command(cli: CliContext, /, as_json: bool, **filters: Any) -> None:
    """Find TEXT in events and documents.

    All words must occur; "a phrase in quotes" stays together; a word with * at its end finds beginnings.
    """
    from fidelio.ledger.model import Query

    async def work() -> None:
        async with cli.records() as records:
            hits = await records.search(Query(**filters))
        if as_json:
            print_json({"hits": [_hit_json(hit) for hit in hits]})
        elif not hits:
            click.echo("Nothing found.")
        for hit in () if as_json else hits:
            _print_hit(hit)

    run_async(work())


@click.command("verify")
@click.argument("session", required=False)
@click.option("--all", "everything", is_flag=True, help="Verify every session.")
@click.option("--head", "heads", metavar="HEX", multiple=True, help="A head that was recorded earlier and must be on the way.")
@json_option
@pass_cli
def verify_command(cli: CliContext, session: str | None, everything: bool, heads: tuple[str, ...], as_json: bool) -> int:
    """Prove that the record of SESSION is what was acknowledged, or name the first event that is not."""
    if (session is None) is not everything:
        raise UsageProblem("verify takes one session, or --all.", remedy="`fidelio sessions` lists them.")

    known = [_head(text) for text in heads]

    async def work() -> tuple[list[ChainVerdict | ChainBroken], list[bytes]]:
        async with cli.records() as records:
            if session is None:
                return await records.verify_all(known)
            return [await _verify_one(records, session, known)], []

    verdicts, cut_off = run_async(work())
    missing = [head.hex() for head in cut_off]
    holds = not missing and not any(isinstance(verdict, ChainBroken) for verdict in verdicts)
    if as_json:
        print_json({"holds": holds, "sessions": [_verdict_json(verdict) for verdict in verdicts], "missing_heads": missing})
    else:
        _print_verdicts(verdicts, missing, everything=everything)
    return 0 if holds else ChainBroken.exit_code


async def _verify_one(records: Records, session: str, heads: list[bytes]) -> ChainVerdict | ChainBroken:
    found = await records.find(session)
    try:
        return await records.verify(found.id, heads=heads)
    except ChainBroken as broken:
        return broken


def _head(text: str) -> bytes:
    try:
        head = bytes.fromhex(text)
    except ValueError:
        head = b""
    if len(head) != 32:
        raise UsageProblem("A head is 64 hexadecimal digits.", remedy="`fidelio verify SESSION --json` prints one.")
    return head


def _print_verdicts(verdicts: list[ChainVerdict | ChainBroken], missing: list[str], *, everything: bool) -> None:
    for verdict in verdicts:
        if isinstance(verdict, ChainBroken):
            click.echo(printable(str(verdict)), err=True)
        elif not everything:
            redacted = f", {verdict.redacted} of them redacted" if verdict.redacted else ""
            click.echo(f"Session {verdict.session} holds: {verdict.events} events{redacted}, head {verdict.head.hex()}.")
    for head in missing:
        click.echo(f"No session has the head {head} on its way. Compare the ledger with a backup.", err=True)
    if everything:
        broken = sum(isinstance(verdict, ChainBroken) for verdict in verdicts)
        click.echo(f"{len(verdicts) - broken} of {len(verdicts)} sessions hold.")


def _verdict_json(verdict: ChainVerdict | ChainBroken) -> dict[str, Any]:
    if isinstance(verdict, ChainBroken):
        return {"session": verdict.session, "holds": False, "seq": verdict.seq, "reason": verdict.reason}
    known = {"events": verdict.events, "redacted": verdict.redacted, "head": verdict.head.hex()}
    return {"session": verdict.session, "holds": True, **known}


def _session_json(session: Session) -> dict[str, Any]:
    return {
        "id": session.id,
        "kind": session.kind,
        "namespace": session.namespace,
        "name": session.name,
        "about": _about(session),
        "parent": session.parent,
        "status": session.status,
        "reason": session.reason,
        "events": session.last_seq,
        "head": session.head.hex(),
        "created_at": format_iso(session.created_at),
        "updated_at": format_iso(session.updated_at),
    }


def _about(session: Session) -> str:
    """What tells it from the others: the workflow and where that stands, or its name."""
    record = session.record
    place = [str(part) for part in (record.get("workflow"), record.get("here", {}).get("activity")) if part]
    return ", ".join(place) or session.name or ""


def _session_row(session: Session) -> dict[str, str]:
    return {
        "id": session.id,
        "kind": session.kind,
        "about": printable(_about(session)),
        "status": session.status,
        "events": str(session.last_seq),
        "changed": format_iso(session.updated_at),
    }


def _print_event(event: Event, *, as_json: bool) -> None:
    body = {"redacted": True} if event.redacted else event.body
    if as_json:
        fields = {"seq": event.seq, "position": event.position, "id": event.id, "type": event.type, "actor": event.actor}
        print_line = {**fields, "time": format_iso(event.time), "body": body, "hash": event.hash.hex()}
        click.echo(json_text(print_line))
    else:
        start = f"{event.seq:>5}  {format_iso(event.time)}  {printable(event.actor):<14}  {printable(event.type):<20}  "
        click.echo(start + shorten(json_text(body), max(20, terminal_width() - len(start))))


def _hit_json(hit: Hit) -> dict[str, Any]:
    from msgspec import to_builtins

    return {**to_builtins(hit), "time": format_iso(hit.time)}


def _print_hit(hit: Hit) -> None:
    where = f"{hit.session} #{hit.seq}" if hit.source == "event" else f"{hit.space}/{hit.path} v{hit.version}"
    click.echo(f"{printable(f'{where}  {hit.type}')}  {format_iso(hit.time)}")
    for match in hit.matches:
        terms = printable(", ".join(match.terms))
        click.echo(f"    {printable(match.field)}: {shorten(match.excerpt, terminal_width() - 6)}  [{terms}]")


async def _end_session(
    cli: CliContext, *, ending: str, directories: tuple[str, ...], with_bundled: bool, as_json: bool
) -> None:
    from fidelio.inbox import require_person

    person = require_person()
    async with cli.open(directories, with_bundled=with_bundled, create=True) as application:
        ended = await application.end_session(ending, by=person)
    if as_json:
        print_json({"session": ended.session, "status": ended.record.status, "warnings": list(ended.warnings)})
        return
    click.echo(f"Session {ended.session} is {ended.record.status}.")
    for warning in ended.warnings:
        click.echo(f"  {printable(as_typed(warning, cli.program))}")
