"""`fidelio sandbox`: look into the sandbox of a session, run a command in it, bring changes back, end it.

A person uses the same way as an agent: a command is a call of `shell_run`, and the person who types it is recorded as the one
who allowed it. Nothing here goes around the gate.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import click
import msgspec

from fidelio.app.application import Application
from fidelio.errors import Command, Hint, SessionNotFound, ToolRefused, UsageProblem
from fidelio.ids import is_short_handle
from fidelio.inbox import require_person
from fidelio.ledger.model import Session
from fidelio.runtime.calls import CallOutcome, WaitingForPerson
from fidelio.runtime.permissions.policy import POLICIES
from fidelio.runtime.project.changes import ProjectChange, ProjectChanges, ProjectDiff
from fidelio.runtime.service import RuntimeService, SessionRequest
from fidelio.runtime.sessions import session_namespace
from fidelio.surfaces.cli.context import (
    CliContext,
    CommandGroup,
    complete_path,
    escape_line,
    escape_text,
    json_option,
    json_reply_option,
    parse_duration,
    print_json,
    print_line,
    print_message,
    print_reply,
    print_table,
    quote_name,
    resolve_project,
    run_async,
    with_cli_context,
)
from fidelio.surfaces.cli.project_diff import print_diff, select_paths
from fidelio.surfaces.cli.references import project_option, session_option

# As a shell reports a command that was ended: by a time limit, and by a signal (plus its number).
TIMED_OUT, SIGNALLED = 124, 128
_WAIT_MS = 45_000
# Seconds that a command of `shell_run` may take.
LONGEST = 60


@click.group("sandbox", cls=CommandGroup)
def sandbox_command() -> None:
    """Look into the sandbox of a session, run a command in it, bring changes back.

    An agent gets a sandbox with `fidelio mcp --toolset sandbox --session NAME`. These commands are for the person at the
    machine. A session is named by --session, in the project of the working directory, or by its id.
    """


class SandboxUse(msgspec.Struct, frozen=True):
    """The service and the session that a command works with."""

    app: Application
    service: RuntimeService
    session: str
    name: str | None = None

    async def call(self, tool: str, arguments: Mapping[str, Any], *, person: str = "") -> dict[str, Any]:
        """Call a tool and return its output. `person` allows the call, on record, where it needs a yes."""
        outcome = await self.service.call(self.session, tool, arguments, waits=False)
        if isinstance(outcome, WaitingForPerson):
            await (await self.app.inbox()).answer(outcome.request, "allow", by=person or require_person(), channel="cli")
            outcome = await self.service.call(self.session, tool, arguments, waits=False)
        return _read_outcome(outcome)


def _read_outcome(outcome: CallOutcome) -> dict[str, Any]:
    output = dict(outcome.output)
    if isinstance(outcome, WaitingForPerson):
        raise UsageProblem(f"The call still waits for request {outcome.request}.", remedy=Hint("See ", Command("inbox"), "."))
    if outcome.is_error:
        error = output.get("error", {})
        raise ToolRefused(str(error.get("message", "The call failed.")), reason=str(error.get("code", "")))
    return output


@asynccontextmanager
async def open_sandbox(cli: CliContext, name: str, project: str | None) -> AsyncIterator[SandboxUse]:
    """The session with this name or id, which must exist."""
    async with cli.open() as app:
        found = await find_session(app, name, project)
        yield SandboxUse(app, await app.runtime(), found.id, found.name)


async def find_session(app: Application, name: str, project: str | None) -> Session:
    """Find a session by its name in the project, else by its id or a name that no other project has."""
    records = await app.records()
    try:
        return await records.find_named(name, namespace=session_namespace(real_project(project)))
    except SessionNotFound:
        pass
    try:
        found = await records.find(name, kind="runtime")
    except SessionNotFound as error:
        raise _no_session(name) from error
    if found.kind != "runtime":
        raise _no_session(name)
    return found


def real_project(project: str | None) -> str:
    """The real path of the project: all paths of a directory name the same sessions."""
    return os.path.realpath(resolve_project(project))


def _no_session(name: str) -> SessionNotFound:
    return SessionNotFound(
        f"There is no sandbox session {name!r:.80} here.",
        remedy=Hint(Command("sessions", "--kind", "runtime"), " lists them; ", Command("sandbox", "run"), " makes one."),
    )


@sandbox_command.command("describe")
@session_option
@project_option
@json_option
@with_cli_context
async def describe(cli: CliContext, session: str, project: str | None, as_json: bool) -> None:
    """Describe isolation, network, limits, mounts and permissions."""
    async with open_sandbox(cli, session, project) as use:
        output, record = await use.call("sandbox_describe", {}), (await use.service.load(use.session)).record
    if as_json:
        print_json({"session": use.session, **output})
        return
    name = f", named {quote_name(use.name)}" if use.name else ""
    print_line(f"Session {use.session}{name}, agent {quote_name(record.agent)}")
    print_line(escape_line(output["summary"]), "  ")
    print_line(f"environment {quote_name(record.environment)}, version {record.environment_version}", "  ")
    for constraint in output["constraints"]:
        print_line(escape_line(constraint), "  ")
    print_mounts(output["mounts"], record.mount_source)
    access: dict[str, list[str]] = {}
    for action in output["actions"]:
        access.setdefault(str(action["access"]), []).append(str(action["name"]))
    titles = {"allow": "Runs without asking", "ask": "Asks a person", "refused": "Not offered here"}
    for kind, names in access.items():
        print_line(f"{titles.get(kind, quote_name(kind))}: {', '.join(map(quote_name, names))}")


@sandbox_command.command("mounts")
@session_option
@project_option
@json_option
@with_cli_context
async def mounts(cli: CliContext, session: str, project: str | None, as_json: bool) -> None:
    """List the directories that the sandbox shows, with their access."""
    async with open_sandbox(cli, session, project) as use:
        output, record = await use.call("sandbox_describe", {}), (await use.service.load(use.session)).record
    if as_json:
        print_json({"session": use.session, "mounts": output["mounts"], "project": record.mount_source or None})
    else:
        print_mounts(output["mounts"], record.mount_source)


def print_mounts(entries: list[dict[str, str]], source: str) -> None:
    """Print the mounts as a table. `source` is the directory of this machine that is mounted as the project."""
    rows = [
        {"path": entry["mountPath"], "access": entry["access"], "what": f"project: {source}" if is_project else entry["kind"]}
        for entry in entries
        for is_project in [entry["kind"] == "project"]
    ]
    print_table(rows, ["path", "access", "what"])


@sandbox_command.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@session_option
@project_option
@click.option("--agent", default="default", show_default=True, help="A new session: whose shared files it has.")
@click.option("--environment", help="A new session: its environment; `fidelio environments list` shows them.")
@click.option(
    "--mount",
    metavar="DIR[:copy|ro|rw]",
    shell_complete=complete_path,
    help="A new session: show a directory at /workspace/project, as a copy, read-only or for writing.",
)
@click.option("--cwd", help="Where the command runs inside (default: the directory of the session's shell).")
@click.option(
    "--timeout", type=click.IntRange(1, LONGEST), default=LONGEST, show_default=True, help="End the command after SECONDS."
)
@json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@with_cli_context
async def run(cli: CliContext, /, command: tuple[str, ...], cwd: str | None, timeout: int, as_json: bool, **more: Any) -> int:
    """Run COMMAND in a sandbox, and exit with its exit code.

    One word is a line for the shell; several words are a program with its arguments. The session is made if there is none.
    You type the command, so you are recorded as the person who allowed it.

    Exit code 124: the command was ended after --timeout seconds, at most 60. An agent runs longer ones with shell_exec.

    \b
    fidelio sandbox run --mount . -- pytest -q
    fidelio sandbox run 'ls /workspace/project | head'
    """
    person = require_person()
    text = command[0] if len(command) == 1 else shlex.join(command)
    async with cli.open(create=True) as app:
        service = await app.runtime()
        use = SandboxUse(app, service, await _open_or_create(app, service, **more))
        arguments = {"command": text, "timeoutMs": timeout * 1000, "maxOutputChars": 40_000, **({"cwd": cwd} if cwd else {})}
        output = await _run_to_end(use, arguments, person)
    if as_json:
        print_json({"session": use.session, **output})
    else:
        _print_output(output, timeout)
    return _exit_code(output)


async def _open_or_create(
    app: Application,
    service: RuntimeService,
    *,
    session: str,
    project: str | None,
    agent: str,
    environment: str | None,
    mount: str | None,
) -> str:
    if is_short_handle(session):
        return (await find_session(app, session, project)).id
    request = SessionRequest(name=session, agent=agent, project=real_project(project), environment=environment, mount=mount)
    return await service.open_session(request)


async def _run_to_end(use: SandboxUse, arguments: Mapping[str, Any], person: str) -> dict[str, Any]:
    """Run the command and wait for its end, also beyond the time that a single call waits."""
    output = (await use.call("shell_run", arguments, person=person)).get("output", {})
    while output.get("status") == "running":
        waited = await use.call("shell_wait", {"commandId": output["commandId"], "timeoutMs": _WAIT_MS})
        output = waited.get("result") or {**output, "status": waited.get("status", "running")}
    return dict(output)


def _print_output(output: Mapping[str, Any], timeout: int) -> None:
    """Print what the command printed. Its bytes are an agent's: control characters are shown, not sent to the terminal."""
    for stream, is_error in (("stdout", False), ("stderr", True)):
        text = str(output.get(stream) or "")
        if text:
            click.echo("\n".join(map(escape_text, text.removesuffix("\n").split("\n"))), err=is_error)
    if output.get("truncated"):
        print_message("fidelio: the output was cut; write it to a file to see all of it.")
    if output.get("timedOut"):
        print_message(f"fidelio: the command was ended after {timeout} s. {explain_limit(timeout)}")


