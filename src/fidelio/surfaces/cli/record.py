"""Commands over the ledger: `fidelio sessions`, `events`, `search` and `verify`; `redact` is in `erasing`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import click

from fidelio.app.records import ChainVerdict, Records, check_status
from fidelio.clock import format_local
from fidelio.errors import ChainBroken, Command, Hint, UsageProblem
from fidelio.inbox import require_person
from fidelio.ledger.model import Event, Hit, Query, Session
from fidelio.surfaces.cli.anchor_options import anchors_json, print_anchors, verify_anchors, verify_options
from fidelio.surfaces.cli.context import (
    CliContext,
    escape_line,
    json_option,
    json_text,
    print_items,
    print_json,
    print_line,
    print_message,
    print_quote,
    print_sentence,
    print_table,
    quote_name,
    shorten,
    terminal_width,
    with_cli_context,
)
from fidelio.surfaces.cli.erasing import delete_session, redact_command, yes_option
from fidelio.surfaces.cli.references import SESSION, describe_next_page
from fidelio.surfaces.event_words import describe_agent_event, describe_values
from fidelio.surfaces.text import measure, pad
from fidelio.surfaces.timeline import describe_event, find_actor, has_words
from fidelio.surfaces.views.records import (
    SessionSummary,
    describe_session,
    session_fields,
    view_event,
    view_hit,
    view_verdict,
)

__all__ = ["events_command", "redact_command", "search_command", "sessions_command", "verify_command"]

KINDS = click.Choice(["workflow", "agent", "runtime"])
# Columns from which lists show all that they have, and the columns that are left at least for what happened.
_WIDE, _SHORTEST = 100, 20
_COLUMNS = ["id", "kind", "about", "status", "events", "changed"]


@click.command("sessions")
@click.option("--kind", type=KINDS, help="Only sessions of this kind.")
@click.option("--status", help="Only sessions with this status, such as active, blocked, completed or cancelled.")
@click.option("--all", "stores", is_flag=True, help="Also list stores and objects, which keep what several sessions share.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many to list at most.")
@click.option("--after", metavar="CURSOR", help="Start after this cursor; the end of a longer list shows it.")
@click.option(
    "--end", "ending", metavar="SESSION", type=SESSION, help="Do not list: end SESSION and the sessions that it has started."
)
@click.option(
    "--delete",
    "deleting",
    metavar="SESSION",
    type=SESSION,
    help="Do not list: erase SESSION and the sessions that it has started, for good.",
)
@click.option("--reason", default="", help="With --end or --delete: why; the record keeps it.")
@yes_option
@json_option
@with_cli_context
def sessions_command(
    cli: CliContext, /, as_json: bool, reason: str, yes: bool, **options: Any
) -> Coroutine[Any, Any, None] | None:
    """List sessions, newest first.

    With --end: end an unfinished workflow session, or a session of a sandbox. Its open questions are withdrawn, and a session
    that waits for it goes on.

    With --delete: erase a session that has ended, of any kind. Its chain can still be verified; it says who did it and why.
    The sandbox of a session is stopped, and its files are removed.
    """
    ending, deleting = options.pop("ending"), options.pop("deleting")
    if ending and deleting:
        raise UsageProblem("--end and --delete exclude each other.", remedy="End the session first, and delete it then.")
    if deleting:
        delete_session(cli, deleting, reason, yes=yes, as_json=as_json)
        return None
    if ending:
        return _end_session(cli, ending, reason, as_json=as_json)
    return _list_sessions(cli, as_json=as_json, **options)


async def _list_sessions(
    cli: CliContext, *, kind: Any, status: str | None, stores: bool, limit: int, after: str | None, as_json: bool
) -> None:
    check_status(kind, status)
    async with cli.records() as records:
        page = await records.sessions(kind=kind, status=status, cursor=after, limit=limit, stores=stores)
    if as_json:
        print_items([SessionSummary(**session_fields(session)) for session in page.items], page.next)
    elif not page.items:
        click.echo("No such sessions." if kind or status else f"No sessions yet. `{cli.program} tour` creates one.")
    else:
        # A narrow terminal needs the room for what a session is about.
        columns = [name for name in _COLUMNS if name != "events" or terminal_width() >= _WIDE]
        print_table([_session_row(session) for session in page.items], columns, cut=["about"])
        if page.next:
            print_sentence(describe_next_page(cli.program, page.next))


@click.command("events")
@click.argument("session", type=SESSION)
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this number.")
@click.option("--type", "types", multiple=True, help="Only events of this type (repeatable).")
@click.option("--limit", type=click.IntRange(1, 10_000), default=200, show_default=True, help="How many to list at most.")
@click.option("--follow", is_flag=True, help="Keep printing events as they happen, until Ctrl-C.")
@json_option
@with_cli_context
async def events_command(
    cli: CliContext, session: str, after: int, types: tuple[str, ...], limit: int, follow: bool, as_json: bool
) -> None:
    """Show the events of SESSION (an id or a name), in order."""
    async with cli.records() as records:
        found = await records.find(session)
        if follow:
            async for event in records.follow(found.id, after=after, types=types):
                _print_event(event, found.kind, as_json=as_json)
        else:
            for event in await records.events(found.id, after=after, types=types, limit=limit):
                _print_event(event, found.kind, as_json=as_json)


@click.command("search")
@click.argument("text")
@click.option("--session", type=SESSION, help="Only in this session; with --relation, in its relatives.")
@click.option(
    "--relation",
    type=click.Choice(["parent", "children", "siblings"]),
    help="Search the parent, children or siblings of --session.",
)
@click.option("--kind", type=KINDS, help="Only in sessions of this kind.")
@click.option("--type", "types", multiple=True, help="Only in events of this type (repeatable).")
@click.option("--source", type=click.Choice(["event", "document"]), help="Only in events, or only in documents.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many matches to print at most.")
@json_option
@with_cli_context
async def search_command(cli: CliContext, /, as_json: bool, **filters: Any) -> None:
    """Find TEXT in events and documents.

    All words must occur. "Words in quotes" must follow each other; word* matches every word that begins so.
    """
    async with cli.records() as records:
        if filters["session"]:
            filters["session"] = (await records.find(filters["session"])).id
        hits = await records.search(Query(**filters))
    if as_json:
        print_items([view_hit(hit) for hit in hits])
    elif not hits:
        click.echo("Nothing found.")
    for hit in () if as_json else hits:
        _print_hit(hit)


@click.command("verify")
@click.argument("session", required=False, type=SESSION)
@click.option("--all", "everything", is_flag=True, help="Verify every session.")
@click.option(
    "--head",
    "heads",
    metavar="HEX",
    multiple=True,
    help="The hash of an earlier head, which the chain must contain (repeatable).",
)
@json_option
@with_cli_context
@verify_options
async def verify_command(
    cli: CliContext, session: str | None, everything: bool, heads: tuple[str, ...], as_json: bool, anchoring: dict[str, Any]
) -> int:
    """Verify SESSION: prove that no event was changed or removed, or name the first that was.

    The hash chain covers the events. The record, requests, documents and contents of the session are compared with them; what
    an earlier version has written is listed as not covered. A chain alone does not show that its end was cut off, or that it
    was computed again as a whole. For that, pass a head that was printed earlier with --head, or an anchor that was kept
    elsewhere with --anchor.
    """
    everything = everything or (session is None and bool(anchoring["anchors"]))
    if (session is None) is not everything:
        raise UsageProblem(
            "verify needs a session or --all, and not both.", remedy=Hint(Command("sessions"), " lists the sessions.")
        )

    expected = [_parse_head(text) for text in heads]
    async with cli.open() as application:
        records = await application.records()
        found = (await records.find(session)).id if session is not None else None
        anchored = await verify_anchors(application, found, anchoring)
        if found is None:
            verdicts, missing_heads = await records.verify_all(expected)
        else:
            verdicts, missing_heads = [await _verify_session(records, found, expected)], []
    missing = [head.hex() for head in missing_heads]
    holds = not missing and all(map(_holds, verdicts)) and (anchored is None or anchored.holds)
    if as_json:
        sessions = [view_verdict(verdict) for verdict in verdicts]
        print_json({"holds": holds, "sessions": sessions, "missing_heads": missing, **anchors_json(anchored)})
    else:
        _print_verdicts(verdicts, missing, everything=everything)
        print_anchors(anchored)
    return 0 if holds else ChainBroken.exit_code


async def _verify_session(records: Records, session: str, heads: list[bytes]) -> ChainVerdict | ChainBroken:
    try:
        return await records.verify(session, heads=heads)
    except ChainBroken as broken:
        return broken


def _parse_head(text: str) -> bytes:
    try:
        head = bytes.fromhex(text)
    except ValueError:
        head = b""
    if len(head) != 32:
        raise UsageProblem(
            f"--head has the invalid value {text!r:.80}; it needs 64 hexadecimal digits.",
            remedy=Hint(Command("verify", "SESSION", "--json"), " prints one."),
        )
    return head


def _print_verdicts(verdicts: list[ChainVerdict | ChainBroken], missing: list[str], *, everything: bool) -> None:
    for verdict in verdicts:
        if isinstance(verdict, ChainBroken):
            print_message(str(verdict))
            continue
        for problem in verdict.problems:
            print_message(f"Session {verdict.session} does not verify: {problem}.")
        for sentence in verdict.not_covered:
            print_line(f"Session {verdict.session}: not covered: {escape_line(sentence)}.")
        if verdict.holds and not everything:
            redacted = f", {verdict.redacted} of them redacted" if verdict.redacted else ""
            print_sentence(f"Session {verdict.session} holds: {verdict.events} events{redacted}, head {verdict.head.hex()}.")
    for head in missing:
        print_sentence(f"No session contains the head {head}. Compare the ledger with a backup.", err=True)
    if everything:
        print_sentence(f"{sum(map(_holds, verdicts))} of {len(verdicts)} sessions hold.")


def _holds(verdict: ChainVerdict | ChainBroken) -> bool:
    return isinstance(verdict, ChainVerdict) and verdict.holds


def _session_row(session: Session) -> dict[str, str]:
    return {
        "id": session.id,
        "kind": session.kind,
        "about": describe_session(session),
        "status": session.status,
        "events": str(session.last_seq),
        "changed": format_local(session.updated_at, seconds=False),
    }


def _print_event(event: Event, kind: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(view_event(event)))
        return
    # A wide terminal has room for whole names, and for the type, by which --type selects.
    is_wide = terminal_width() >= _WIDE
    actor = find_actor(event)
    names = f"{pad(quote_name(actor), 15)}  {pad(quote_name(event.type), 20)}" if is_wide else ""
    start = f"{event.seq:>5}  {format_local(event.time)}  {names or pad(quote_name(actor, 15), 15)}  "
    print_line(start + shorten(describe_any_event(event, kind), max(_SHORTEST, terminal_width() - measure(start))))


def describe_any_event(event: Event, kind: str) -> str:
    """What happened in a session of this kind, in words; an unescaped text."""
    if kind == "agent":
        return describe_agent_event(event)
    entry = describe_event(event)
    if entry.is_minor or has_words(event.type):
        return f"{entry.what}: {entry.detail}" if entry.detail else entry.what
    return describe_values(event)


def _print_hit(hit: Hit) -> None:
    where = f"{hit.session} #{hit.seq}" if hit.source == "event" else quote_name(f"{hit.space}/{hit.path} v{hit.version}", 200)
    print_line(f"{format_local(hit.time)}  {where}  {quote_name(hit.type)}")
    for match in hit.matches:
        print_line(f"in {quote_name(match.field)}, found: {', '.join(map(quote_name, match.terms))}", "    ")
        print_quote(match.excerpt, "    ")


async def _end_session(cli: CliContext, session: str, reason: str, *, as_json: bool) -> None:
    person = require_person()
    async with cli.open(create=True) as application:
        found = await (await application.records()).find(session)
        if found.kind == "runtime":
            await (await application.runtime()).end_session(found.id, by=person)
            print_json({"session": found.id, "status": "terminated", "ended": [found.id]}) if as_json else click.echo(
                f"Session {found.id} is terminated."
            )
            return
        ended = await application.end_session(session, by=person, reason=reason)
    if as_json:
        print_json({"session": ended.session, "status": ended.record.status, "ended": list(ended.result)})
        return
    click.echo(
        f"Session {ended.session} is {ended.record.status}." if ended.result else f"Session {ended.session} was ended before."
    )
    for child in ended.result:
        if child != ended.session:
            click.echo(f"  {child}, which it started, is ended too.")
