"""The record on the command line: sessions, events, search, verify."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import apsw
import pytest

from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from tests.support import proves
from tests.surfaces.conftest import Fidelio

SESSION = "s_000000000001"


@pytest.fixture
def three_events(home: Path) -> None:
    home.mkdir()

    async def write() -> None:
        async with await open_ledger(home / "ledger.db") as ledger:
            notes = tuple(NewEvent(type="note", body={"text": text}) for text in ("a fine overture", "the aria", "finale"))
            await ledger.commit(Change(session=SESSION, create=NewSession(kind="workflow", name="opera"), events=notes))

    asyncio.run(write())


@proves("cli.verify")
@pytest.mark.usefixtures("three_events")
def test_a_session_that_holds_is_said_in_one_line(fidelio: Fidelio) -> None:
    by_id, by_name = fidelio("verify", SESSION), fidelio("verify", "opera", "--json")

    assert by_id.returncode == 0
    assert by_id.stdout.startswith(f"Session {SESSION} holds: 3 events, head ")
    assert json.loads(by_name.stdout)["sessions"][0]["events"] == 3


@proves("cli.verify")
@pytest.mark.usefixtures("three_events")
def test_the_first_event_that_was_changed_is_named(fidelio: Fidelio, home: Path) -> None:
    database = apsw.Connection(str(home / "ledger.db"))
    database.execute("UPDATE events SET body = replace(body, 'aria', 'solo') WHERE seq = 2")
    database.close()

    one, every = fidelio("verify", SESSION), fidelio("verify", "--all")

    assert (one.returncode, every.returncode) == (3, 3)
    assert f"Session {SESSION} does not verify: event 2 has a body that differs" in one.stderr
    assert every.stdout == "0 of 1 sessions hold.\n"


@proves("cli.verify")
@pytest.mark.usefixtures("three_events")
def test_a_cut_tail_is_found_with_a_head_that_was_kept(fidelio: Fidelio, home: Path) -> None:
    head = json.loads(fidelio("verify", SESSION, "--json").stdout)["sessions"][0]["head"]
    database = apsw.Connection(str(home / "ledger.db"))
    ((previous,),) = database.execute("SELECT hash FROM events WHERE seq = 2")
    database.execute("DELETE FROM events WHERE seq = 3")
    database.execute("UPDATE sessions SET last_seq = 2, head = ?", (previous,))
    database.close()

    without, with_head = fidelio("verify", SESSION), fidelio("verify", SESSION, "--head", head)

    assert without.returncode == 0
    assert with_head.returncode == 3
    assert "the chain does not reach it" in with_head.stderr


@proves("cli.verify", "cli.errors")
def test_verify_says_what_it_needs(fidelio: Fidelio) -> None:
    neither, unknown, bad_head = fidelio("verify"), fidelio("verify", "nobody"), fidelio("verify", "x", "--head", "zz")

    assert (neither.returncode, neither.stderr) == (
        2,
        "fidelio: verify needs a session or --all, and not both. `fidelio sessions` lists the sessions.\n",
    )
    assert unknown.returncode == 4
    assert bad_head.returncode in (2, 4)


@proves("cli.record", "cli.json")
@pytest.mark.usefixtures("three_events")
def test_sessions_and_events_are_listed_as_text_and_as_json(fidelio: Fidelio) -> None:
    listed = json.loads(fidelio("sessions", "--json").stdout)["items"]
    lines = [json.loads(line) for line in fidelio("events", "opera", "--after", "1", "--json").stdout.splitlines()]

    assert (listed[0]["id"], listed[0]["name"], listed[0]["events"]) == (SESSION, "opera", 3)
    assert [line["body"]["text"] for line in lines] == ["the aria", "finale"]
    assert fidelio("sessions").stdout.splitlines()[-1].split()[:4] == [SESSION, "workflow", "opera", "active"]
    assert fidelio("sessions", "--status", "completed", "--kind", "workflow").stdout == "No such sessions.\n"
    assert "a fine overture" in fidelio("events", SESSION).stdout


@proves("cli.record", "cli.json")
@pytest.mark.usefixtures("three_events")
def test_a_find_says_where_and_why(fidelio: Fidelio) -> None:
    (hit,) = json.loads(fidelio("search", "overture", "--json").stdout)["items"]

    assert (hit["session"], hit["seq"]) == (SESSION, 1)
    assert [(match["field"], match["terms"]) for match in hit["matches"]] == [("text", ["overture"])]
    assert "overture" in fidelio("search", "overture").stdout
    assert fidelio("search", "nowhere").stdout == "Nothing found.\n"


@proves("cli.record")
def test_an_empty_ledger_says_what_to_do(fidelio: Fidelio, home: Path) -> None:
    home.mkdir()

    assert fidelio("sessions").stdout == "No sessions yet. `fidelio tour` creates one.\n"
    assert fidelio("inbox").stdout.startswith("Nothing waits for you in ")


@proves("cli.verify")
@pytest.mark.usefixtures("three_events")
def test_all_sessions_together_must_have_every_head_that_was_kept(fidelio: Fidelio, home: Path) -> None:
    head = json.loads(fidelio("verify", SESSION, "--json").stdout)["sessions"][0]["head"]
    bad, there = fidelio("verify", "--all", "--head", "zz"), fidelio("verify", "--all", "--head", head)
    database = apsw.Connection(str(home / "ledger.db"))
    database.execute("DELETE FROM events; DELETE FROM sessions")
    database.close()
    gone = fidelio("verify", "--all", "--head", head)
    data = json.loads(fidelio("verify", "--all", "--head", head, "--json").stdout)

    assert (bad.returncode, there.returncode, gone.returncode) == (2, 0, 3)
    assert f"No session contains the head {head}." in gone.stderr
    assert (data["holds"], data["missing_heads"]) == (False, [head])


@proves("inbox.lists", "cli.errors")
@pytest.mark.usefixtures("three_events")
def test_questions_of_a_session_that_does_not_exist_are_an_error(fidelio: Fidelio) -> None:
    unknown, known = fidelio("inbox", "--session", "nope"), fidelio("inbox", "--session", "opera")
    watched = fidelio("inbox", "--session", "nope", "--watch")

    assert (unknown.returncode, watched.returncode) == (4, 4)
    assert (known.returncode, known.stdout.count("Nothing like that waits for you in ")) == (0, 1)


@proves("cli.hyphen-names")
@pytest.mark.parametrize("name", ["--help", "-x"])
async def test_every_command_about_a_session_takes_a_name_that_looks_like_an_option(
    home: Path, fidelio: Fidelio, name: str
) -> None:
    created = Change(session=SESSION, create=NewSession(kind="workflow", name=name), events=(NewEvent(type="session.started"),))
    async with await open_ledger(Home(home).ensure().ledger) as ledger:
        await ledger.commit(created)

    commands = [("events", "--json", "--"), ("verify", "--json", "--"), ("trace", "--json", "--"), ("report", "--json", "--")]
    for command in [*commands, ("inbox", "--session"), ("search", "started", "--session"), ("sessions", "--end")]:
        named, by_id = fidelio(*command, name), fidelio(*command, SESSION)
        assert (named.returncode, named.stdout, named.stderr) == (by_id.returncode, by_id.stdout, by_id.stderr), command
        assert "Usage:" not in named.stdout
        assert "is called" not in named.stderr
