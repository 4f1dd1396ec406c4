"""`fidelio runtime outcome`: define what must become true, see the verdicts, decide."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from fidelio.errors import UsageProblem
from fidelio.inbox import require_person
from fidelio.runtime.outcomes.decisions import decide_outcome, override_gate
from fidelio.runtime.outcomes.record import Criterion, Outcome
from fidelio.surfaces.cli.context import (
    CliContext,
    CommandGroup,
    json_option,
    json_reply_option,
    print_items,
    print_line,
    print_quote,
    print_reply,
    quote_name,
    with_cli_context,
)
from fidelio.surfaces.cli.environments import read_yaml
from fidelio.surfaces.cli.runtime.targets import open_target, project_option, session_argument


@click.group("outcome", cls=CommandGroup, short_help="Say what must become true, and decide.")
def outcome_group() -> None:
    """Say what must become true in a session, see how far it is, and decide."""


@outcome_group.command("define")
@session_argument
@click.argument("file", required=False)
@click.option("--title", help="What must become true, in a few words.")
@click.option("--criterion", "criteria", metavar="TEXT", multiple=True, help="A part of it, which a model grades (repeatable).")
@click.option("--check", "checks", metavar="COMMAND", multiple=True, help="A command that must succeed (repeatable).")
@click.option("--max-iterations", type=click.IntRange(1, 20), help="How many evaluations there are at most (default: 3).")
@project_option
@json_reply_option
@with_cli_context
async def define_outcome(
    cli: CliContext,
    session: str,
    file: str | None,
    title: str | None,
    criteria: tuple[str, ...],
    checks: tuple[str, ...],
    max_iterations: int | None,
    project: str | None,
) -> None:
    """Define an outcome of SESSION by options or by the YAML file FILE, and let the agent work towards it.

    \b
    title: The tests pass
    successCriteria:
      - text: pytest succeeds
        check: {type: command, command: cd project && python3 -m pytest -q}
      - The change is explained in CHANGES.md
    """
    person = require_person()
    if (file is None) == (title is None):
        raise UsageProblem("An outcome needs a file or --title, and not both.", remedy="Name one of them.")
    body: dict[str, Any] = _read_file(file) if file else _read_options(str(title), criteria, checks)
    if max_iterations is not None:
        body["max_iterations"] = max_iterations
    async with open_target(cli, session, project) as target:
        await target.service.send(target.session, [{**body, "type": "user.define_outcome"}], by=person, channel="cli")
        await target.app.start_runtime_worker()
    title = str(body.get("title", ""))
    print_reply(f"Session {target.session} works towards {quote_name(title, 100)}.", session=target.session, title=title)


def _read_file(file: str) -> dict[str, Any]:
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise UsageProblem(f"{file} is no outcome.", remedy="Write title and successCriteria.")
    return data


def _read_options(title: str, criteria: tuple[str, ...], checks: tuple[str, ...]) -> dict[str, Any]:
    checked = [{"text": f"The command succeeds: {line}", "check": {"type": "command", "command": line}} for line in checks]
    return {"title": title, "successCriteria": [*checked, *criteria]}


@outcome_group.command("show")
@session_argument
@project_option
@json_option
@with_cli_context
async def show_outcomes(cli: CliContext, session: str, project: str | None, as_json: bool) -> None:
    """Show the outcomes of SESSION with their last verdicts."""
    async with open_target(cli, session, project) as target:
        outcomes = (await target.record()).outcomes.outcomes
    if as_json:
        print_items(msgspec.to_builtins(outcomes))
        return
    if not outcomes:
        print_line("The session has no outcome.")
    for outcome in outcomes:
        _print_outcome(outcome)


def _print_outcome(outcome: Outcome) -> None:
    latest = outcome.latest
    decided = f", decided by {quote_name(outcome.decided_by)}: {outcome.decided}" if outcome.decided else ""
    status = f"{latest.status}, {latest.trend.replace('_', ' ')}" if latest else "not evaluated yet"
    print_line(f"Outcome {outcome.id} of {outcome.author}: {status}{decided}")
    print_quote(outcome.title, "  ")
    results = latest.results if latest else ()
    for number, criterion in enumerate(outcome.criteria):
        verdict = results[number].verdict if number < len(results) else "not evaluated"
        by = f" by the {results[number].by}" if number < len(results) and results[number].by else ""
        print_line(f"{number + 1}. {verdict.replace('_', ' ')}{by}{_describe_check(criterion)}", "  ")
        print_quote(criterion.text, "     ")
        if number < len(results) and results[number].reason:
            print_quote(results[number].reason, "     ", max_lines=4)


def _describe_check(criterion: Criterion) -> str:
    return f", checked by {quote_name(str(criterion.check.get('type', '')))}" if criterion.check else ""


@outcome_group.command("decide")
@session_argument
@click.argument("decision", type=click.Choice(["pass", "fail"]))
@click.option("--outcome", help="The id of the outcome, if there are several.")
@click.option("--note", default="", help="Why.")
@project_option
@json_reply_option
@with_cli_context
async def decide(cli: CliContext, session: str, decision: Any, outcome: str | None, note: str, project: str | None) -> None:
    """Decide an outcome of SESSION yourself. It holds whatever checks and graders say."""
    person = require_person()
    async with open_target(cli, session, project) as target:
        known = [each.id for each in (await target.record()).outcomes.outcomes]
        if outcome is None and len(known) != 1:
            remedy = f"Name one with --outcome: {', '.join(known)}." if known else "Define one first."
            raise UsageProblem(f"The session has {len(known)} outcomes.", remedy=remedy)
        await decide_outcome(target.service.context, target.session, outcome or known[0], decision, by=person, note=note)
    print_reply(f"Outcome {outcome or known[0]} is decided: {decision}.", outcome=outcome or known[0], decision=decision)


@outcome_group.command("override")
@session_argument
@click.option("--note", default="", help="Why.")
@project_option
@json_reply_option
@with_cli_context
async def override(cli: CliContext, session: str, note: str, project: str | None) -> None:
    """Do not hold the next promotion of SESSION by its outcomes. It still needs an approval."""
    person = require_person()
    async with open_target(cli, session, project) as target:
        await override_gate(target.service.context, target.session, by=person, note=note)
    print_reply(
        f"The next shared write of session {target.session} is not held by its outcomes.", session=target.session, held=False
    )