def explain_limit(timeout: int) -> str:
    """What to do about a command that took longer than `timeout` seconds."""
    if timeout < LONGEST:
        return f"Raise --timeout, up to {LONGEST}."
    return "No longer time is possible here. Let the agent of the session run it with shell_exec, which has no time limit."


def _exit_code(output: Mapping[str, Any]) -> int:
    if output.get("timedOut"):
        return TIMED_OUT
    if (name := output.get("signal")) in signal.Signals.__members__:
        return SIGNALLED + signal.Signals[str(name)].value
    return int(output.get("exitCode") or 0)


@sandbox_command.command("diff")
@session_option
@project_option
@json_option
@with_cli_context
async def diff(cli: CliContext, session: str, project: str | None, as_json: bool) -> None:
    """Show the changes of the copy of a project, as a diff."""
    async with open_sandbox(cli, session, project) as use:
        found = await ProjectChanges(use.service.context).diff(use.session)
    if as_json:
        print_json({"session": use.session, **msgspec.to_builtins(found)})
    else:
        print_diff(found)


@sandbox_command.command("apply")
@session_option
@project_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation, for scripts.")
@json_option
@click.argument("paths", nargs=-1)
@with_cli_context
def apply(cli: CliContext, session: str, project: str | None, yes: bool, as_json: bool, paths: tuple[str, ...]) -> None:
    """Bring changes of the copy back.

    All of them are written, or those of PATHS. Their diff is shown first, and exactly that is written; if you have changed such
    a file in the meantime, nothing is. What you apply can run on your machine: read it like the patch of a stranger.
    """
    person = require_person()
    found = select_paths(run_async(_load_diff(cli, session, project)), paths)
    if not as_json:
        print_diff(found)
    if not found.changes:
        print_json({"applied": []}) if as_json else None
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageProblem("Nothing was written: there is no terminal to ask at.", remedy="Pass --yes.")
        click.confirm("Write this into your directory?", abort=True, err=True)
    applied = run_async(_apply(cli, session, project, paths, found.digest, person))
    if as_json:
        print_json({"applied": [msgspec.to_builtins(change) for change in applied]})
    else:
        click.echo(f"{len(applied)} change{'' if len(applied) == 1 else 's'} written.")


