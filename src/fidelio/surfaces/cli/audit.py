"""`fidelio trace` and `fidelio report`: the calls of a session, and how it compares with its definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from fidelio.clock import format_iso
from fidelio.surfaces.cli.context import (
    CliContext,
    json_option,
    json_text,
    pass_cli,
    print_json,
    printable,
    run_async,
    shorten,
    speaks_unicode,
    terminal_width,
)
from fidelio.surfaces.commands import as_typed

if TYPE_CHECKING:
    from fidelio.app.records import ChainVerdict
    from fidelio.workflows.report import Report, ReportedAnswer, Visit


@click.command("trace")
@click.argument("session")
@json_option
@pass_cli
def trace_command(cli: CliContext, session: str, as_json: bool) -> None:
    """Show every call that agents made on SESSION, in order, with time, outcome and warnings."""
    calls = run_async(_calls(cli, session))
    if as_json:
        print_json({"event_count": len(calls), "events": calls})
        return
    for call in calls:
        mark = "refused" if call["s"] == "error" else "ok"
        place = f" in {printable(call['act'])}" if call["act"] else ""
        who, what = printable(call["aid"]), printable(call["name"])
        click.echo(f"{format_iso(call['time'])}  {who:<14} {what}{place}: {mark}, {call['ms']} ms")
        for note in [*([call["err"]] if "err" in call else []), *call.get("vw", [])]:
            click.echo(f"    {printable(as_typed(note, cli.program))}")


@click.command("report")
@click.argument("session")
@json_option
@pass_cli
def report_command(cli: CliContext, session: str, as_json: bool) -> None:
    """Report on SESSION: what the definition asked, what happened, where they differ, and who answered what.

    The definition is the one that the session started with. The chain is verified along the way.
    """
    from msgspec import to_builtins

    report, verdict = run_async(_report(cli, session))
    if as_json:
        proof = {"holds": True, "events": verdict.events, "head": verdict.head.hex()}
        print_json({**to_builtins(report), "differences": report.differences, "chain": proof})
    else:
        _print_report(cli, report, verdict)


async def _calls(cli: CliContext, session: str) -> list[dict[str, Any]]:
    from fidelio.engine.record import CALLED, Record, decode_record
    from fidelio.workflows.trace import call_json

    async with cli.records() as records:
        found = await records.find(session)
        record = decode_record(found.raw) if found.kind == "workflow" else Record()
        return [
            {"seq": event.seq, "time": event.time, **event.body, **call_json(event, record)}
            async for event in records.all_events(found.id, types=[CALLED])
        ]


async def _report(cli: CliContext, session: str) -> tuple[Report, ChainVerdict]:
    async with cli.records() as records:
        found = await records.find(session)
        return await records.report(found.id), await records.verify(found.id)


def _print_report(cli: CliContext, report: Report, verdict: ChainVerdict) -> None:
    state = f"completed {format_iso(report.ended_at)}" if report.ended_at is not None else "not completed"
    click.echo(f"{printable(report.title)} ({printable(f'{report.workflow} {report.version}')}), session {report.session}")
    click.echo(f"  started {format_iso(report.started_at)}, {state}; {report.fidelity}; agents: {_listed(report.agents)}")
    click.echo(f"  the chain of {verdict.events} events holds, head {verdict.head.hex()[:16]}...")
    if report.found_in:
        click.echo(f"  its definition came from {printable(report.found_in)}")
    if report.unverified:
        click.echo("  UNVERIFIED: it was rebuilt from a token that nobody could vouch for")
    if report.claims_to_continue:
        click.echo(f"  it claims to continue session {printable(report.claims_to_continue)}")
    if report.restored:
        click.echo("  restored from a sealed state; what happened before is in the record of the server it comes from")
    if report.ended_unchecked_by:
        click.echo(f"  ENDED WITHOUT ITS DEFINITION, by {printable(report.ended_unchecked_by)}")
    for visit in report.visits:
        _print_visit(cli, visit)
    if report.never_entered:
        click.echo(f"\nNever entered: {_listed(report.never_entered)}")
    _print_variables(report)
    if report.refused:
        click.echo("\nRefused calls")
        for refused in report.refused:
            click.echo(f"  {format_iso(refused.at)}  {printable(f'{refused.agent}: {refused.tool} ({refused.reason})')}")
    count = len(report.differences)
    click.echo(f"\n{count} difference{'' if count == 1 else 's'} between what was asked and what happened.")


def _print_variables(report: Report) -> None:
    if report.variables:
        click.echo("\nVariables")
    for name, value in report.variables.items():
        who = printable(report.set_by.get(name, ""))
        click.echo(f"  {shorten(f'{name} = {json_text(value)}', max(20, terminal_width() - len(who) - 12))}, set by {who}")


def _print_visit(cli: CliContext, visit: Visit) -> None:
    done, open_ = ("✓", "·") if speaks_unicode() else ("+", "-")
    click.echo(f"\n{printable(f'{visit.name} ({visit.activity})')}, entered {format_iso(visit.entered_at)}")
    for mark, line in _steps(visit, done, open_):
        click.echo(f"  {mark} {printable(line)}")
    for answer in visit.answers:
        _print_answer(cli, answer)
    for difference in visit.differences:
        click.echo(f"  ! {printable(as_typed(difference, cli.program))}")


def _steps(visit: Visit, done: str, open_: str) -> Iterator[tuple[str, str]]:
    """Every step that was asked for, done or not; then what loops repeated, each time, and what nobody asked for."""
    reported = [(entry["step_id"], entry["output"]) for entry in visit.done]
    names = {name for name, _ in reported}
    for step in visit.steps:
        yield from ((done, f"{name}: {said}" if said else name) for name, said in reported if name == step)
        yield from [] if step in names else [(open_, step)]
    yield from ((done, f"{name}: {said}" if said else name) for name, said in reported if name not in visit.steps)
    yield from ((open_, f"{step} (in a loop)") for step in dict.fromkeys(visit.loop_steps) if step not in names)


def _listed(names: list[str]) -> str:
    return ", ".join(map(printable, names))


def _print_answer(cli: CliContext, answer: ReportedAnswer) -> None:
    click.echo(f"  ? {printable(answer.question)}")
    if answer.state == "open":
        click.echo(f"    waits for an answer: {cli.program} answer {answer.request} OPTION")
    elif answer.state == "withdrawn":
        click.echo("    withdrawn: the session was ended before anybody answered")
    else:
        what, who = printable(answer.option or answer.state), printable(answer.by)
        seconds = answer.after_ms / 1000
        click.echo(f"    {what}, by {who} over {answer.channel} ({answer.assurance}), after {seconds:.1f} s")
