"""Commands for the person who is asked: what waits, and the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fidelio.clock import iso, now_ms
from fidelio.surfaces.cli.context import App, json_option, json_text, pass_app, print_json, printable, run_async
from fidelio.surfaces.cli.record import find_session

if TYPE_CHECKING:
    from fidelio.ledger import Ledger
    from fidelio.ledger.model import Request, RequestState


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
    """List what waits for a person, oldest first."""
    from fidelio.inbox import Inbox

    if watch:
        run_async(_watch(app, session, as_json=as_json))
        return

    async def work() -> None:
        async with app.ledger() as ledger:
            state: RequestState | None = None if everything else "open"
            asker = await _asker(ledger, session)
            page = await Inbox(ledger).waiting(session=asker, state=state, cursor=after, limit=limit)
        if as_json:
            print_json({"requests": [_request_json(request) for request in page.items], "next": page.next})
        elif not page.items:
            click.echo("Nothing waits for you.")
        for request in () if as_json else page.items:
            _print_request(request)
        if page.next and not as_json:
            click.echo(f"More with: fidelio inbox --after {page.next}")

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
            answered = await Inbox(ledger).answer(request, option, text=text, by=person, channel="cli")
        if as_json:
            print_json({**_request_json(answered.request), "repeated": answered.repeated})
        else:
            before = " (as it was answered before)" if answered.repeated else ""
            given = printable(option) or "a text"
            click.echo(f"{answered.request.id} is answered with {given}{before}. The agent may go on.")

    run_async(work())


async def _watch(app: App, session: str | None, *, as_json: bool) -> None:
    """Everything that waits now, then what is asked and answered, by whatever process."""
    from fidelio.inbox import Inbox

    def show(request: Request) -> None:
        if as_json:
            click.echo(json_text(_request_json(request)))
        else:
            _print_request(request)

    async with app.ledger() as ledger:
        inbox, known = Inbox(ledger), dict[str, str]()
        async for request in inbox.follow(session=await _asker(ledger, session)):
            if known.get(request.id) != request.state:
                known[request.id] = request.state
                show(request)


async def _asker(ledger: Ledger, session: str | None) -> str | None:
    """A session that does not exist has no questions, but saying so would hide the typing error."""
    return (await find_session(ledger, session)).id if session else None


def _print_request(request: Request) -> None:
    click.echo(f"{request.id}  {request.kind} in session {request.session}, {_age(request)}")
    click.echo(click.wrap_text(printable(request.question), width=96, initial_indent="    ", subsequent_indent="    "))
    for option in request.options:
        chosen = " (chosen)" if request.answer.get("option") == option["id"] else ""
        click.echo(f"      {printable(option['id']):<20} {printable(option.get('label', ''))}{chosen}")
    if request.answer.get("text"):
        said = printable(request.answer["text"])
        click.echo(click.wrap_text(said, width=96, initial_indent="    > ", subsequent_indent="    > "))
    if request.state == "open":
        how = "OPTION" if request.options else '--text "..."'
        click.echo(f"    Answer with: fidelio answer {request.id} {how}\n")
    else:
        click.echo(f"    {request.state} by {printable(request.answered_by or '')} over {request.channel}\n")


def _age(request: Request) -> str:
    if request.closed_at is not None:
        return f"{request.state} {iso(request.closed_at)}"
    seconds = max(0, now_ms() - request.opened_at) // 1000
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"waiting {seconds // size} {unit}"
    return f"waiting {seconds} s"


def _request_json(request: Request) -> dict[str, Any]:
    return {
        "id": request.id,
        "session": request.session,
        "kind": request.kind,
        "key": request.key,
        "question": request.question,
        "options": list(request.options),
        "state": request.state,
        "answer": request.answer,
        "answered_by": request.answered_by,
        "channel": request.channel,
        "assurance": request.assurance,
        "opened_at": iso(request.opened_at),
        "closed_at": None if request.closed_at is None else iso(request.closed_at),
    }
