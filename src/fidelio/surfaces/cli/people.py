"""Commands for the person who is asked: what waits, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fidelio.errors import RequestNotFound
from fidelio.surfaces.cli.context import App, json_option, json_text, pass_app, print_json, printable, run_async
from fidelio.surfaces.cli.questions import Question, print_question, question_json, request_json
from fidelio.surfaces.cli.record import find_session

if TYPE_CHECKING:
    from fidelio.ledger import Ledger
    from fidelio.ledger.model import Request, RequestState, Session


@click.command("inbox")
@click.option("--all", "everything", is_flag=True, help="Also what was answered already.")
@click.option("--session", help="Only questions of this session.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@click.option("--after", metavar="CURSOR", help="Go on where an earlier answer said so.")
@click.option("--watch", is_flag=True, help="Go on showing questions as they are asked and answered, until Ctrl-C.")
@json_option
@pass_app
def inbox_command(
    app: App, everything: bool, session: str | None, limit: int, after: str | None, watch: bool, as_json: bool
) -> None:
    """List what waits for a person, oldest first, with what it is about."""
    from fidelio.inbox import Inbox

    if watch:
        run_async(_watch(app, session, as_json=as_json))
        return

    async def work() -> None:
        async with app.ledger() as ledger:
            state: RequestState | None = None if everything else "open"
            asker = await _asker(ledger, session)
            page = await Inbox(ledger).waiting(session=asker, state=state, cursor=after, limit=limit)
            questions = await _questions(ledger, page.items)
        if as_json:
            print_json({"requests": [question_json(question) for question in questions], "next": page.next})
        elif not questions:
            click.echo(f"Nothing waits for you in {_place(app)}.")
        for question in () if as_json else questions:
            print_question(question, app.program)
        if page.next and not as_json:
            click.echo(f"More with: {app.program} inbox --after {page.next}")

    run_async(work())


@click.command("answer")
@click.argument("request")
@click.argument("option", default="")
@click.option("--text", default="", help="What to say where there are no options; beside an option, a comment on it.")
@json_option
@pass_app
def answer_command(app: App, request: str, option: str, text: str, as_json: bool) -> None:
    """Answer REQUEST with one of its options, or with a text where it has none. `fidelio inbox` shows which.

    An answer is given once: the same one again is fine, a different one is refused.
    """
    from fidelio.inbox import Inbox, this_person

    async def work() -> None:
        person = this_person()
        async with app.ledger() as ledger:
            try:
                answered = await Inbox(ledger).answer(request, option, text=text, by=person, channel="cli")
            except RequestNotFound as error:
                raise _not_here(app, request) from error
        if as_json:
            print_json({**request_json(answered.request), "repeated": answered.repeated})
        else:
            before = " (as it was answered before)" if answered.repeated else ""
            given = printable(option) or "a text"
            click.echo(f"{answered.request.id} is answered with {given}{before}. The agent may go on.")

    run_async(work())


async def _watch(app: App, session: str | None, *, as_json: bool) -> None:
    """Everything that waits now, then what is asked and answered, by whatever process."""
    from fidelio.inbox import Inbox

    async with app.ledger() as ledger:
        inbox, known, asker = Inbox(ledger), dict[str, str](), await _asker(ledger, session)
        if not as_json and not (await inbox.waiting(session=asker, limit=1)).items:
            click.echo(f"Nothing waits for you in {_place(app)} yet.")
        async for request in inbox.follow(session=asker):
            if known.get(request.id) != request.state:
                known[request.id] = request.state
                _show(app, Question(request, await ledger.session(request.session)), as_json=as_json)


def _show(app: App, question: Question, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(question_json(question)))
    else:
        print_question(question, app.program)


async def _questions(ledger: Ledger, requests: Sequence[Request]) -> list[Question]:
    """The requests with the sessions that ask; a session may ask several."""
    sessions: dict[str, Session] = {}
    for name in {request.session for request in requests}:
        sessions[name] = await ledger.session(name)
    return [Question(request, sessions[request.session]) for request in requests]


async def _asker(ledger: Ledger, session: str | None) -> str | None:
    """A session that does not exist has no questions, but saying so would hide the typing error."""
    return (await find_session(ledger, session)).id if session else None


def _not_here(app: App, request: str) -> RequestNotFound:
    return RequestNotFound(
        f"There is no request {request!r:.80} in {_place(app)}.",
        remedy="List them with `fidelio inbox`; --home DIR looks in another home.",
    )


def _place(app: App) -> str:
    """Where was looked: the home, or the ledger where that is kept elsewhere."""
    settings = app.settings
    if settings.ledger == str(settings.home.ledger):
        return str(settings.home.path)
    if "://" not in settings.ledger:
        return settings.ledger
    from fidelio.ledger.postgres.faults import shown

    return shown(settings.ledger)
