"""`fidelio trace` and `fidelio report`: the calls of a session, and how it compares with its definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fidelio.app.records import ChainVerdict
from fidelio.app.runtime_reports import ProvenReport, load_report, load_runtime_calls
from fidelio.clock import format_local
from fidelio.engine.record import CALLED, Record, decode_record
from fidelio.runtime.report import RuntimeReport
from fidelio.surfaces.cli.context import (
    CliContext,
    complete_path,
    describe_channel,
    escape_line,
    json_option,
    json_text,
    print_items,
    print_json,
    print_line,
    print_quote,
    quote_name,
    run_async,
    supports_unicode,
    with_cli_context,
)
from fidelio.surfaces.cli.references import SESSION
from fidelio.surfaces.cli.runtime_report import print_runtime_report
from fidelio.surfaces.text import pad
from fidelio.surfaces.views.reports import report_json
from fidelio.surfaces.web.share import share_session
from fidelio.workflows.report import Report, ReportedAnswer, Visit
from fidelio.workflows.trace import call_json

if TYPE_CHECKING:
    from fidelio.app.passkeys import PersonKey

_MAX_REASON, _MAX_PATH = 400, 200
_STATES = {"error": "refused", "open": "no result on record", "erased": "erased"}


@click.command("trace")
@click.argument("session", type=SESSION)
@json_option
@with_cli_context
def trace_command(cli: CliContext, session: str, as_json: bool) -> None:
    """Show every tool call of agents in SESSION, in order, with time, result and warnings."""
    calls = run_async(_load_calls(cli, session))
    if as_json:
        print_items(calls)
        return
    for call in calls:
        status = _STATES.get(call["s"], "ok")
        activity = f" in {quote_name(call['act'])}" if call["act"] else ""
        who, what = quote_name(call["aid"]), quote_name(call["name"])
        how = f"read again {int(call['reads'])} times" if "reads" in call else f"{status}, {int(call['ms'])} ms"
        print_line(f"{format_local(call['time'])}  {pad(who, 12)}  {what}{activity}: {how}")
        for note in [*([call["err"]] if "err" in call else []), *call.get("vw", [])]:
            print_quote(note, "    ")


@click.command("report")
@click.argument("session", type=SESSION)
@click.option("--check", is_flag=True, help="Exit with 1 if there is any difference, also in a child session.")
@click.option(
    "--html",
    metavar="FILE",
    shell_complete=complete_path,
    help="Write the session as a page that verifies by itself, without a server.",
)
@json_option
@with_cli_context
def report_command(cli: CliContext, session: str, check: bool, html: str | None, as_json: bool) -> int:
    """Compare SESSION with its definition: what was required, what happened, where they differ, who answered what.

    The definition is the one that the session started with. The hash chains of the session and its children are verified too.

    A session of a sandbox has no definition: its report lists tools, commands, approvals, promoted files, what a person has
    allowed, attached or brought back, and as differences the calls whose end is unknown.
    """
    if html is not None:
        Path(html).write_text(run_async(_render_page(cli, session)), "utf-8")
        print_line(f"The session is in {quote_name(html, _MAX_PATH)}. Open it in a browser: it verifies the chain by itself.")
        return 0
    proven = run_async(_load_report(cli, session))
    report, verdict = proven.report, proven.verdict
    if as_json:
        print_json(report_json(proven))
        return 1 if check and report.differences else 0
    if isinstance(report, RuntimeReport):
        print_runtime_report(report, verdict)
    else:
        _print_report(cli, report, verdict)
    _print_keys(proven.keys)
    return 1 if check and report.differences else 0


async def _render_page(cli: CliContext, session: str) -> str:
    async with cli.records() as records:
        return await share_session(records, await records.find(session))


async def _load_calls(cli: CliContext, session: str) -> list[dict[str, Any]]:
    async with cli.records() as records:
        found = await records.find(session, kind="workflow")
        if found.kind == "runtime":
            return await load_runtime_calls(records, found)
        record = decode_record(found.raw) if found.kind == "workflow" else Record()
        return [
            {"seq": event.seq, "time": event.time, **event.body, **call_json(event, record)}
            async for event in records.all_events(found.id, types=[CALLED])
        ]


async def _load_report(cli: CliContext, session: str) -> ProvenReport:
    async with cli.records() as records:
        return await load_report(records, await records.find(session, kind="workflow"))


def _print_keys(keys: Sequence[PersonKey]) -> None:
    """How each key was registered that this report relies on."""
    if keys:
        click.echo("\nKeys that have signed answers")
    for key in keys:
        print_line(f"{key.fingerprint}  {quote_name(key.name)}, for {quote_name(key.page)}", "  ")
        how = f"registered {format_local(key.confirmed_at)} by {quote_name(key.by)}, confirmed with {key.confirmed_with}"
        print_line(how if key.confirmed_at else "NOBODY HAS CONFIRMED IT", "    ")
        if key.removed_at:
            print_line(f"removed {format_local(key.removed_at)} by {quote_name(key.removed_by)}", "    ")


def _print_report(cli: CliContext, report: Report, verdict: ChainVerdict) -> None:
    for problem in verdict.problems:
        print_line(f"! THE RECORD WAS CHANGED OUTSIDE OF FIDELIO: {escape_line(problem)}")
    what = f"{quote_name(report.workflow)} {quote_name(report.version)}"
    print_line(f"Session {report.session} of the workflow {what}, titled {quote_name(report.title)}")
    agents = _join_names(report.agents)
    print_line(f"started {format_local(report.started_at)}, {_describe_end(report)}; {report.fidelity}; agents: {agents}", "  ")
    holds = "holds" if verdict.holds else "is intact, but what is stored beside it DIFFERS from it"
    print_line(f"the chain of {verdict.events} events {holds}, head {verdict.head.hex()[:16]}...", "  ")
    for sentence in verdict.not_covered:
        print_line(f"not covered: {escape_line(sentence)}", "  ")
    for line in _iter_facts(report):
        print_line(escape_line(cli.render(line)), "  ")
    for visit in report.visits:
        _print_visit(cli, visit)
    if report.never_entered:
        click.echo()
        print_line(f"Never entered: {_join_names(report.never_entered)}")
    _print_variables(report)
    if report.refused:
        click.echo("\nRefused calls")
        for refused in report.refused:
            who, why = quote_name(refused.agent), quote_name(refused.reason)
            print_line(f"{format_local(refused.at)}  {who}: {quote_name(refused.tool)} ({why})", "  ")
    _print_children(report)
    count = len(report.differences)
    click.echo()
    print_line(f"{count} difference{'' if count == 1 else 's'} between the definition and what happened.")


def _print_children(report: Report) -> None:
    children = list(report.iter_children())
    if children:
        click.echo("\nChild sessions")
    for child in children:
        print_line(
            f"Session {child.session} of the workflow {quote_name(child.workflow or 'unknown')}: {_describe_end(child)}", "  "
        )
        own = [*(text for visit in child.visits for text in visit.differences), *child.own_differences]
        for difference in own:
            print_line(f"! {escape_line(difference)}", "  ")


def _iter_facts(report: Report) -> Iterator[str]:
    """The lines about the definition and the origin of the session."""
    if report.found_in:
        yield f"its definition came from {report.found_in}"
    if report.snapshot_calls:
        yield f"{report.snapshot_calls} calls were served from the snapshot of its definition"
    yield from (f"! {sentence}" for sentence in (*report.erased, *report.drift))
    if report.unverified:
        yield "UNVERIFIED: it was rebuilt from a token whose seal could not be checked"
    if report.claims_to_continue:
        yield f"it claims to continue session {report.claims_to_continue}"
    if report.restored:
        yield "restored from a sealed state token; earlier events are in the ledger of the server that issued it"
    if report.ended_unchecked_by:
        yield f"ENDED WITHOUT ITS DEFINITION, by {report.ended_unchecked_by}"


def _describe_end(report: Report) -> str:
    if (end := report.cancelled) is not None:
        why = f" ({quote_name(end.reason, _MAX_REASON)})" if end.reason else ""
        above = f" with session {quote_name(end.session)}" if end.session else ""
        return f"CANCELLED {format_local(end.at)} over {quote_name(end.channel)} by {quote_name(end.by)}{above}{why}"
    return f"completed {format_local(report.ended_at)}" if report.ended_at is not None else "not completed"


def _print_variables(report: Report) -> None:
    if report.variables:
        click.echo("\nVariables")
    for name, value in report.variables.items():
        print_line(f"variable {quote_name(name)}, set by {quote_name(report.set_by.get(name, ''))}:", "  ")
        print_quote(json_text(value), "    ")


def _print_visit(cli: CliContext, visit: Visit) -> None:
    done, open_ = ("✓", "·") if supports_unicode() else ("+", "-")
    click.echo()
    print_line(
        f"Activity {quote_name(visit.activity)}, entered {format_local(visit.entered_at)}, named {quote_name(visit.name)}"
    )
    for mark, line, output in _step_lines(visit, done, open_):
        print_line(f"{mark} {line}", "  ")
        print_quote(output, "    ")
    for answer in visit.answers:
        _print_answer(cli, answer)
    for difference in visit.differences:
        print_line(f"! {escape_line(difference)}", "  ")


def _step_lines(visit: Visit, done: str, open_: str) -> Iterator[tuple[str, str, str]]:
    """The steps of the visit, done or not; then repetitions in loops, and steps that the definition does not have."""
    reported = [(entry["step_id"], entry["output"]) for entry in visit.done]
    names = {name for name, _ in reported}
    for step in visit.steps:
        yield from ((done, quote_name(name), output) for name, output in reported if name == step)
        yield from [] if step in names else [(open_, quote_name(step), "")]
    yield from ((done, quote_name(name), output) for name, output in reported if name not in visit.steps)
    loop_steps = dict.fromkeys(visit.loop_steps)
    yield from ((open_, f"{quote_name(step)} (in a loop)", "") for step in loop_steps if step not in names)


def _join_names(names: list[str]) -> str:
    return ", ".join(map(quote_name, names))


def _print_answer(cli: CliContext, answer: ReportedAnswer) -> None:
    print_line(f"? {quote_name(answer.checkpoint)} asked:", "  ")
    print_quote(answer.question, "    ")
    if answer.state == "open":
        click.echo(f"    waits for an answer: {cli.program} answer {answer.request} OPTION")
    elif answer.state == "withdrawn":
        print_line("withdrawn: the session ended before it was answered", "    ")
    else:
        # A client chooses its own name: what says how sure we are who answered stands before it.
        how, seconds = describe_channel(answer.channel, answer.assurance), answer.after_ms / 1000
        what, demanded = (
            quote_name(answer.option or answer.state),
            f"demanded: {answer.demanded}, " if answer.demanded != "any" else "",
        )
        print_line(f"{what}: {how}{demanded}after {seconds:.1f} s, by {quote_name(answer.by)}", "    ")
        if answer.fingerprint:
            print_line(f"signed with the key {quote_name(answer.fingerprint)}", "    ")
