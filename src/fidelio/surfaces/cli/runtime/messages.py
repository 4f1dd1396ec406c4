"""`fidelio runtime send`, `follow`, `confirm`, `deny`, `result`, `interrupt`: what goes to a session and comes from it."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click

from fidelio.app.application import Application
from fidelio.errors import Command, SessionNotFound, UsageProblem
from fidelio.inbox import require_person
from fidelio.ledger.model import Event
from fidelio.runtime.service import RuntimeService
from fidelio.runtime.transfers import MAX_BYTES, upload_file
from fidelio.runtime.wakes.content import IMAGES, MAX_IMAGE
from fidelio.surfaces.cli.chat import Chat
from fidelio.surfaces.cli.context import (
    CliContext,
    complete_path,
    json_option,
    json_reply_option,
    output_layout,
    print_json,
    print_line,
    print_message,
    print_reply,
    quote_name,
    uses_color,
    with_cli_context,
)
from fidelio.surfaces.cli.runtime.answers import Answer, Answers
from fidelio.surfaces.cli.runtime.live import JsonView, LiveView, Screen
from fidelio.surfaces.cli.runtime.targets import (
    Target,
    begin_options,
    begin_session,
    find_session,
    open_target,
    project_option,
    read_begin_options,
    session_argument,
)
from fidelio.surfaces.cli.sandbox import real_project


@click.command("send", short_help="Send a message.")
@session_argument
@click.argument("text", required=False)
@click.option(
    "--file",
    "files",
    metavar="PATH",
    shell_complete=complete_path,
    multiple=True,
    help="Send this file too; an image is shown to the model.",
)
@click.option("--new", "anew", is_flag=True, help="SESSION is an agent: begin a new session of it.")
@click.option("--name", help="A new session: its name in the project.")
@click.option("--follow", is_flag=True, help="Work here, show what the agent does, and return when it rests.")
@begin_options
@project_option
@json_option
@with_cli_context
async def send_command(
    cli: CliContext, /, session: str, text: str | None, files: tuple[str, ...], follow: bool, as_json: bool, **options: Any
) -> int:
    """Send TEXT to SESSION (- reads it from standard input).

    SESSION may be the name of an agent: then its newest session gets the message, and the first one is begun by it. A message
    may be sent at any time. The agent works on it in the background, unless --follow is passed.
    """
    person = require_person()
    message = _read_message(text, files)
    async with cli.open(create=True) as app:
        service = await app.runtime()
        target = Target(app, service, await _find_or_begin(app, service, session, options))
        if follow:
            return await _send_and_follow(cli, target, message, files, person, as_json=as_json)
        sent = await _send(service, target.session, message, files, person)
        await app.start_runtime_worker()
    if as_json:
        print_json({"sessionId": target.session, "events": [event.id for event in sent]})
    else:
        watch = cli.render(Command("runtime", "follow", target.session))
        print_line(f"Session {target.session} has the message. {watch} shows what it does.")
    return 0


async def _find_or_begin(app: Application, service: RuntimeService, name: str, options: dict[str, Any]) -> str:
    project, anew, wanted_name = real_project(options.pop("project")), options.pop("anew"), options.pop("name")
    is_described = any(options.values()) or wanted_name is not None
    if not anew:
        try:
            found = await find_session(app, service, name, project)
        except SessionNotFound:
            pass
        else:
            if is_described:
                raise UsageProblem(
                    f"Session {found.id} exists, and keeps what it began with.", remedy="Pass --new, or leave the options out."
                )
            return found.id
    return await begin_session(service, read_begin_options(project, name, wanted_name, options))


def _read_message(text: str | None, files: Sequence[str]) -> str:
    message = sys.stdin.read() if text == "-" else text or ""
    if not message.strip() and not files:
        raise UsageProblem("There is nothing to send.", remedy="Write a text, pass - to read one, or name files with --file.")
    return message


async def _send(service: RuntimeService, session: str, text: str, files: Sequence[str], person: str) -> tuple[Event, ...]:
    blocks = [block for file in files for block in await _read_file(service, session, Path(file))]
    content = [*([{"type": "text", "text": text}] if text.strip() else []), *blocks]
    return await service.send(session, [{"type": "user.message", "content": content}], by=person, channel="cli")


async def _read_file(service: RuntimeService, session: str, path: Path) -> list[dict[str, Any]]:
    """An image as a block for the model; any other file goes into the workspace, and the model gets its path."""
    data = await asyncio.to_thread(_load, path)
    kind = mimetypes.guess_type(path.name)[0] or ""
    if kind in IMAGES and len(data) <= MAX_IMAGE:
        source = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
        return [{"type": "image", "source": source}]
    path_inside = await upload_file(service.context, session, path.name, data)
    return [{"type": "text", "text": f"The file {path.name} ({len(data)} bytes) is at {path_inside}."}]


def _load(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageProblem(f"{path} is larger than {MAX_BYTES:,} bytes.", remedy="Mount its directory instead.")
        return path.read_bytes()
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}.", remedy="Name a file that you can read.") from error


async def _send_and_follow(
    cli: CliContext, target: Target, text: str, files: Sequence[str], person: str, *, as_json: bool
) -> int:
    view = await _open_view(target, as_json=as_json)
    await target.app.host_runtime(view.on_text)
    sent = await _send(target.service, target.session, text, files, person)
    view.own.update(event.id for event in sent)
    async with _handing_over(cli, target):
        await _watch(view)
    return await _report_rest(cli, target, as_json=as_json)


@click.command("follow", short_help="Show what a session does, as it happens.")
@session_argument
@click.option("--after", type=click.IntRange(0), help="Also show the events after this number (default: only new ones).")
@click.option("--until-rest", is_flag=True, help="Return when the session rests, instead of following until Ctrl-C.")
@project_option
@json_option
@with_cli_context
async def follow_command(
    cli: CliContext, session: str, after: int | None, until_rest: bool, project: str | None, as_json: bool
) -> int:
    """Show what SESSION does, as it happens: text, calls folded to a line, and what it asks for.

    On a terminal you can answer here and send messages, as in `fidelio chat`. With --json every event is a line.
    """
    async with open_target(cli, session, project) as target:
        if sys.stdin.isatty() and not as_json and not until_rest:
            await Chat(cli, target.app, target.service, target.session, require_person()).run(after=after)
            return 0
        view = await _open_view(target, as_json=as_json, after=after)
        if not target.app.identify_self().is_agent:
            # Text arrives only where the wake runs.
            await target.app.host_runtime(view.on_text)
        async with _handing_over(cli, target):
            await (_watch(view) if until_rest else view.run())
        return await _report_rest(cli, target, as_json=as_json)


async def _open_view(target: Target, *, as_json: bool, after: int | None = None) -> LiveView:
    seq = (await target.record()).seq if after is None else after
    screen = Screen(output_layout(), is_terminal=sys.stdout.isatty(), has_color=uses_color())
    return (JsonView if as_json else LiveView)(target.service, target.session, screen, after=seq)


async def _watch(view: LiveView) -> None:
    """Show the session until it rests and everything is shown."""
    viewing = asyncio.create_task(view.run())
    try:
        while not viewing.done():
            view.changed.clear()
            if await view.is_resting():
                return
            changed = asyncio.create_task(view.changed.wait())
            await asyncio.wait({viewing, changed}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        viewing.result()
    finally:
        viewing.cancel()
        await asyncio.wait({viewing})


@asynccontextmanager
async def _handing_over(cli: CliContext, target: Target) -> AsyncIterator[None]:
    """Let the background go on with the session if the person stops watching."""
    try:
        yield
    except asyncio.CancelledError:
        await target.app.start_runtime_worker()
        watch = cli.render(Command("runtime", "follow", target.session))
        print_message(f"The session goes on without you. {watch} shows it again.")
        raise


async def _report_rest(cli: CliContext, target: Target, *, as_json: bool) -> int:
    """Say what the session waits for. Exit code 1: it has stopped after an error or at a limit."""
    about = await target.service.describe(target.session)
    await target.app.start_runtime_worker()
    if not as_json:
        for call in about["waiting"]:
            session, use = target.session, call["toolUseId"]
            is_custom = call["kind"] == "custom_tool"
            named = Command("runtime", "result", session, use) if is_custom else Command("runtime", "confirm", session, use)
            command = cli.render(named)
            print_line(f"It waits for you: {quote_name(call['tool'])}. {command} answers it.")
    return 1 if about["stopReason"] in ("budget_reached", "retries_exhausted") else 0


@click.command("confirm")
@session_argument
@click.argument("call", required=False)
@project_option
@json_reply_option
@with_cli_context
async def confirm_command(cli: CliContext, session: str, call: str | None, project: str | None) -> None:
    """Allow what SESSION asks for, once. CALL is the id of the call or of the request, if there are several.

    `fidelio inbox` shows what would run. Exactly that runs; the agent need not ask again.
    """
    await _confirm(cli, session, call, project, Answer("allow"))


@click.command("deny")
@session_argument
@click.argument("call", required=False)
@click.option("--message", default="", help="Why; it reaches the agent.")
@project_option
@json_reply_option
@with_cli_context
async def deny_command(cli: CliContext, session: str, call: str | None, message: str, project: str | None) -> None:
    """Deny what SESSION asks for. CALL is the id of the call or of the request, if there are several."""
    await _confirm(cli, session, call, project, Answer("deny", message))


async def _confirm(cli: CliContext, session: str, call: str | None, project: str | None, answer: Answer) -> None:
    person = require_person()
    async with open_target(cli, session, project) as target:
        answers = Answers(target.app, target.service, target.session, person)
        request = await answers.find(call)
        if not any(option["id"] == answer.kind for option in request.options):
            raise UsageProblem(f"Request {request.id} is no approval.", remedy="Give its result, or answer it in the inbox.")
        await answers.submit(request, answer)
        await target.app.start_runtime_worker()
    done = "allowed" if answer.kind == "allow" else "denied"
    print_reply(
        f"Request {request.id} is {done}. The session goes on.",
        session=request.session,
        request=request.id,
        decision=answer.kind,
    )


@click.command("result", short_help="Give the result of a custom tool.")
@session_argument
@click.argument("text", required=False)
@click.option("--call", help="The id of the call, if several custom tools wait.")
@click.option("--error", "is_error", is_flag=True, help="The tool has failed; TEXT says why.")
@project_option
@json_reply_option
@with_cli_context
async def result_command(
    cli: CliContext, session: str, text: str | None, call: str | None, is_error: bool, project: str | None
) -> None:
    """Send the result TEXT of a custom tool that SESSION waits for (- reads it from standard input)."""
    person = require_person()
    content = _read_message(text, ())
    async with open_target(cli, session, project) as target:
        waiting = [known for known in (await target.record()).wakes.blocking if known.state == "custom"]
        found = [known for known in waiting if call in (None, known.id)]
        if len(found) != 1:
            names = ", ".join(known.id for known in waiting) or "none"
            raise UsageProblem(f"{len(found)} custom tools fit.", remedy=f"Name one with --call. Those that wait: {names}.")
        event = {
            "type": "user.custom_tool_result",
            "custom_tool_use_id": found[0].id,
            "content": [{"type": "text", "text": content}],
            "is_error": is_error,
        }
        await target.service.send(target.session, [event], by=person, channel="cli")
        await target.app.start_runtime_worker()
    print_reply(
        f"Session {target.session} has the result of {quote_name(found[0].name)}.", session=target.session, call=found[0].id
    )


@click.command("interrupt", short_help="Stop what a session does now.")
@session_argument
@click.argument("text", required=False)
@project_option
@json_reply_option
@with_cli_context
async def interrupt_command(cli: CliContext, session: str, text: str | None, project: str | None) -> None:
    """Stop what SESSION does now, and go on with TEXT.

    The running command ends, open requests are withdrawn, and queued wakes are cancelled.
    """
    person = require_person()
    message = [{"type": "user.message", "content": [{"type": "text", "text": text}]}] if text else []
    async with open_target(cli, session, project) as target:
        await target.service.send(target.session, [{"type": "user.interrupt"}, *message], by=person, channel="cli")
        await target.app.start_runtime_worker()
    print_reply(f"Session {target.session} is interrupted.", session=target.session, interrupted=True)
