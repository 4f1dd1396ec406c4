"""`fidelio run`: runs a workflow with agents and displays its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fidelio.conductor.plan import DEFAULT_TRIES, DEFAULT_WORKER
from fidelio.engine.transitions import TERMINAL
from fidelio.errors import UsageProblem
from fidelio.surfaces.cli.context import (
    CliContext,
    calling_session,
    json_option,
    json_text,
    pass_cli,
    printable,
    run_async,
    workflows_option,
    working_place,
)
from fidelio.surfaces.commands import as_typed

if TYPE_CHECKING:
    from fidelio.app.application import Application
    from fidelio.conductor.context import ProgressEvent
    from fidelio.conductor.plan import Plan

WORDS = {
    "entered": "{agent} begins",
    "working": "{agent}: {detail}",
    "waiting": "waits for you: {program} inbox, then {program} answer {request} OPTION",
    "resumed": "{agent} goes on",
    "left": "done, on to {detail}",
    "completed": "completed. See: {program} report {session}",
    "failed": "failed: {detail}",
}


@click.command("run")
@click.argument("workflow")
@click.option("--agent", metavar="BLUEPRINT", default=DEFAULT_WORKER, show_default=True, help="Who does the work.")
@click.option(
    "--activity-agent", "pairs", metavar="ACTIVITY=BLUEPRINT", multiple=True, help="Who does one activity (repeatable)."
)
@click.option("--input", "inputs", metavar="NAME=VALUE", multiple=True, help="A variable to begin with (repeatable).")
@click.option(
    "--tries",
    type=click.IntRange(1, 20),
    default=DEFAULT_TRIES,
    show_default=True,
    help="How often a worker may fail to finish.",
)
@click.option("--new", "anew", is_flag=True, help="Begin anew even when a run of this workflow has not come to its end.")
@click.option("--project", metavar="DIR", help="Where the agents work (default: the working directory).")
@workflows_option
@json_option
@pass_cli
def run_command(
    cli: CliContext, /, project: str | None, directories: tuple[str, ...], with_bundled: bool, **wanted: Any
) -> int:
    """Let agents carry out WORKFLOW, one activity at a time.

    Questions wait in the inbox. A run that was interrupted goes on where it was when it is started again.
    """
    place = working_place(project)
    display = Display(cli.program, as_json=wanted["as_json"])

    async def work() -> None:
        async with cli.open(directories, with_bundled=with_bundled, create=True) as application:
            plan = await _plan(application, place, wanted)
            conductor = await application.conductor(watch=display.show)
            found = await conductor.find_or_start(plan, force_new=wanted["anew"])
            display.begin(found.session, plan.workflow, goes_on=found.is_resumed)
            await conductor.run(found.session)

    try:
        run_async(work())
    except KeyboardInterrupt:
        click.echo("\nNothing is lost: the same command goes on where it was.", err=True)
        raise
    return 0


async def _plan(application: Application, place: str, wanted: dict[str, Any]) -> Plan:
    from fidelio.conductor.plan import Plan, parse_inputs

    workflow = (await application.library()).workflow(wanted["workflow"])
    return Plan(
        workflow=workflow.id,
        project=place,
        agent=wanted["agent"],
        activity_agents=dict(_pair(pair) for pair in wanted["pairs"]),
        inputs=parse_inputs(wanted["inputs"], workflow),
        tries=wanted["tries"],
        caller=calling_session(),
    )


def _pair(pair: str) -> tuple[str, str]:
    activity, equals, blueprint = pair.partition("=")
    if not activity or not equals or not blueprint:
        raise UsageProblem(f"{pair!r} names no agent.", remedy="Write ACTIVITY=BLUEPRINT.")
    return activity, blueprint


class Display:
    """One line for everything that happens, with the time and the money spent so far."""

    def __init__(self, program: str, *, as_json: bool) -> None:
        self._program = program
        self._as_json = as_json

    def begin(self, session: str, workflow: str, *, goes_on: bool) -> None:
        if self._as_json:
            click.echo(json_text({"kind": "begun", "session": session, "workflow": workflow, "goes_on": goes_on}))
            return
        how = "goes on where it was" if goes_on else "begins"
        click.echo(f"{printable(workflow)} {how} as {session}.")

    def show(self, happening: ProgressEvent) -> None:
        import msgspec

        if self._as_json:
            click.echo(json_text(msgspec.to_builtins(happening)))
            return
        spent = f"  ${happening.cost_usd:.2f}" if happening.cost_usd else ""
        where = printable("/".join(filter(None, (happening.activity or happening.workflow, happening.step))))
        click.echo(f"{_clock(happening.elapsed_ms)}  {where:<30} {self._words(happening)}{spent}")

    def _words(self, happening: ProgressEvent) -> str:
        said = {name: printable(getattr(happening, name)) for name in ("agent", "detail", "request", "session")}
        said["detail"] = as_typed(said["detail"].replace(TERMINAL, "the end"), self._program)
        return WORDS[happening.kind].format(program=self._program, **said)


def _clock(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes:>3}:{seconds:02}"
