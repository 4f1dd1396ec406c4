"""What a person sees of a record that was changed in the database: verify, report and inbox say so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import apsw
import pytest

from fidelio.app.application import Application
from fidelio.errors import RecordMismatch, UsageProblem
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.settings import Settings, load_settings
from tests.support import proves
from tests.surfaces.conftest import Connect, Fidelio
from tests.surfaces.test_cli_inbox import ask_about


@pytest.fixture
async def request_id(connect: Connect) -> str:
    async with connect() as client:
        return await ask_about(client, "fidelio")


def change(home: Path, statement: str) -> None:
    database = apsw.Connection(str(home / "ledger.db"))
    database.execute(statement)
    database.close()


@proves("chain.covers-requests-at-use")
async def test_a_changed_question_is_not_shown_and_not_answered(request_id: str, fidelio: Fidelio, home: Path) -> None:
    change(home, "UPDATE requests SET question = 'May I delete everything?'")

    listed, as_json, answered = fidelio("inbox"), fidelio("inbox", "--json"), fidelio("answer", request_id, "warm")

    assert "May I delete" not in listed.stdout
    assert f"! Request {request_id} differs from its event in: question" in listed.stdout
    assert "differs from its event" in json.loads(as_json.stdout)["items"][0]["mismatch"]
    assert answered.returncode == 3
    assert "was changed outside of Fidelio" in answered.stderr


@proves("chain.covers-requests-at-use", "chain.covers-every-session")
async def test_a_request_without_a_session_does_not_hide_the_others(request_id: str, fidelio: Fidelio, home: Path) -> None:
    columns = "kind, question, options, subject, detail, state, answer, answered_by, channel, assurance, opened_at"
    change(
        home, f"INSERT INTO requests (id, session, about, {columns}) SELECT 'r_stray', 's_gone', 'x', {columns} FROM requests"
    )

    listed, as_json, verified = fidelio("inbox"), fidelio("inbox", "--json"), fidelio("verify", "--all")

    assert (listed.returncode, as_json.returncode, verified.returncode) == (0, 0, 3)
    assert f"answer {request_id} OPTION" in listed.stdout
    assert "! No event opened request r_stray" in listed.stdout
    assert "mismatch" in json.loads(as_json.stdout)["items"][1]
    assert "it has no row, but events, documents or requests (r_stray) belong to it" in verified.stderr


@proves("chain.covers-requests-at-use")
async def test_a_changed_question_is_not_put_to_the_person_at_the_client(
    request_id: str, environ: dict[str, str], home: Path
) -> None:
    change(home, "UPDATE requests SET options = replace(options, 'label', 'description')")

    async with Application(load_settings(environ=environ)) as application:
        with pytest.raises(RecordMismatch, match="differs from its event in: options"):
            await application.ask(request_id)


@proves("cli.forged-report", "cli.verify")
async def test_a_report_says_first_that_the_record_was_changed(request_id: str, fidelio: Fidelio, home: Path) -> None:
    assert request_id
    session = json.loads(fidelio("sessions", "--json").stdout)["items"][0]["id"]
    untouched = fidelio("report", session)
    assert "events holds, head" in untouched.stdout
    change(home, "UPDATE requests SET question = 'Forged?'")
    change(home, """UPDATE sessions SET record = json_set(record, '$.fidelity', 'enforce'), status = 'completed'""")

    verified, report = fidelio("verify", session), fidelio("report", session)
    as_json = json.loads(fidelio("report", session, "--json").stdout)

    assert verified.returncode == 3
    assert "its record differs from its events in: fidelity" in verified.stderr
    assert "its row has the status 'completed'" in verified.stderr
    assert report.stdout.startswith("! THE RECORD WAS CHANGED OUTSIDE OF FIDELIO: ")
    assert "events holds" not in report.stdout
    assert as_json["chain"]["holds"] is False
    assert any("Request" in text and "question" in text for text in as_json["differences"])


@proves("cli.forged-report")
async def test_a_changed_definition_is_not_reported(request_id: str, fidelio: Fidelio, home: Path) -> None:
    assert request_id
    session = json.loads(fidelio("sessions", "--json").stdout)["items"][0]["id"]
    change(home, "UPDATE blobs SET content = CAST(replace(CAST(content AS TEXT), 'tone', 'tune') AS BLOB)")

    verified, report = fidelio("verify", session), fidelio("report", session)

    assert (verified.returncode, report.returncode) == (3, 3)
    assert "differs from its digest" in verified.stderr
    assert report.stdout == ""


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    return load_settings(environ=environ)


@proves("chain.redacted-projections")
def test_the_files_of_runs_are_erased_with_the_events(settings: Settings, home: Path) -> None:
    async def redact(status: str) -> None:
        async with Application(settings) as application:
            async with await open_ledger(home / "ledger.db") as ledger:
                await ledger.commit(Change(session="s_000000000001", status=status))
            await (await application.records()).redact("s_000000000001", [1], actor="ada", reason="x")

    spool = home / "runs" / "s_000000000001" / "1" / "1"
    spool.mkdir(parents=True)
    (spool / "agent.stdout").write_text("a secret")
    asyncio.run(_create_agent(home))

    with pytest.raises(UsageProblem, match="its agent still writes"):
        asyncio.run(redact("running"))
    assert spool.exists()
    asyncio.run(redact("failed"))
    assert not spool.exists()


async def _create_agent(home: Path) -> None:
    async with await open_ledger(home / "ledger.db") as ledger:
        note = NewEvent(type="note", body={"text": "a secret"})
        await ledger.commit(Change(session="s_000000000001", create=NewSession(kind="agent"), events=(note,)))
