"""Options about anchors of `fidelio verify` and `fidelio up`, and the output of verified anchors."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from fidelio.anchors.schedule import AnchorSchedule, parse_interval
from fidelio.app.application import Application
from fidelio.clock import format_iso
from fidelio.errors import UsageProblem
from fidelio.surfaces.cli.context import complete_path, escape_line, print_sentence

if TYPE_CHECKING:
    from fidelio.anchors.service import AnchorVerdicts
    from fidelio.anchors.verification import AnchorVerdict

TSA = "FIDELIO_TSA"
TSA_HELP = f"Have the anchor stamped by this time-stamping server of RFC 3161 (default: {TSA})."
TARGET_HELP = "a file, a directory, git:tags/NAME, git:notes/NAME, or git:DIR:tags/NAME for the repository in DIR"
_PRINTED_FINDINGS = 20


def verify_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options about anchors to `fidelio verify`. Its function gets them as the dictionary `anchoring`."""

    @click.option(
        "--anchor",
        "anchors",
        metavar="TARGET",
        multiple=True,
        help=f"Compare with this anchor (repeatable): {TARGET_HELP}. Without SESSION, implies --all.",
    )
    @click.option(
        "--key",
        "keys",
        metavar="KEY",
        multiple=True,
        help="With --anchor: accept only this key, a fingerprint or a file of fingerprints (default: the keys of this home).",
    )
    @click.option(
        "--tsa-ca",
        metavar="FILE",
        shell_complete=complete_path,
        default="",
        help="With --anchor: certificates for time stamps, in PEM.",
    )
    @wraps(command)
    def run(*arguments: Any, anchors: tuple[str, ...], keys: tuple[str, ...], tsa_ca: str, **options: Any) -> Any:
        if (keys or tsa_ca) and not anchors:
            raise UsageProblem("--key and --tsa-ca belong to --anchor.", remedy="Name an anchor with --anchor TARGET.")
        return command(*arguments, anchoring={"anchors": anchors, "keys": keys, "tsa_ca": tsa_ca}, **options)

    return run


async def verify_anchors(application: Application, session: str | None, anchoring: dict[str, Any]) -> AnchorVerdicts | None:
    """Compare the ledger, or a session, with the anchors of the options; None without anchors."""
    if not anchoring["anchors"]:
        return None
    service = await application.anchors()
    trust = service.trust(anchoring["keys"], anchoring["tsa_ca"])
    return await service.verify(anchoring["anchors"], trust, session=session)


def anchors_json(verdicts: AnchorVerdicts | None) -> dict[str, Any]:
    if verdicts is None:
        return {}
    return {"anchors": [_verdict_json(verdict) for verdict in verdicts.anchors], "anchor_gaps": list(verdicts.gaps)}


def _verdict_json(verdict: AnchorVerdict) -> dict[str, Any]:
    stamp = verdict.time_stamp
    stamped = {"time_stamp": {**to_builtins(stamp), "time": format_iso(stamp.time) if stamp.time else None}} if stamp else {}
    return {**to_builtins(verdict), "time": format_iso(verdict.time), "holds": verdict.holds, **stamped}


def print_anchors(verdicts: AnchorVerdicts | None) -> None:
    for verdict in verdicts.anchors if verdicts else ():
        _print_verdict(verdict)
    for gap in verdicts.gaps if verdicts else ():
        click.echo(escape_line(gap), err=True)
    if verdicts and any(verdict.signer == "home" for verdict in verdicts.anchors):
        click.echo(
            "Whoever can write to this home can sign such an anchor. Pin a fingerprint that you kept elsewhere with --key."
        )


def _print_verdict(verdict: AnchorVerdict) -> None:
    name = escape_line(f"Anchor {verdict.number} of {format_iso(verdict.time)} ({verdict.source})")
    if verdict.signer == "forged":
        print_sentence(f"{name} proves nothing: its signature is not valid.", err=True)
        return
    if verdict.signer == "unknown":
        print_sentence(f"{name} proves nothing: it is signed by the unknown key {verdict.fingerprint}.", err=True)
        return
    for finding in verdict.findings[:_PRINTED_FINDINGS]:
        subject = f"session {finding.session} " if finding.session else ""
        click.echo(escape_line(f"{name}: {subject}{finding.reason}."), err=True)
    if verdict.count > _PRINTED_FINDINGS:
        print_sentence(f"{name}: {verdict.count - _PRINTED_FINDINGS} more contradictions.", err=True)
    if not verdict.count:
        whose = "the pinned key" if verdict.signer == "pinned" else "a key of this home"
        print_sentence(f"{name} agrees with the ledger: {verdict.sessions} sessions, signed by {whose} {verdict.fingerprint}.")
    for note in verdict.notes[:_PRINTED_FINDINGS]:
        click.echo(escape_line(f"  Note: {note}."))
    if len(verdict.notes) > _PRINTED_FINDINGS:
        print_sentence(f"  Note: events of {len(verdict.notes) - _PRINTED_FINDINGS} more sessions were redacted.")
    _print_time_stamp(name, verdict)


def _print_time_stamp(name: str, verdict: AnchorVerdict) -> None:
    if (stamp := verdict.time_stamp) is None:
        return
    if stamp.state == "verified":
        print_sentence(f"  It existed at {format_iso(stamp.time)}, says {escape_line(stamp.authority)}.")
    else:
        print_sentence(f"{name}: its time stamp is {stamp.state}: {escape_line(stamp.reason)}", err=stamp.state == "invalid")


def schedule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options about anchors to `fidelio up`. Its function gets an `AnchorSchedule`, or None."""

    @click.option("--anchor-every", "every", metavar="TIME", help="Write an anchor at this interval, such as 15m, 1h or 1d.")
    @click.option("--anchor-to", "target", metavar="TARGET", help=f"With --anchor-every: {TARGET_HELP}.")
    @click.option("--anchor-tsa", "tsa", metavar="URL", help=f"With --anchor-every: {TSA_HELP}")
    @wraps(command)
    def run(*arguments: Any, every: str | None, target: str | None, tsa: str | None, **options: Any) -> Any:
        return command(*arguments, schedule=_make_schedule(every, target, tsa), **options)

    return run


def _make_schedule(every: str | None, target: str | None, tsa: str | None) -> AnchorSchedule | None:
    if (every is None) is not (target is None) or (tsa and not every):
        raise UsageProblem(
            "--anchor-every and --anchor-to belong together.",
            remedy="Pass both, for example --anchor-every 1h --anchor-to DIR.",
        )
    if every is None or target is None:
        return None
    return AnchorSchedule(parse_interval(every), target, tsa or os.environ.get(TSA, ""))
