"""`fidelio inbox` and `fidelio answer`: list the requests that wait for a person, and answer one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fidelio.clock import format_iso, now_ms
from fidelio.engine.record import BY_DEFINITION
from fidelio.errors import RequestNotFound
from fidelio.surfaces.cli.context import CliContext, json_option, json_text, pass_cli, print_json, printable, run_async, shorten

if TYPE_CHECKING:
    from fidelio.app.records import Records
    from fidelio.ledger.model import Request, RequestState, Session


@click.command("inbox")
@click.option("--all", "everything", is_flag=True, help="Also what was answered already.")
@click.option("--session", help="Only questions of this session.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@click.option("--after", metavar="CURSOR", help="Go on where an earlier answer said so.")
@click.option("--watch", is_flag=True, help="Go on showing questions as they are asked and answered, until Ctrl-C.")
@json_option
@pass_cli
def inbox_command(
    cli: CliContext, everything: bool, session: str | None, limit: int, after: str | None, watch: bool, as_json: bool
) -> None:
    """List what waits for a person, oldest first, with what it is about."""
    if watch:
        run_async(_watch(cli, session, as_json=as_json))
        return

    async def work() -> None:
        async with cli.open() as application:
            records, inbox = await application.records(), await application.inbox()
            state: RequestState | None = None if everything else "open"
            asker = await _asker(records, session)
            page = await inbox.list_requests(session=asker, state=state, cursor=after, limit=limit)
            questions = await _questions(records, page.items)
        if as_json:
            print_json({"requests": [question_json(question) for question in questions], "next": page.next})
        elif not questions:
            click.echo(f"Nothing waits for you in {_place(cli)}.")
        for question in () if as_json else questions:
            print_question(question, cli.program)
        if page.next and not as_json:
            click.echo(f"More with: {cli.program} inbox --after {page.next}")

    run_async(work())


@click.command("answer")
@click.argument("request")
@click.argument("option", default="")
@click.option("--text", default="", help="What to say where there are no options; beside an option, a comment on it.")
@json_option
@pass_cli
def answer_command(cli: CliContext, request: str, option: str, text: str, as_json: bool) -> None:
    """Answer REQUEST with one of its options, or with a text where it has none. `fidelio inbox` shows which.

    An answer is given once: the same one again is fine, a different one is refused.
    """
    from fidelio.inbox import require_person

    async def work() -> None:
        person = require_person()
        async with cli.open() as application:
            inbox = await application.inbox()
            try:
                answered = await inbox.answer(request, option, text=text, by=person, channel="cli")
            except RequestNotFound as error:
                raise _not_here(cli, request) from error
        if as_json:
            print_json({**request_json(answered.request), "repeated": answered.repeated})
        else:
            before = " (as it was answered before)" if answered.repeated else ""
            given = printable(option) or "a text"
            click.echo(f"{answered.request.id} is answered with {given}{before}. The agent may go on.")

    run_async(work())


async def _watch(cli: CliContext, session: str | None, *, as_json: bool) -> None:
    """Everything that waits now, then what is asked and answered, by whatever process."""
    async with cli.open() as application:
        records, inbox, known = await application.records(), await application.inbox(), dict[str, str]()
        asker = await _asker(records, session)
        if not as_json and not (await inbox.list_requests(session=asker, limit=1)).items:
            click.echo(f"Nothing waits for you in {_place(cli)} yet.")
        async for request in inbox.follow(session=asker):
            if known.get(request.id) != request.state:
                known[request.id] = request.state
                _show(cli, Question(request, await records.find(request.session)), as_json=as_json)


def _show(cli: CliContext, question: Question, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(question_json(question)))
    else:
        print_question(question, cli.program)


async def _questions(records: Records, requests: Sequence[Request]) -> list[Question]:
    """The requests with the sessions that ask; a session may ask several."""
    sessions: dict[str, Session] = {}
    for name in {request.session for request in requests}:
        sessions[name] = await records.find(name)
    return [Question(request, sessions[request.session]) for request in requests]


async def _asker(records: Records, session: str | None) -> str | None:
    """A session that does not exist has no questions, but saying so would hide the typing error."""
    return (await records.find(session)).id if session else None


def _not_here(cli: CliContext, request: str) -> RequestNotFound:
    return RequestNotFound(
        f"There is no request {request!r:.80} in {_place(cli)}.",
        remedy="List them with `fidelio inbox`; --home DIR looks in another home.",
    )


def _place(cli: CliContext) -> str:
    from fidelio.app.diagnostics import describe_ledger

    return describe_ledger(cli.settings)


WIDTH = 96
_INDENT = "    "
_BESIDE_OPTIONS = " " * 27
# Enough to tell sessions apart. What is told leaves room for how many more there are.
_VALUE, _TOLD = 40, 78
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_WHO = {"person": "Only a person may answer.", "any": "A person or an agent may answer."}


@dataclass(frozen=True, slots=True)
class Question:
    """A request, and the session that asks."""

    request: Request
    session: Session


def print_question(question: Question, program: str) -> None:
    """`program` is how the command begins that answers it."""
    request, session = question.request, question.session
    asker = f"{printable(session.name)} ({session.id})" if session.name else session.id
    click.echo(f"{request.id}  {printable(request.kind)} in session {asker}, {_age(request)}")
    for line in _context(question):
        click.echo(f"{_INDENT}{shorten(line, WIDTH - len(_INDENT))}")
    _print_wrapped(request.question, _INDENT)
    _print_options(request)
    if request.answer.get("text"):
        _print_wrapped(request.answer["text"], f"{_INDENT}> ")
    _print_state(request, program)


def question_json(question: Question) -> dict[str, Any]:
    """Variables only while it waits: later they are no longer those that the question was about."""
    waits = question.request.state == "open"
    variables = {"variables": _variables(question.session)} if waits else {}
    return {**request_json(question.request), "session_name": question.session.name, **variables}


def request_json(request: Request) -> dict[str, Any]:
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


def _context(question: Question) -> Iterator[str]:
    """Where the session stands, and what somebody has set in it."""
    session, detail = question.session, question.request.detail
    if session.kind == "agent" and (project := session.record.get("project")):
        yield f"agent {session.record.get('blueprint', '')} in {project}"
    elif "workflow" in detail:
        turn = f", pass {detail['iteration']}" if detail["iteration"] else ""
        yield " / ".join(detail[part] for part in ("workflow", "activity", "checkpoint")) + turn
    if question.request.state == "open" and (told := _told(session)):
        yield told


def _told(session: Session) -> str:
    """As many of its variables as one line takes; what the definition sets by itself tells nobody anything."""
    variables, authors = _variables(session), session.record.get("set_by", {})
    names, shown = [name for name in variables if not authors.get(name, "").startswith(BY_DEFINITION)], ""
    for count, name in enumerate(names):
        longer = f"{shown}{', ' if shown else ''}{name}={shorten(_as_text(variables[name]), _VALUE)}"
        if shown and len(longer) > _TOLD:
            return f"{shown} and {len(names) - count} more"
        shown = longer
    return shown


def _variables(session: Session) -> dict[str, Any]:
    return dict(session.record.get("variables", {})) if session.kind == "workflow" else {}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _print_options(request: Request) -> None:
    for option in request.options:
        chosen = " (chosen)" if request.answer.get("option") == option["id"] else ""
        click.echo(f"      {printable(option['id']):<20} {printable(option.get('label', ''))}{chosen}")
        if option.get("description"):
            _print_wrapped(option["description"], _BESIDE_OPTIONS)


def _print_state(request: Request, program: str) -> None:
    if request.state != "open":
        click.echo(f"{_INDENT}{request.state} by {printable(request.answered_by or '')} over {request.channel}\n")
        return
    for line in filter(None, (_WHO.get(request.detail.get("answered_by", ""), ""), _default(request))):
        click.echo(f"{_INDENT}{line}")
    how = "OPTION" if request.options else '--text "..."'
    click.echo(f"{_INDENT}Answer with: {program} answer {request.id} {how}\n")


def _default(request: Request) -> str:
    """What becomes of it when nobody answers."""
    option, after = request.detail.get("default_option"), request.detail.get("auto_advance_ms")
    if not option or not after:
        return ""
    left = request.opened_at + after - now_ms()
    when = f"in {_in_words(left // 1000)}" if left > 0 else "from now on"
    return f"Without an answer, {printable(option)} may be taken {when}."


def _age(request: Request) -> str:
    if request.closed_at is not None:
        return f"{request.state} {format_iso(request.closed_at)}"
    return f"waiting {_in_words(max(0, now_ms() - request.opened_at) // 1000)}"


def _in_words(seconds: int) -> str:
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds // size} {unit}"


def _print_wrapped(text: str, indent: str) -> None:
    click.echo(click.wrap_text(printable(text), width=WIDTH, initial_indent=indent, subsequent_indent=indent))