async def _load_diff(cli: CliContext, session: str, project: str | None) -> ProjectDiff:
    async with open_sandbox(cli, session, project) as use:
        return await ProjectChanges(use.service.context).diff(use.session)


async def _apply(
    cli: CliContext, session: str, project: str | None, paths: tuple[str, ...], digest: str, person: str
) -> tuple[ProjectChange, ...]:
    async with open_sandbox(cli, session, project) as use:
        changes = ProjectChanges(use.service.context)
        return await changes.apply(use.session, paths or None, expect=digest, by=person)


@sandbox_command.command("end")
@session_option
@project_option
@json_reply_option
@with_cli_context
async def end(cli: CliContext, session: str, project: str | None) -> None:
    """End a session and its sandbox.

    Every process in the sandbox ends, and open requests are withdrawn. The record stays, and the name stays taken until the
    session is deleted: `fidelio sessions --delete` erases the record and the files of the sandbox.
    """
    person = require_person()
    async with open_sandbox(cli, session, project) as use:
        await use.service.end_session(use.session, by=person)
    sentence = f"Session {use.session} has ended. `{cli.program} report {use.session}` shows what happened in it."
    print_reply(sentence, session=use.session, ended=True)


@sandbox_command.command("allow")
@session_option
@project_option
@click.option("--for", "duration", default="1h", show_default=True, help="How long: a number and s, m, h or d.")
@click.argument("pattern")
@json_reply_option
@with_cli_context
async def allow(cli: CliContext, session: str, project: str | None, duration: str, pattern: str) -> None:
    """Allow a pattern of commands for a time.

    Commands that match PATTERN then run without asking in this session. The first word is the program. `*` stands for a word,
    at the end for any further words. Only plain commands match: one with a pipe, a redirection or a variable still asks.

    \b
    fidelio sandbox allow 'pytest *' --for 2h
    """
    person, seconds = require_person(), parse_duration(duration, "--for")
    async with open_sandbox(cli, session, project) as use:
        await use.service.allow_pattern(use.session, pattern, by=person, seconds=seconds)
    sentence = f"Session {use.session} may run {quote_name(pattern)} without asking for {quote_name(duration)}."
    print_reply(sentence, session=use.session, pattern=pattern, seconds=seconds)


@sandbox_command.command("policy", short_help="Change when a tool or an action asks a person.")
@session_option
@project_option
@click.option("--agent", metavar="NAME", help="Change it for the later sessions of this agent in the project instead.")
@click.argument("tool")
@click.argument("policy", type=click.Choice(POLICIES))
@json_reply_option
@with_cli_context
async def set_policy(cli: CliContext, session: str, project: str | None, agent: str | None, tool: str, policy: str) -> None:
    """Change when a tool or an action asks: never, each time, unless it only reads (auto), or for a signed yes (proven)."""
    person, name = require_person(), quote_name(tool)
    if agent is None:
        async with open_sandbox(cli, session, project) as use:
            await use.service.set_policy(use.session, tool, policy, by=person)
        sentence = f"In session {use.session} the policy of {name} is {policy}."
        print_reply(sentence, session=use.session, tool=tool, policy=policy)
        return
    async with cli.open(create=True) as app:
        await (await app.runtime()).set_agent_policy(real_project(project), agent, tool, policy, by=person)
    sentence = f"In later sessions of agent {quote_name(agent)} the policy of {name} is {policy}."
    print_reply(sentence, agent=agent, tool=tool, policy=policy)
