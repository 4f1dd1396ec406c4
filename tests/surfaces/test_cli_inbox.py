"""Output of `fidelio inbox`: enough to tell requests apart, and the meaning of each option."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mcp import Client

from fidelio.home import Home
from fidelio.inbox import open_request
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from tests.support import proves
from tests.surfaces.conftest import Connect, Fidelio
from tests.surfaces.test_cli_watch import running
from tests.surfaces.test_end_to_end import call

DETAIL = {"workflow": "ship", "activity": "pack", "checkpoint": "how", "visit": 4, "iteration": 0, "answered_by": "any"}
OPTIONS = ({"id": "fast", "label": "Fast", "description": "By air. " * 20}, {"id": "slow", "label": "Slow", "description": ""})


async def store_request(home: Path, record: dict[str, Any] | None = None, **detail: Any) -> str:
    """Store an open request of a session named `parcel`, and return its id."""
    Home(home).ensure()
    request = open_request("checkpoint", "k", "How shall it go?", OPTIONS, {**DETAIL, **detail})
    create, event = NewSession(kind="workflow", name="parcel"), NewEvent(type="checkpoint.yielded")
    change = Change(session="s_000000000001", create=create, events=(event,), record=record or {}, requests=(request,))
    async with await open_ledger(home / "ledger.db") as ledger:
        await ledger.commit(change)
    return request.id


async def ask_about(client: Client, project: str) -> str:
    started = await call(client, "start_session", workflow_id="hello")
    entering = {"session_token": started["session_token"], "activity_id": "greet", "variables": {"project_name": project}}
    entered = await client.call_tool("next_activity", entering)
    assert not entered.is_error
    token = started["session_token"]
    return str((await call(client, "yield_checkpoint", session_token=token, checkpoint_id="choose-tone"))["request_id"])


@proves("inbox.context")
async def test_two_sessions_that_ask_the_same_are_told_apart_by_what_was_set_in_them(
    connect: Connect, fidelio: Fidelio
) -> None:
    async with connect() as client:
        await ask_about(client, "opera")
        await ask_about(client, "ballet")

    first, second = fidelio("inbox").stdout.strip().split("\n\n")

    assert "in hello / greet / choose-tone\n    Variables:\n    │ project_name=opera\n" in first
    assert "in hello / greet / choose-tone\n    Variables:\n    │ project_name=ballet\n" in second
    assert "A few friendly sentences for somebody who is new here." in first
    assert "Only a person may answer." in first


@proves("inbox.context")
async def test_a_question_names_its_session_its_place_and_what_every_option_means(home: Path, fidelio: Fidelio) -> None:
    request = await store_request(home, iteration=3)

    lines = fidelio("inbox", COLUMNS="80").stdout.splitlines()

    assert lines[0].startswith(f"{request}  checkpoint in session parcel (s_000000000001), waiting ")
    assert lines[1:5] == ["    in ship / pack / how, iteration 3", "    Question:", "    │ How shall it go?", "    Option fast"]
    described = [line.removeprefix("      │ ") for line in lines if line.startswith("      │ ")]
    assert " ".join(described) == f"Fast {'By air. ' * 20}Slow"
    assert "    A person or an agent may answer." in lines
    assert max(len(line) for line in lines if "Answer with: " not in line) <= 80


@proves("inbox.context")
async def test_variables_take_only_one_line(home: Path, fidelio: Fidelio) -> None:
    variables = {"by_itself": 1, "count": 3, "items": ["long"] * 500, "to": "the opera\nin town", "v1": 1, "v2": 2, "v3": 3}
    await store_request(home, {"variables": variables, "set_by": {"by_itself": "entry:pack"}})

    shown = fidelio("inbox").stdout
    (request,) = json.loads(fidelio("inbox", "--json").stdout)["items"]

    start = '    │ count=3, items=["long", "long", "long", "long", "long"…, to='
    (line,) = [line for line in shown.splitlines() if line.startswith(start)]
    assert line == f'{start}"the opera in town" and 3 more'
    assert (request["variables"], request["session_name"], request["detail"]) == (variables, "parcel", DETAIL)


@proves("inbox.context")
async def test_a_default_that_may_be_taken_is_said_with_its_time(home: Path, fidelio: Fidelio) -> None:
    await store_request(home, default_option="slow", auto_advance_ms=3_600_000 + 60_000)

    assert "    Without an answer, slow may be taken in 1 h.\n" in fidelio("inbox").stdout


@proves("inbox.context")
async def test_a_default_whose_time_has_come_may_be_taken_from_now_on(home: Path, fidelio: Fidelio) -> None:
    await store_request(home, default_option="slow", auto_advance_ms=1)

    assert "    Without an answer, slow may be taken from now on.\n" in fidelio("inbox").stdout


@proves("inbox.context")
async def test_what_was_answered_is_not_shown_with_the_variables_of_later(home: Path, fidelio: Fidelio) -> None:
    request = await store_request(home, {"variables": {"to": "town"}})
    fidelio("answer", request, "fast")

    shown = fidelio("inbox", "--all").stdout

    assert "ship / pack / how\n    Question:\n    │ How shall it go?" in shown
    assert "(chosen)" in shown
    assert "may answer" not in shown
    assert "variables" not in json.loads(fidelio("inbox", "--all", "--json").stdout)["items"][0]


@proves("inbox.erased")
async def test_a_question_of_a_deleted_session_says_so_and_is_no_forgery(home: Path, fidelio: Fidelio) -> None:
    request = await store_request(home)
    fidelio("answer", request, "fast")
    async with await open_ledger(home / "ledger.db") as ledger:
        await ledger.erase(["s_000000000001"], actor="me", reason="over")

    shown, compact = fidelio("inbox", "--all").stdout, fidelio("inbox", "--all", "--compact").stdout

    assert "Its session was deleted, and its text with it." in shown
    assert "answered: " in shown
    assert "Its session was deleted" in compact
    assert "changed outside" not in shown + compact
    assert "mismatch" not in json.loads(fidelio("inbox", "--all", "--json").stdout)["items"][0]


@proves("inbox.context")
async def test_an_agent_that_asks_is_named_with_its_project(home: Path, fidelio: Fidelio) -> None:
    Home(home).ensure()
    request = open_request("permission", "k", "May I?", ({"id": "allow", "label": "Yes"},), {"tool": "Bash"})
    create, record = NewSession(kind="agent", name="smith", namespace="n"), {"blueprint": "coder", "project": "/srv/forge"}
    async with await open_ledger(home / "ledger.db") as ledger:
        await ledger.commit(Change(session="s_000000000002", create=create, record=record, requests=(request,)))

    shown = fidelio("inbox").stdout

    assert "permission in session smith (s_000000000002)" in shown
    assert "    agent coder in /srv/forge\n    Question:\n    │ May I?\n" in shown


@proves("inbox.where")
async def test_watching_an_empty_inbox_prints_its_location_and_then_requests(environ: dict[str, str], home: Path) -> None:
    Home(home).ensure()
    async with running(environ, "inbox", "--watch") as lines:
        assert (await lines.readline()).decode() == f"Nothing waits for you in {home} yet.\n"
        request = await store_request(home, {"variables": {"to": "town"}})
        shown = [(await lines.readline()).decode() for _ in range(6)]

    assert shown[0].startswith(f"{request}  checkpoint in session parcel")
    assert shown[1:3] == ["    in ship / pack / how\n", "    Variables:\n"]
    assert shown[3:] == ["    │ to=town\n", "    Question:\n", "    │ How shall it go?\n"]


@proves("inbox.where")
def test_an_empty_inbox_and_an_unknown_request_name_the_home(fidelio: Fidelio, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    empty, unknown = fidelio("inbox"), fidelio("answer", "r_nowhere", "yes")
    elsewhere = fidelio("inbox", FIDELIO_LEDGER=str(tmp_path / "other.db"))

    assert empty.stdout == f"Nothing waits for you in {home}.\n"
    assert elsewhere.stdout == f"Nothing waits for you in {tmp_path / 'other.db'}.\n"
    assert unknown.returncode == 4
    assert f"There is no request 'r_nowhere' in {home}." in unknown.stderr
    assert "--home DIR" in unknown.stderr
