"""`fidelio inbox`: list the requests that wait for a person."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import click
import msgspec

from fidelio.app.application import Application
from fidelio.app.records import Records, describe_ledger
from fidelio.clock import format_iso, format_local, now_ms
from fidelio.engine.record import BY_DEFINITION
from fidelio.errors import SessionNotFound
from fidelio.inbox import APPROVAL, Inbox
from fidelio.ledger.model import Request, RequestState, Session
from fidelio.surfaces.cli.context import (
    CliContext,
    describe_channel,
    escape_line,
    json_option,
    json_text,
    print_items,
    print_line,
    print_quote,
    quote_name,
    shorten,
    with_cli_context,
)
from fidelio.surfaces.cli.references import SESSION
from fidelio.surfaces.text import MAX_LINES


@click.command("inbox")
@click.option("--all", "everything", is_flag=True, help="Also list requests that are closed.")
@click.option("--session", type=SESSION, help="Only requests of this session.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many to list at most.")
@click.option("--after", metavar="CURSOR", help="Start after this cursor; the end of a longer list shows it.")
@click.option("--watch", is_flag=True, help="Keep printing requests as they are opened and answered, until Ctrl-C.")
@json_option
@with_cli_context
async def inbox_command(
    cli: CliContext, everything: bool, session: str | None, limit: int, after: str | None, watch: bool, as_json: bool
) -> None:
    """List the requests that wait for a person, oldest first: question, options, and how to answer."""
    if watch:
        await _watch_inbox(cli, session, as_json=as_json)
        return
    async with cli.open() as application:
        records, inbox = await application.records(), await application.inbox()
        state: RequestState | None = None if everything else "open"
        session_id = await _resolve_session(records, session)
        page = await inbox.list_requests(session=session_id, state=state, cursor=after, limit=limit)
        items = await load_items(records, inbox, page.items)
    if as_json:
        print_items([item_json(item) for item in items], page.next)
    elif not items:
        click.echo(f"Nothing waits for you in {describe_ledger(cli.settings)}.")
    for item in () if as_json else items:
        print_item(item, cli.program)
    if page.next and not as_json:
        click.echo(f"More: {cli.program} inbox --after {page.next}")


async def _watch_inbox(cli: CliContext, session: str | None, *, as_json: bool) -> None:
    """Print the open requests, then every request that any process opens or closes."""
    async with cli.open() as application:
        records, inbox, states = await application.records(), await application.inbox(), dict[str, str]()
        session_id = await _resolve_session(records, session)
        if not as_json and not (await inbox.list_requests(session=session_id, limit=1)).items:
            click.echo(f"Nothing waits for you in {describe_ledger(cli.settings)} yet.")
        async for request in inbox.follow(session=session_id):
            if states.get(request.id) != request.state:
                states[request.id] = request.state
                _print_watched(cli, (await load_items(records, inbox, [request]))[0], as_json=as_json)


def _print_watched(cli: CliContext, item: InboxItem, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(item_json(item)))
    else:
        print_item(item, cli.program)


async def load_item(application: Application, request: str) -> InboxItem:
    """A request with its session, by its id."""
    records, inbox = await application.records(), await application.inbox()
    return (await load_items(records, inbox, [await inbox.find(request)]))[0]


async def load_items(records: Records, inbox: Inbox, requests: Sequence[Request]) -> list[InboxItem]:
    """Load the sessions of the requests, each once."""
    sessions: dict[str, Session] = {}
    for name in {request.session for request in requests}:
        # A request without a session was not written by Fidelio: `find_mismatch` says so, and the others are listed.
        with suppress(SessionNotFound):
            sessions[name] = await records.find(name)
    return [InboxItem(request, sessions.get(request.session), await inbox.find_mismatch(request)) for request in requests]


async def _resolve_session(records: Records, session: str | None) -> str | None:
    """The id of a session. An unknown name is an error: an empty list would hide that it is misspelt."""
    return (await records.find(session)).id if session else None


_INDENT = "    "
# Lines of a question: a person has to read all of it before they answer. Characters of a path.
_MAX_QUESTION, _MAX_PATH = 40, 200
# Characters of a value, and of the line of variables without the count of omitted ones.
_MAX_VALUE, _MAX_SUMMARY = 40, 80
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_ANSWERERS = {"person": "Only a person may answer.", "any": "A person or an agent may answer."}


class InboxItem(msgspec.Struct, frozen=True):
    """A request and its session, if it exists. `mismatch` says how the request differs from its event."""

    request: Request
    session: Session | None
    mismatch: str = ""


def print_item(item: InboxItem, program: str, *, in_place: bool = False) -> None:
    """Print a request with its context and the command that answers it, which begins with `program`.

    `in_place`: it is answered where it is printed, so the command is left out.
    """
    request, session = item.request, item.session
    id_ = quote_name(request.session)
    name = f"{quote_name(session.name)} ({id_})" if session is not None and session.name else id_
    print_line(f"{request.id}  {quote_name(request.kind)} in session {name}, {_format_age(request)}")
    if item.mismatch or session is None:
        # Its texts are not those that were asked: they are not shown, and `answer` refuses it.
        print_line(f"! {escape_line(item.mismatch)}", _INDENT)
        return
    for line in _context_lines(request, session):
        print_line(line, _INDENT)
    if request.state == "open" and (summary := _summarize_variables(session)):
        _print_part("Variables:", summary)
    # An approval covers the whole command, so all of it is shown, however long it is.
    _print_part("Question:", request.question, max_lines=None if request.kind == APPROVAL else _MAX_QUESTION)
    _print_options(request, in_place=in_place)
    if request.answer.get("text"):
        _print_part("Answer:", request.answer["text"])
    _print_state(request, program, in_place=in_place)


def _print_part(title: str, text: str, *, max_lines: int | None = MAX_LINES) -> None:
    print_line(title, _INDENT)
    print_quote(text, _INDENT, max_lines=max_lines)


def item_json(item: InboxItem) -> dict[str, Any]:
    """JSON of a request and its session. Variables only while it is open: later they may differ from those at the question."""
    session = item.session
    variables = {"variables": _variables(session)} if item.request.state == "open" and session is not None else {}
    mismatch = {"mismatch": item.mismatch} if item.mismatch else {}
    return {**request_json(item.request), "session_name": None if session is None else session.name, **variables, **mismatch}


def request_json(request: Request) -> dict[str, Any]:
    """JSON of a request."""
    return {
        "id": request.id,
        "session": request.session,
        "kind": request.kind,
        "key": request.key,
        "question": request.question,
        "options": list(request.options),
        "detail": request.detail,
        "state": request.state,
        "answer": request.answer,
        "answered_by": request.answered_by,
        "channel": request.channel,
        "assurance": request.assurance,
        "opened_at": format_iso(request.opened_at),
        "closed_at": None if request.closed_at is None else format_iso(request.closed_at),
    }


def _context_lines(request: Request, session: Session) -> Iterator[str]:
    """Where the session is."""
    detail = request.detail
    if session.kind in ("agent", "runtime") and (project := session.record.get("project")):
        name = session.record.get("blueprint" if session.kind == "agent" else "agent", "")
        yield f"agent {quote_name(name)} in {quote_name(project, _MAX_PATH)}"
    elif "workflow" in detail:
        iteration = f", iteration {int(detail['iteration'])}" if detail["iteration"] else ""
        yield f"in {' / '.join(quote_name(detail[part]) for part in ('workflow', 'activity', 'checkpoint'))}{iteration}"


def _summarize_variables(session: Session) -> str:
    """As many variables as fit on a line, without those that the definition sets: they are the same in every session."""
    variables, authors = _variables(session), session.record.get("set_by", {})
    names, summary = [name for name in variables if not authors.get(name, "").startswith(BY_DEFINITION)], ""
    for count, name in enumerate(names):
        longer = f"{summary}{', ' if summary else ''}{quote_name(name)}={_format_value(variables[name])}"
        if summary and len(longer) > _MAX_SUMMARY:
            return f"{summary} and {len(names) - count} more"
        summary = longer
    return summary


def _variables(session: Session) -> dict[str, Any]:
    return dict(session.record.get("variables", {})) if session.kind == "workflow" else {}


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return quote_name(escape_line(value), _MAX_VALUE)
    return shorten(json.dumps(value, ensure_ascii=False), _MAX_VALUE)


def _print_options(request: Request, *, in_place: bool) -> None:
    if in_place and not any(option.get("description") for option in request.options):
        # The menu shows the ids and labels.
        return
    for option in request.options:
        chosen = " (chosen)" if request.answer.get("option") == option["id"] else ""
        print_line(f"Option {quote_name(option['id'])}{chosen}", _INDENT)
        texts = (option.get("label", ""), option.get("description", ""))
        print_quote("\n".join(filter(None, texts)), f"{_INDENT}  ")


def _print_state(request: Request, program: str, *, in_place: bool) -> None:
    if request.state != "open":
        how = describe_channel(request.channel or "", request.assurance or "")
        print_line(f"{request.state}: {how}by {quote_name(request.answered_by or '')}", _INDENT)
        click.echo()
        return
    for line in filter(None, (_ANSWERERS.get(request.detail.get("answered_by", ""), ""), _describe_default(request))):
        print_line(line, _INDENT)
    if in_place:
        return
    how = "OPTION" if request.options else '--text "..."'
    click.echo(f"{_INDENT}Answer with: {program} answer {request.id} {how}")
    if request.kind == APPROVAL:
        print_line('A comment for the agent is added with --text "...".', _INDENT)
    click.echo()


def _describe_default(request: Request) -> str:
    """Which option counts without an answer, and when."""
    option, after = request.detail.get("default_option"), request.detail.get("auto_advance_ms")
    if not option or not after:
        return ""
    remaining = request.opened_at + after - now_ms()
    when = f"in {_format_duration(remaining // 1000)}" if remaining > 0 else "from now on"
    return f"Without an answer, {quote_name(option)} may be taken {when}."


def _format_age(request: Request) -> str:
    if request.closed_at is not None:
        return f"{request.state} {format_local(request.closed_at)}"
    return f"waiting {_format_duration(max(0, now_ms() - request.opened_at) // 1000)}"


def _format_duration(seconds: int) -> str:
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds // size} {unit}"
