"""`fidelio inbox`: list the requests that wait for a person."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, get_args

import click
import msgspec

from fidelio.app.application import Application
from fidelio.app.asking import question_url
from fidelio.app.listing import read_accepted
from fidelio.app.records import Records, describe_ledger
from fidelio.clock import format_local, now_ms
from fidelio.engine.record import BY_DEFINITION
from fidelio.errors import DefinitionError, SessionNotFound, UntrustedProject, UsageProblem, WorkflowNotFound
from fidelio.inbox import APPROVAL, PROVEN, Inbox
from fidelio.ledger.model import Request, RequestState, Session
from fidelio.surfaces.cli.context import (
    CliContext,
    describe_channel,
    escape_line,
    json_option,
    json_text,
    output_layout,
    parse_duration,
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
from fidelio.surfaces.cli.prompting import explain_options
from fidelio.surfaces.cli.references import SESSION, WORKFLOW, describe_next_page
from fidelio.surfaces.event_words import format_age
from fidelio.surfaces.text import MAX_LINES, measure
from fidelio.surfaces.views.requests import (
    InboxEntry,
    RequestKind,
    describe_erased,
    list_variables,
    notification_json,
    view_entry,
)

KINDS = click.Choice(get_args(RequestKind))
_HOOK_SECONDS = 30.0
_COMPACT = ("id", "age", "about", "question")


class InboxFilter(msgspec.Struct, frozen=True):
    """Which requests are wanted. Ages are in seconds."""

    workflow: str | None = None
    kind: str | None = None
    older: int | None = None
    newer: int | None = None

    def accepts(self, request: Request) -> bool:
        age = (now_ms() - request.opened_at) / 1000
        return (
            self.workflow in (None, request.detail.get("workflow"))
            and self.kind in (None, request.kind)
            and (self.older is None or age >= self.older)
            and (self.newer is None or age <= self.newer)
        )

    async def matches(self, request: Request) -> bool:
        """The same for `read_accepted`, whose filters may read."""
        return self.accepts(request)


@click.command("inbox")
@click.option("--all", "everything", is_flag=True, help="Also list requests that are closed.")
@click.option("--session", type=SESSION, help="Only requests of this session.")
@click.option("--workflow", type=WORKFLOW, help="Only requests of this workflow.")
@click.option("--kind", type=KINDS, help="Only requests of this kind.")
@click.option("--older-than", "older", metavar="AGE", help="Only requests that wait for at least this long: 30m, 2h, 1d.")
@click.option("--newer-than", "newer", metavar="AGE", help="Only requests that were opened within this time: 30m, 2h, 1d.")
@click.option("--count", "counting", is_flag=True, help="Print only how many there are.")
@click.option("--compact", is_flag=True, help="Print a line for each, without options and context.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many to list at most.")
@click.option("--after", metavar="CURSOR", help="Start after this cursor; the end of a longer list shows it.")
@click.option("--watch", is_flag=True, help="Keep printing requests as they are opened and answered, until Ctrl-C.")
@click.option("--bell/--no-bell", default=True, help="With --watch on a terminal: ring for each new request.  [default: bell]")
@click.option(
    "--hook",
    metavar="COMMAND",
    help="With --watch: run this command of yours for each new request, which it reads as JSON on standard input.",
)
@json_option
@with_cli_context
async def inbox_command(
    cli: CliContext, /, everything: bool, session: str | None, watch: bool, as_json: bool, **options: Any
) -> None:
    """List the requests that wait for a person, oldest first: question, options, and how to answer."""
    wanted = _read_filter(options)
    if not watch and options["hook"]:
        raise UsageProblem("--hook needs --watch.", remedy="Pass both, or leave out --hook.")
    async with cli.open() as application:
        records, inbox = await application.records(), await application.inbox()
        session_id = await _resolve_session(records, session)
        if wanted.workflow:
            await _require_workflow(application, inbox, wanted.workflow)
        if watch:
            from fidelio.app.webhooks.sending import send_webhooks  # noqa: PLC0415  # brings the HTTP client and the runtime, 150 ms

            async with send_webhooks(application, partial(notification_json, cli.settings)):
                await InboxWatch(cli, records, inbox, wanted, options, as_json=as_json).run(session_id)
            return
        state: RequestState | None = None if everything else "open"
        if options["counting"]:
            count = sum([1 async for request in inbox.iterate(session=session_id, state=state) if wanted.accepts(request)])
            print_json({"count": count}) if as_json else click.echo(str(count))
            return
        page = await read_accepted(
            partial(inbox.list_requests, session=session_id, state=state),
            wanted.matches,
            cursor=options["after"],
            limit=options["limit"],
            most_reads=None,
        )
        items = await load_items(records, inbox, page.items)
    if as_json:
        print_items([item_json(item) for item in items], page.next)
    else:
        chosen = "like that " if session or wanted != InboxFilter() else ""
        _print_list(cli, items, page.next, compact=options["compact"], chosen=chosen)


def _read_filter(options: dict[str, Any]) -> InboxFilter:
    ages = {name: parse_duration(text, f"--{name}-than") for name in ("older", "newer") if (text := options.pop(name))}
    return InboxFilter(options.pop("workflow"), options.pop("kind"), **ages)


def _print_list(cli: CliContext, items: Sequence[InboxItem], cursor: str | None, *, compact: bool, chosen: str) -> None:
    if not items and cursor is None:
        print_sentence(f"Nothing {chosen}waits for you in {describe_ledger(cli.settings)}.")
        if chosen:
            print_sentence(f"`{cli.program} inbox` lists all that waits.")
    if compact and items:
        print_table(_fit_rows([_compact_row(item) for item in items]), _COMPACT)
    for item in () if compact else items:
        print_item(item, cli.program)
    if cursor:
        print_sentence(describe_next_page(cli.program, cursor))


def _compact_row(item: InboxItem) -> dict[str, str]:
    request, detail = item.request, item.request.detail
    about = "/".join(str(detail[part]) for part in ("workflow", "activity") if detail.get(part)) or request.kind
    question = f"! {item.mismatch}" if item.mismatch else request.question or describe_erased(request, item.session)
    age = format_age(max(0, now_ms() - request.opened_at) // 1000) if request.state == "open" else request.state
    return {"id": request.id, "age": age, "about": about, "question": question}


def _fit_rows(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Shorten what rows are about, and their questions, so that each row is a line of the terminal."""
    width = terminal_width()
    rows = [{**row, "about": shorten(row["about"], width // 4)} for row in rows]
    used = sum(max(len(name), *(measure(row[name]) for row in rows)) + 2 for name in _COMPACT[:-1])
    return [{**row, "question": shorten(row["question"], max(len("question"), width - used))} for row in rows]


class InboxWatch:
    """Prints the open requests, then every request that any process opens or closes, and notifies of the new ones."""

    def __init__(
        self, cli: CliContext, records: Records, inbox: Inbox, wanted: InboxFilter, options: dict[str, Any], *, as_json: bool
    ) -> None:
        self._cli, self._records, self._inbox, self._wanted, self._as_json = cli, records, inbox, wanted, as_json
        self._hook: str | None = options["hook"]
        self._compact: bool = options["compact"]
        self._rings: bool = options["bell"] and sys.stdout.isatty()
        self._began_at = now_ms()

    async def run(self, session: str | None) -> None:
        states: dict[str, str] = {}
        if not self._as_json and not (await self._inbox.list_requests(session=session, limit=1)).items:
            print_sentence(f"Nothing waits for you in {describe_ledger(self._cli.settings)} yet.")
        async for request in self._inbox.follow(session=session):
            if states.get(request.id) != request.state and self._wanted.accepts(request):
                states[request.id] = request.state
                await self._show((await load_items(self._records, self._inbox, [request]))[0])

    async def _show(self, item: InboxItem) -> None:
        if self._as_json:
            click.echo(json_text(item_json(item)))
        elif self._compact:
            row = _compact_row(item)
            print_line(shorten(f"{row['id']}  {row['age']}  {row['about']}  {row['question']}", terminal_width()))
        else:
            print_item(item, self._cli.program)
        # Those that waited before are no news.
        if item.request.state == "open" and item.request.opened_at >= self._began_at and not item.mismatch:
            if self._rings:
                click.echo("\a", nl=False)
            if self._hook:
                await run_hook(self._hook, item, question_url(self._cli.settings, item.request.id))


async def run_hook(command: str, item: InboxItem, url: str) -> None:
    """Run the command of the user with the request as JSON on its standard input; what it does wrong is only reported."""
    names = {"FIDELIO_REQUEST": item.request.id, "FIDELIO_SESSION": item.request.session, "FIDELIO_REQUEST_URL": url}
    environ, pipe, null = {**os.environ, **names}, asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_shell(command, stdin=pipe, stdout=null, env=environ, start_new_session=True)
    try:
        async with asyncio.timeout(_HOOK_SECONDS):
            await process.communicate(json_text(item_json(item)).encode())
    except (TimeoutError, asyncio.CancelledError) as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if isinstance(error, asyncio.CancelledError):
            raise
    if process.returncode:
        print_message(f"The hook ended with {process.returncode} for request {item.request.id}.")


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


async def _require_workflow(application: Application, inbox: Inbox, workflow: str) -> None:
    """Raise if nothing has ever waited in a workflow that does not exist: an empty list would hide that it is misspelt."""
    try:
        (await application.library()).entry(workflow)
    except DefinitionError as error:
        # A workflow that cannot be read exists, and sessions outlive the files of theirs.
        known = not isinstance(error, WorkflowNotFound) or isinstance(error, UntrustedProject)
        if not known and not [1 async for each in inbox.iterate(state=None) if each.detail.get("workflow") == workflow]:
            raise


_INDENT = "    "
# Lines of a question: a person has to read all of it before they answer. Characters of a path.
_MAX_QUESTION, _MAX_PATH = 40, 200
# Characters of a value, and of the line of variables without the count of omitted ones.
_MAX_VALUE, _MAX_SUMMARY = 40, 80
_SIGNED = "Only an answer that is signed with a registered key counts."
_ANSWERERS = {"person": "Only a person may answer.", "any": "A person or an agent may answer.", PROVEN: _SIGNED}


class InboxItem(msgspec.Struct, frozen=True):
    """A request and its session, if it exists. `mismatch` says how the request differs from its event."""

    request: Request
    session: Session | None
    mismatch: str = ""


def print_item(item: InboxItem, program: str, *, with_menu: bool = False) -> None:
    """Print a request with its context and, unless a menu follows, the command of `program` that answers it."""
    request, session = item.request, item.session
    id_ = quote_name(request.session)
    name = f"{quote_name(session.name)} ({id_})" if session is not None and session.name else id_
    print_line(f"{request.id}  {quote_name(request.kind)} in session {name}, {_format_age(request)}")
    if item.mismatch or session is None:
        # Its texts are not those that were asked: they are not shown, and `answer` refuses it.
        print_line(f"! {escape_line(item.mismatch)}", _INDENT)
        return
    if erased := describe_erased(request, session):
        print_line(erased, _INDENT)
        _print_state(request, program, with_menu=with_menu)
        return
    for line in _context_lines(request, session):
        print_line(line, _INDENT)
    if request.state == "open" and (summary := _summarize_variables(session)):
        _print_part("Variables:", summary)
    # An approval covers the whole command, so all of it is shown, however long it is.
    _print_part("Question:", request.question, max_lines=None if request.kind == APPROVAL else _MAX_QUESTION)
    _print_options(request, with_menu=with_menu)
    if request.answer.get("text"):
        _print_part("Answer:", request.answer["text"])
    _print_state(request, program, with_menu=with_menu)


def _print_part(title: str, text: str, *, max_lines: int | None = MAX_LINES) -> None:
    print_line(title, _INDENT)
    print_quote(text, _INDENT, max_lines=max_lines)


def item_json(item: InboxItem) -> InboxEntry:
    """JSON of a request and its session."""
    return view_entry(item.request, item.session, item.mismatch)


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
    variables, authors = list_variables(session), session.record.get("set_by", {})
    names, summary = [name for name in variables if not authors.get(name, "").startswith(BY_DEFINITION)], ""
    for count, name in enumerate(names):
        longer = f"{summary}{', ' if summary else ''}{quote_name(name)}={_format_value(variables[name])}"
        if summary and len(longer) > _MAX_SUMMARY:
            return f"{summary} and {len(names) - count} more"
        summary = longer
    return summary


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return quote_name(escape_line(value), _MAX_VALUE)
    return shorten(json.dumps(value, ensure_ascii=False), _MAX_VALUE)


def _print_options(request: Request, *, with_menu: bool) -> None:
    if with_menu and explain_options(request, output_layout()) is not None:
        # The menu shows all of it.
        return
    for option in request.options:
        chosen = " (chosen)" if request.answer.get("option") == option["id"] else ""
        print_line(f"Option {quote_name(option['id'])}{chosen}", _INDENT)
        texts = (option.get("label", ""), option.get("description", ""))
        print_quote("\n".join(filter(None, texts)), f"{_INDENT}  ")


def _print_state(request: Request, program: str, *, with_menu: bool) -> None:
    if request.state != "open":
        how = describe_channel(request.channel or "", request.assurance or "")
        print_line(f"{request.state}: {how}by {quote_name(request.answered_by or '')}", _INDENT)
        click.echo()
        return
    how, answerer = "OPTION" if request.options else '--text "..."', request.detail.get("answered_by", "")
    if answerer == PROVEN:
        how = "|".join(request.detail.get("unsigned_options", ()))
    for line in filter(None, (_ANSWERERS.get(answerer, ""), _describe_default(request))):
        print_line(line, _INDENT)
    if answerer == PROVEN:
        click.echo(f"{_INDENT}Sign it on the page: {program} open /inbox/{request.id}")
    if with_menu:
        return
    if how:
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
    when = f"in {format_age(remaining // 1000)}" if remaining > 0 else "from now on"
    return f"Without an answer, {quote_name(option)} may be taken {when}."


def _format_age(request: Request) -> str:
    if request.closed_at is not None:
        return f"{request.state} {format_local(request.closed_at)}"
    return f"waiting {format_age(max(0, now_ms() - request.opened_at) // 1000)}"
