"""Text from agents and files is escaped: it neither imitates a line of output nor controls the terminal."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import CallToolResult

from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.surfaces.text import escape_line, measure
from tests.support import proves
from tests.support.command_line import run_fidelio
from tests.surfaces.conftest import Connect, Fidelio
from tests.surfaces.test_end_to_end import call

# A new line that looks like ours, a cleared screen, a changed window title, text that runs backwards, and a C1 control.
NASTY = "x\nSession s_1 holds: 9 events\r\x1b[2J\x1b]0;owned\x07\u202eabc\u2066\x9b31m\u2028y\u200b"
WORKFLOW = {
    "id": "evil",
    "version": "1.0.0",
    "title": NASTY,
    "description": NASTY,
    "initialActivity": "only",
    "variables": [{"name": NASTY, "type": "string", "defaultValue": NASTY}],
    "activities": [
        {
            "id": "only",
            "version": "1.0.0",
            "name": NASTY,
            "description": NASTY,
            "steps": [{"id": "do", "name": NASTY}],
            "checkpoints": [
                {"id": "ask", "name": NASTY, "message": NASTY, "options": [{"id": "yes", "label": NASTY}]},
            ],
        }
    ],
}


def forged(output: str) -> list[str]:
    """Imitated lines of output, and characters that control the terminal."""
    lines = [line for line in output.split("\n") if line.startswith("Session s_1 holds")]
    return lines + [repr(sign) for sign in output if sign != "\n" and unicodedata.category(sign) in ("Cc", "Cf", "Zl", "Zp")]


def printed(environ: dict[str, str], *arguments: str, encoding: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fidelio", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, encoding=encoding, timeout=60, check=False)


@pytest.fixture
async def session(connect: Connect, home: Path, fidelio: Fidelio) -> str:
    """A session of an agent that tries it everywhere, up to a question that waits."""
    (home / "workflows").mkdir(parents=True)
    (home / "workflows" / "evil.json").write_text(json.dumps(WORKFLOW))
    async with connect() as client:
        started = await call(client, "start_session", workflow_id="evil", agent_id="a\u202ewodahs")
        entered = await call(client, "next_activity", session_token=started["session_token"], activity_id="only")
        asked = await call(client, "yield_checkpoint", session_token=entered["session_token"], checkpoint_id="ask")
        fidelio("answer", asked["request_id"], "yes")
        manifest = [{"step_id": "do", "output": NASTY}, {"step_id": NASTY, "output": NASTY}]
        end = {"session_token": asked["checkpoint_handle"], "activity_id": "__terminal__", "step_manifest": manifest}
        left = await client.call_tool("next_activity", end)
        assert isinstance(left, CallToolResult)
        assert not left.is_error
        again = await call(client, "start_session", workflow_id="evil")
        entered = await call(client, "next_activity", session_token=again["session_token"], activity_id="only")
        await call(client, "yield_checkpoint", session_token=entered["session_token"], checkpoint_id="ask")
    return str(json.loads(fidelio("sessions", "--json").stdout)["items"][-1]["id"])


@proves("cli.printable")
async def test_no_text_of_an_agent_or_a_file_forges_a_line_or_steers_the_terminal(session: str, fidelio: Fidelio) -> None:
    commands = [
        ("report", session),
        ("trace", session),
        ("events", session),
        ("search", "owned"),
        ("inbox", "--all"),
        ("list",),
        ("show", "evil"),
        ("draw", "evil"),
        ("draw", "evil", "--format", "mermaid"),
        ("lint",),
        ("doctor",),
    ]
    for command in commands:
        done = fidelio(*command)
        assert (command, done.returncode in (0, 1), forged(done.stdout + done.stderr)) == (command, True, [])
    assert "\\x1b[2J" in fidelio("report", session).stdout
    assert "\\u202eabc" in fidelio("inbox").stdout


# Blanks that are none push the forgery to the beginning of a line of the terminal; a line break does it too.
FORGERY = "Forged: fidelio answer r_1 yes"
PUSHED = f"fine{chr(0x2800) * 200}{FORGERY}{' ' * 120}\n{FORGERY}\u3164\r\n{'wide 世界 ' * 30}{FORGERY}"


def hostile(value: object) -> object:
    """The workflow with the other text."""
    return json.loads(json.dumps(value).replace(json.dumps(NASTY)[1:-1], json.dumps(PUSHED)[1:-1]))


@pytest.fixture
async def pushed(connect: Connect, home: Path, fidelio: Fidelio) -> str:
    """A finished session with an elicited answer, and one that waits; all their texts are hostile."""
    (home / "workflows").mkdir(parents=True)
    (home / "workflows" / "evil.json").write_text(json.dumps(hostile(WORKFLOW)))
    async with connect() as client:
        started = await call(client, "start_session", workflow_id="evil", agent_id=FORGERY)
        entering = {"session_token": started["session_token"], "activity_id": "only", "variables": {FORGERY: PUSHED}}
        assert not (await client.call_tool("next_activity", entering)).is_error
        token = started["session_token"]
        asked = await call(client, "yield_checkpoint", session_token=token, checkpoint_id="ask")
        async with await open_ledger(home / "ledger.db") as ledger:
            name = f"person:user of x over cli (local), after 9.9 s, by person:alice{chr(0x2800) * 60}{FORGERY}"
            await Inbox(ledger).answer(asked["request_id"], "yes", by=name, channel="elicited")
        manifest = [{"step_id": "do", "output": PUSHED}, {"step_id": PUSHED[:256], "output": PUSHED}]
        end = {"session_token": asked["checkpoint_handle"], "activity_id": "__terminal__", "step_manifest": manifest}
        assert not (await client.call_tool("next_activity", end)).is_error
        again = await call(client, "start_session", workflow_id="evil")
        entered = await call(client, "next_activity", session_token=again["session_token"], activity_id="only")
        await call(client, "yield_checkpoint", session_token=entered["session_token"], checkpoint_id="ask")
    return str(json.loads(fidelio("sessions", "--json").stdout)["items"][-1]["id"])


@proves("cli.gutter")
@pytest.mark.parametrize("width", [20, 80])
async def test_no_line_of_a_terminal_begins_with_a_forged_text(pushed: str, fidelio: Fidelio, width: int) -> None:
    shown = [
        ("report", pushed),
        ("trace", pushed),
        ("events", pushed),
        ("search", "Forged"),
        ("inbox", "--all"),
        ("sessions",),
        ("list",),
    ]
    for command in shown:
        lines = fidelio(*command, COLUMNS=str(width)).stdout.splitlines()
        own = [line for line in lines if "Answer with: " not in line and "waits for an answer: " not in line]
        assert [line for line in own if measure(line) > width] == [], command
        assert [line for line in own if line.strip().startswith(("Forged", "fidelio answer"))] == [], command
    assert f"│ {FORGERY}" in fidelio("report", pushed, COLUMNS="80").stdout


@proves("cli.channel-first")
async def test_the_name_of_a_client_does_not_replace_the_channel(pushed: str, fidelio: Fidelio) -> None:
    report, inbox = fidelio("report", pushed, COLUMNS="80").stdout, fidelio("inbox", "--all", COLUMNS="80").stdout

    (answer,) = [line for line in report.splitlines() if ", after " in line and not line.strip().startswith("│")]
    assert re.match(r'    yes: elicited, after \d+\.\d s, by "person:user of x', answer)
    assert '    answered: elicited, by "person:user of x over cli' in inbox


@proves("cli.json-escaped")
async def test_json_of_every_command_shows_nothing_raw(session: str, fidelio: Fidelio) -> None:
    commands = [
        ("report", session),
        ("trace", session),
        ("events", session),
        ("search", "owned"),
        ("inbox", "--all"),
        ("list",),
    ]
    for command in [*commands, ("show", "evil"), ("draw", "evil"), ("lint",), ("sessions",), ("doctor",)]:
        printed = fidelio(*command, "--json").stdout
        assert (command, forged(printed)) == (command, [])
    assert "\\u009b" in fidelio("report", session, "--json").stdout


@proves("cli.printable", "cli.json")
async def test_programs_get_the_text_as_it_is(session: str, fidelio: Fidelio) -> None:
    report = json.loads(fidelio("report", session, "--json").stdout)

    assert report["visits"][0]["done"][0]["output"] == NASTY


@proves("cli.printable")
def test_an_error_that_quotes_somebody_is_one_line_as_well(fidelio: Fidelio) -> None:
    refused = fidelio("draw", "hello", "-o", "a\nfidelio: all is well\x1b[2J.png")

    assert refused.returncode == 2
    assert forged(refused.stderr) == []
    assert refused.stderr.count("\n") == 1


@proves("cli.printable")
@given(st.text() | st.text(alphabet=st.characters(whitelist_categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Zs"))))
def test_printable_text_is_one_line_that_a_terminal_only_shows(text: str) -> None:
    shown = escape_line(text)

    assert not any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in shown)
    assert {sign for sign in shown if unicodedata.category(sign) == "Cf"} <= {"\u200c", "\u200d"}
    assert escape_line(shown) == shown


@proves("cli.printable")
@pytest.mark.parametrize("text", ["Grüße, 世界", "👩‍🚀 in orbit", "می‌خواهم", "50 % of C:\\temp"])
def test_honest_text_stays_as_it_is(text: str) -> None:
    assert escape_line(text) == text


@proves("cli.encoding")
# Click takes plain ASCII for a UTF-8 terminal that was not set up, and writes UTF-8.
@pytest.mark.parametrize(("encoding", "read_as"), [("latin-1", "latin-1"), ("cp437", "cp437"), ("ascii", "utf-8")])
def test_a_terminal_without_unicode_gets_its_own_signs(encoding: str, read_as: str, environ: dict[str, str]) -> None:
    done = printed({**environ, "PYTHONIOENCODING": encoding}, "tour", encoding=read_as)

    assert (done.returncode, done.stderr, "hello" in done.stdout) == (0, "", True)


@proves("cli.encoding")
@pytest.mark.parametrize("encoding", ["latin-1", "cp437"])
async def test_every_command_prints_in_the_signs_of_the_terminal(
    encoding: str, session: str, environ: dict[str, str], tmp_path: Path
) -> None:
    commands = [("report", session), ("events", session), ("draw", "hello", "--format", "mermaid"), ("doctor",)]
    for command in [*commands, ("draw", "hello"), ("show", "hello"), ("lint",), ("trace", session)]:
        done = run_fidelio(command, environ=environ, directory=tmp_path, encoding=encoding)
        assert (command, done.returncode, done.stderr) == (command, 0, "")
        assert done.stdout


@proves("cli.encoding", "cli.json")
def test_json_is_json_in_every_encoding(fidelio: Fidelio, home: Path) -> None:
    (home / "workflows").mkdir(parents=True)
    honest = {**WORKFLOW, "title": "Grüße 🎼", "description": "é"}
    (home / "workflows" / "evil.json").write_text(json.dumps(honest))

    for encoding in ("latin-1", "ascii", "utf-8"):
        listed = json.loads(fidelio("list", "--json", PYTHONIOENCODING=encoding).stdout)["items"]
        assert [entry["title"] for entry in listed if entry["id"] == "evil"] == ["Grüße 🎼"]
