"""`fidelio answer`: answer a request by its id, or all that wait, in order, where the person sits."""

from __future__ import annotations

from functools import partial

import click

from fidelio.app.application import Application
from fidelio.app.records import describe_ledger
from fidelio.errors import Command, Hint, RequestNotFound, UsageProblem
from fidelio.inbox import require_person
from fidelio.ledger.model import Request
from fidelio.surfaces.cli.context import CliContext, json_option, print_json, print_line, quote_name, with_cli_context
from fidelio.surfaces.cli.inbox import load_item, print_item
from fidelio.surfaces.cli.keyboard import Keyboard
from fidelio.surfaces.cli.prompting import Answer, Prompter, can_prompt, submit_answer
from fidelio.surfaces.cli.references import LAST, REQUEST, complete_option, find_request
from fidelio.surfaces.views.requests import view_answered


@click.command("answer")
@click.argument("request", required=False, type=REQUEST)
@click.argument("option", default="", shell_complete=complete_option)
@click.option("--text", default="", help="The answer to a question without options; with an option, a comment.")
@json_option
@with_cli_context
async def answer_command(cli: CliContext, request: str | None, option: str, text: str, as_json: bool) -> None:
    """Answer REQUEST with OPTION, or with --text if it has no options.

    Without OPTION it shows the request, and asks you if this is a terminal. Without REQUEST it asks you all that wait, oldest
    first. REQUEST is an id, the beginning of an id, or `last`.

    A request is answered only once. Repeating the same answer is allowed; a different answer is refused.
    """
    person = require_person()
    async with cli.open() as application:
        if request is None:
            await _answer_all(cli, application, person, as_json=as_json)
            return
        try:
            found = await find_request(await application.inbox(), request)
        except RequestNotFound as error:
            raise _request_not_found(cli, request) from error
        if option or text:
            await _answer(application, found, Answer(option, text), person, as_json=as_json)
        else:
            await _ask(cli, application, found, person, as_json=as_json)


async def _answer(application: Application, request: Request, answer: Answer, person: str, *, as_json: bool) -> None:
    answered = await submit_answer(application, request.id, answer, by=person)
    if as_json:
        print_json(view_answered(answered.request, repeated=answered.repeated))
        return
    before = " (as it was answered before)" if answered.repeated else ""
    what = quote_name(answer.option) if answer.option else "a text"
    print_line(f"{answered.request.id} is answered with {what}{before}. The agent can continue.")


async def _ask(cli: CliContext, application: Application, request: Request, person: str, *, as_json: bool) -> None:
    """Ask a single request here. Where nobody can be count, the error lists the options."""
    item = await load_item(application, request.id)
    if can_prompt() and not as_json and request.state == "open" and not item.mismatch:
        with Keyboard() as keyboard:
            prompter = Prompter(cli, application, keyboard, person)
            await prompter.ask(request, partial(print_item, item, cli.program, with_menu=True))
        return
    if not as_json:
        print_item(item, cli.program)
    if item.mismatch:
        raise UsageProblem(
            f"Request {request.id} cannot be answered. {item.mismatch}", remedy=Hint(Command("doctor"), " checks.")
        )
    if request.state == "open":
        raise _no_answer(request)


def _no_answer(request: Request) -> UsageProblem:
    names = ", ".join(quote_name(option["id"]) for option in request.options)
    if not names:
        return UsageProblem(
            f"Request {request.id} asks for a text.",
            remedy=Hint("Answer it with ", Command("answer", request.id, "--text", "TEXT"), "."),
        )
    first = str(request.options[0]["id"])
    return UsageProblem(
        f"Request {request.id} needs an option: {names}.",
        remedy=Hint("Choose one, for example with ", Command("answer", request.id, first), "."),
    )


async def _answer_all(cli: CliContext, application: Application, person: str, *, as_json: bool) -> None:
    if as_json or not can_prompt():
        raise UsageProblem(
            "answer needs REQUEST where nobody can be asked.",
            remedy=Hint(Command("inbox"), " lists the requests, and their options."),
        )
    inbox, count = await application.inbox(), 0
    with Keyboard() as keyboard:
        prompter = Prompter(cli, application, keyboard, person)
        async for request in inbox.iterate():
            item = await load_item(application, request.id)
            if item.request.state == "open" and not item.mismatch:
                count += 1
                await prompter.ask(item.request, partial(print_item, item, cli.program, with_menu=True))
    if not count:
        print_line(f"Nothing waits for you in {describe_ledger(cli.settings)}.")


def _request_not_found(cli: CliContext, request: str) -> RequestNotFound:
    where = describe_ledger(cli.settings)
    return RequestNotFound(
        f"Nothing waits for you in {where}." if request == LAST else f"There is no request {request!r:.80} in {where}.",
        remedy=Hint("List the requests with ", Command("inbox"), ", or name another home with --home DIR."),
    )
