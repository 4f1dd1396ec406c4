"""Trace and report on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.ledger import open_ledger
from tests.support import proves
from tests.support.ledgers import start
from tests.surfaces.conftest import Connect, Fidelio
from tests.surfaces.test_end_to_end import call, refusal, yield_checkpoint


@proves("cli.report", "cli.json")
async def test_a_report_says_what_was_asked_what_happened_and_who_answered(connect: Connect, fidelio: Fidelio) -> None:
    async with connect() as client:
        yielded = await yield_checkpoint(client)
        await refusal(client, "next_activity", session_token=yielded["checkpoint_handle"], activity_id="compose")
        fidelio("answer", yielded["request_id"], "none")
        moved = await call(client, "next_activity", session_token=yielded["checkpoint_handle"], activity_id="farewell")
        await call(client, "next_activity", session_token=moved["session_token"], activity_id="__terminal__")
    session = json.loads(fidelio("sessions", "--json").stdout)["items"][0]["id"]

    report = json.loads(fidelio("report", session, "--json").stdout)
    shown = fidelio("report", session).stdout
    trace = json.loads(fidelio("trace", session, "--json").stdout)

    (answer,) = report["visits"][0]["answers"]
    assert (answer["option"], answer["channel"], answer["assurance"]) == ("none", "cli", "local")
    assert answer["by"].startswith("person:")
    assert report["visits"][0]["asked"] == ["look", "ask"]
    assert report["differences"][0].startswith("greet: No step_manifest")
    assert [(refused["tool"], refused["reason"]) for refused in report["refused"]] == [
        ("next_activity", "checkpoint.unresolved")
    ]
    assert report["set_by"] == {"write_note": "checkpoint:greet/choose-tone/none"}
    assert "  variable write_note, set by checkpoint:greet/choose-tone/none:\n    │ false\n" in shown
    assert report["never_entered"] == ["compose"]
    assert report["chain"]["holds"] is True
    assert "Shall I leave a note about this project" in shown
    assert re.search(r"    none: local over cli, demanded: person, after \d+\.\d s, by person:", shown)
    assert [event["name"] for event in trace["items"]][:2] == ["start_session", "next_activity"]
    assert all(set(event) >= {"seq", "time", "ts", "traceId", "wf"} for event in trace["items"])
    assert "next_activity in greet: refused" in fidelio("trace", session).stdout


@proves("cli.report-check")
@pytest.mark.parametrize("options", [[], ["--json"]])
async def test_a_check_fails_on_a_difference_and_on_nothing_else(
    connect: Connect, fidelio: Fidelio, options: list[str]
) -> None:
    async with connect() as client:
        yielded = await yield_checkpoint(client)
        fidelio("answer", yielded["request_id"], "none")
        look = [{"step_id": step, "output": "done"} for step in ("look", "ask")]
        token = yielded["checkpoint_handle"]
        moved = await call(client, "next_activity", session_token=token, activity_id="farewell", step_manifest=look)
        session = json.loads(fidelio("sessions", "--json").stdout)["items"][0]["id"]
        faithful = fidelio("report", session, "--check", *options)
        await call(client, "next_activity", session_token=moved["session_token"], activity_id="__terminal__")

    assert faithful.returncode == 0, faithful.stdout
    assert fidelio("report", session, *options).returncode == 0
    assert fidelio("report", session, "--check", *options).returncode == 1


@proves("cli.report")
async def test_a_session_of_an_agent_has_no_report(fidelio: Fidelio, home: Path) -> None:
    async with await open_ledger(str(Home(home).ensure().ledger)) as ledger:
        await start(ledger, "s_000000000001", kind="agent")

    done = fidelio("report", "s_000000000001")

    assert done.returncode == 2
    assert "follows no workflow" in done.stderr
    assert "events s_000000000001" in done.stderr
