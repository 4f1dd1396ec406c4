"""`fidelio run`: run a workflow with agents and print its progress."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from fidelio.app.application import Application
from fidelio.conductor.context import ProgressEvent
from fidelio.conductor.plan import DEFAULT_TRIES, DEFAULT_WORKER, Plan, parse_inputs
from fidelio.definitions import TERMINAL
from fidelio.errors import UsageProblem
from fidelio.surfaces.cli.context import (
    CliContext,
    calling_session,
    escape_line,
    json_option,
    json_text,
    print_line,
    quote_name,
    resolve_project,
    run_async,
    with_cli_context,
    workflows_option,
)
from fidelio.surfaces.text import pad

PROGRESS_LINES = {
    "entered": "{agent} begins",
    "working": "{agent}: {detail}",
    "waiting": "waits for you: `{program} inbox`, then `{program} answer {request} OPTION`",
    "resumed": "{agent} continues",
    "left": "done, next: {detail}",
    "completed": "completed. See: `{program} report {session}`",
    "failed": "failed: {detail}",
}


@click.command("run")
@click.argument("workflow")
@click.option(
    "--agent", metavar="BLUEPRINT", default=DEFAULT_WORKER, show_default=True, help="The agent that carries out the activities."
)
@click.option(
    "--activity-agent",
    "pairs",
    metavar="ACTIVITY=BLUEPRINT",
    multiple=True,
    help="Another agent for this activity (repeatable).",
)
@click.option("--input", "inputs", metavar="NAME=VALUE", multiple=True, help="Set a variable at the start (repeatable).")
@click.option(
    "--tries",
    type=click.IntRange(1, 20),
    default=DEFAULT_TRIES,
    show_default=True,
    help="How many attempts an activity gets until the run fails.",
)
@click.option("--new", "anew", is_flag=True, help="Start a new session even if a run of this workflow is unfinished.")
@click.option("--project", metavar="DIR", help="Where the agents work (default: the working directory).")
@workflows_option
@json_option
@with_cli_context
def run_command(
    cli: CliContext, /, project: str | None, directories: tuple[str, ...], with_bundled: bool, **options: Any
) -> int:
    """Run WORKFLOW with agents, activity by activity.

    Questions wait in the inbox. A run that was interrupted continues where it stopped when the same command is given again.
    """
    directory = resolve_project(project)
    display = Display(cli.program, as_json=options["as_json"])

    async def work() -> None:
        async with cli.open(directories, with_bundled=with_bundled, create=True) as application:
            plan = await _build_plan(application, directory, options)
            conductor = await application.conductor(display.show, cli.render)
            found = await conductor.find_or_start(plan, force_new=options["anew"])
            display.begin(found.session, plan.workflow, goes_on=found.is_resumed)
            await conductor.run(found.session)

    try:
        run_async(work())
    except KeyboardInterrupt:
        click.echo("\nThe run is interrupted, and nothing is lost. Give the same command again to continue it.", err=True)
        raise
    return 0


async def _build_plan(application: Application, project: str, options: dict[str, Any]) -> Plan:
    workflow = (await application.library()).workflow(options["workflow"])
    return Plan(
        workflow=workflow.id,
        project=project,
        agent=options["agent"],
        activity_agents=dict(_parse_pair(pair) for pair in options["pairs"]),
        inputs=parse_inputs(options["inputs"], workflow),
        tries=options["tries"],
        caller=await calling_session(await application.agents()),
    )


def _parse_pair(pair: str) -> tuple[str, str]:
    activity, equals, blueprint = pair.partition("=")
    if not activity or not equals or not blueprint:
        raise UsageProblem(f"--activity-agent has the invalid value {pair!r}.", remedy="Write ACTIVITY=BLUEPRINT.")
    return activity, blueprint


class Display:
    """Prints a line for each event of a run, with the time and the cost so far."""

    def __init__(self, program: str, *, as_json: bool) -> None:
        self._program = program
        self._as_json = as_json

    def begin(self, session: str, workflow: str, *, goes_on: bool) -> None:
        """Print which session the run uses."""
        if self._as_json:
            click.echo(json_text({"kind": "begun", "session": session, "workflow": workflow, "goes_on": goes_on}))
            return
        how = "continues" if goes_on else "begins"
        print_line(f"{quote_name(workflow)} {how} as {session}.")

    def show(self, happening: ProgressEvent) -> None:
        """Print an event of the run."""
        if self._as_json:
            click.echo(json_text(msgspec.to_builtins(happening)))
            return
        spent = f"  ${happening.cost_usd:.2f}" if happening.cost_usd else ""
        where = quote_name("/".join(filter(None, (happening.activity or happening.workflow, happening.step))))
        print_line(f"{_format_elapsed(happening.elapsed_ms)}  {pad(where, 30)} {self._describe(happening)}{spent}")

    def _describe(self, happening: ProgressEvent) -> str:
        values = {name: quote_name(getattr(happening, name)) for name in ("agent", "request", "session")}
        values["detail"] = escape_line(happening.detail).replace(TERMINAL, "the end")
        return PROGRESS_LINES[happening.kind].format(program=self._program, **values)


def _format_elapsed(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes:>3}:{seconds:02}"
