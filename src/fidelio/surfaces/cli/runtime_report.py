"""Printing of the report on a runtime session: tools, commands, approvals, what lets more through, and what is left open."""

from __future__ import annotations

import click

from fidelio.app.records import ChainVerdict
from fidelio.clock import format_local
from fidelio.runtime.report import ReportedApproval, ReportedChanges, ReportedCommand, RuntimeReport
from fidelio.surfaces.cli.context import describe_channel, escape_line, print_line, print_quote, quote_name

_MAX_PATH, _MAX_COMMAND = 200, 400
# Paths of a change that are printed; JSON has more.
_MAX_PATHS = 20


def print_runtime_report(report: RuntimeReport, verdict: ChainVerdict) -> None:
    """Print the report."""
    for problem in verdict.problems:
        print_line(f"! THE RECORD WAS CHANGED OUTSIDE OF FIDELIO: {escape_line(problem)}")
    print_line(_describe_session(report))
    if report.deleted_at is not None:
        print_line("This session was deleted.", "  ")
    print_line(f"started {_format_time(report.started_at)}, {_describe_end(report)}", "  ")
    holds = "holds" if verdict.holds else "is intact, but what is stored beside it DIFFERS from it"
    print_line(f"the chain of {verdict.events} events {holds}, head {verdict.head.hex()[:16]}...", "  ")
    for line in _facts(report) if report.deleted_at is None else ():
        print_line(line, "  ")
    _print_tools(report)
    _print_commands(report)
    _print_approvals(report)
    for title, entries in _list_sections(report).items():
        if entries:
            click.echo(f"\n{title}")
        for entry in entries:
            print_line(entry, "  ")
    click.echo()
    for difference in report.differences:
        print_line(f"! {escape_line(difference)}")
    count = len(report.differences)
    print_line(f"{count} call{'' if count == 1 else 's'} or commands whose end is unknown.")


def _describe_session(report: RuntimeReport) -> str:
    if report.store:
        return f"Session {report.session} is a store: {escape_line(report.store)}"
    if report.deleted_at is not None:
        return f"Session {report.session} of a sandbox"
    return f"Session {report.session} of a sandbox, named {quote_name(report.name)}, agent {quote_name(report.agent)}"


def _format_time(time: int | None) -> str:
    return "at an unknown time" if time is None else format_local(time)


def _list_sections(report: RuntimeReport) -> dict[str, list[str]]:
    """What a person has allowed, attached and brought back, and the promoted files."""
    return {
        "Changed policies": [
            f"{format_local(entry.at)}  {quote_name(entry.tool)}: {quote_name(entry.policy)}, by {quote_name(entry.by)}"
            for entry in report.policies
        ],
        "Allowed patterns": [
            f"{format_local(entry.at)}  {quote_name(entry.pattern, _MAX_PATH)} until {format_local(entry.expires)},"
            f" by {quote_name(entry.by)}"
            for entry in report.allowed
        ],
        "Attached vaults": [
            f"{format_local(entry.at)}  {', '.join(map(quote_name, entry.vaults)) or 'none'}, by {quote_name(entry.by)}"
            for entry in report.vaults
        ],
        "Changes brought back into the project": [_describe_changes(entry) for entry in report.applied],
        "Promoted files": [quote_name(path, _MAX_PATH) for path in report.promoted],
    }


def _describe_changes(applied: ReportedChanges) -> str:
    paths = [quote_name(path, _MAX_PATH) for path in applied.paths[:_MAX_PATHS]]
    more = f" and {applied.count - len(paths)} more" if applied.count > len(paths) else ""
    return f"{format_local(applied.at)}  {', '.join(paths)}{more}, by {quote_name(applied.by)}"


def _describe_end(report: RuntimeReport) -> str:
    if report.deleted_at is not None:
        return f"deleted {format_local(report.deleted_at)} by {quote_name(report.deleted_by)}"
    if report.store:
        return "in use"
    return "not ended" if report.ended_at is None else f"ended {format_local(report.ended_at)} by {quote_name(report.ended_by)}"


def _facts(report: RuntimeReport) -> list[str]:
    facts = [f"project {quote_name(report.project, _MAX_PATH)}"] if report.project else []
    if report.environment:
        facts.append(f"environment {quote_name(report.environment)}, version {report.environment_version}")
    if report.mount_mode:
        facts.append(f"mounted as {quote_name(report.mount_mode)}: {quote_name(report.mount_source, _MAX_PATH)}")
    if report.levels:
        facts.append(f"isolation: {', '.join(map(quote_name, report.levels))}")
    facts += [f"the sandbox was closed: {quote_name(reason, _MAX_PATH)}" for reason in report.closed]
    facts += [f"connected {count} times to {quote_name(host)}" for host, count in report.hosts.items()]
    return [*facts, *([f"! {report.redacted} events were redacted"] if report.redacted else [])]


def _print_tools(report: RuntimeReport) -> None:
    if report.tools:
        click.echo("\nTools")
    for name, tool in sorted(report.tools.items()):
        errors = f", {tool.errors} refused or failed" if tool.errors else ""
        print_line(f"{quote_name(name)}: {tool.calls} call{'' if tool.calls == 1 else 's'}{errors}", "  ")


def _print_commands(report: RuntimeReport) -> None:
    if report.commands:
        click.echo("\nCommands")
    if (omitted := report.command_count - len(report.commands)) > 0:
        print_line(f"{omitted} older ones are not listed", "  ")
    for command in report.commands.values():
        where = quote_name(command.cwd, _MAX_PATH)
        print_line(f"{format_local(command.at)}  {quote_name(command.tool)} in {where}: {_describe_exit(command)}", "  ")
        print_quote(command.command, "    ")


def _describe_exit(command: ReportedCommand) -> str:
    if command.state != "completed":
        return {"running": "not ended", "lost": "END UNKNOWN"}.get(command.state, quote_name(command.state))
    how = "timed out" if command.timed_out else f"exit code {command.exit_code}"
    return f"{how} after {command.duration_ms / 1000:.1f} s"


def _print_approvals(report: RuntimeReport) -> None:
    if report.approvals:
        click.echo("\nApprovals")
    for approval in report.approvals.values():
        print_line(f"{format_local(approval.at)}  {approval.request}  {quote_name(approval.tool)}: {_describe(approval)}", "  ")
        print_quote(approval.command[:_MAX_COMMAND], "    ")
        if approval.fingerprint:
            print_line(f"signed with the key {quote_name(approval.fingerprint)}", "    ")
        if approval.comment:
            print_line("comment:", "    ")
            print_quote(approval.comment, "    ")


def _describe(approval: ReportedApproval) -> str:
    if approval.state == "open":
        return "waits for an answer"
    if not approval.by:
        return quote_name(approval.state)
    how = describe_channel(approval.channel, approval.assurance)
    used = "carried out" if approval.used else "nothing was carried out"
    return f"{quote_name(approval.state)}: {how}after {approval.after_ms / 1000:.1f} s, by {quote_name(approval.by)}; {used}"
