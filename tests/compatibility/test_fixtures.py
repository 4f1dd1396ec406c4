"""Homes that earlier versions have written: the present code opens, verifies and continues every session in them.

Each folder in `fixtures/` was written by the version in its name; `write_fixtures` says how. The tests open a copy in another
directory than the one that it was written in, through the command line and MCP only.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.compatibility.program import Json, Program
from tests.compatibility.write_fixtures import CONDUCT, FIXTURES, PROJECT, act, finish_nested
from tests.support import proves

VERSIONS = sorted(place.name for place in FIXTURES.iterdir() if place.is_dir())


@pytest.fixture(params=VERSIONS)
def fixture(request: pytest.FixtureRequest) -> Path:
    return FIXTURES / str(request.param)


@pytest.fixture
def program(fixture: Path, tmp_path: Path) -> Program:
    """The command line over a copy of the home, with the modes that git does not keep."""
    home = tmp_path / "home"
    shutil.copytree(fixture / "home", home)
    for place in (home, *home.rglob("*")):
        place.chmod(0o700 if place.is_dir() else 0o600)
    return Program(home)


@pytest.fixture
def tokens(fixture: Path) -> Json:
    found: Json = json.loads((fixture / "tokens.json").read_text("utf-8"))
    return found


def session_of(program: Program, status: str, kind: str = "workflow") -> list[str]:
    return [one["id"] for one in program.json("sessions", "--kind", kind, "--status", status)["items"]]


@proves("compatibility.home")
def test_the_ledger_of_an_earlier_version_verifies(program: Program) -> None:
    found = program.json("verify", "--all")

    assert found["holds"]
    assert len(found["sessions"]) == 19
    assert all(session["holds"] and session["events"] for session in found["sessions"])


@proves("compatibility.home")
def test_every_session_of_an_earlier_version_is_listed_reported_and_found(program: Program) -> None:
    listed = program.json("sessions")["items"]

    assert {(one["kind"], one["status"]) for one in listed} == {
        ("workflow", "active"),
        ("workflow", "blocked"),
        ("workflow", "completed"),
        ("agent", "succeeded"),
        ("agent", "failed"),
        ("agent", "stopped"),
        ("agent", "running"),
    }
    completed = session_of(program, "completed")[-1]
    assert program.json("report", completed)
    assert program.json("trace", completed)
    assert program.lines("events", completed)
    assert program.json("search", "Waiting")["items"]


@proves("compatibility.tokens")
def test_a_blocked_session_of_an_earlier_version_is_answered_by_a_person_and_goes_on(program: Program, tokens: Json) -> None:
    with program.serve() as server:
        shown = server("present_checkpoint", checkpoint_handle=tokens["yielded"]["checkpoint_handle"])
        refused = server.attempt("next_activity", session_token=tokens["yielded"]["session_token"], activity_id="write")
    assert "Which tone?" in shown.text
    assert "Active checkpoint" in refused.text
    waiting = program.json("inbox")["items"]
    assert [one["question"] for one in waiting] == ["Which tone?", "Which tone?"]
    for one in waiting:
        program("answer", one["id"], "short")

    with program.serve() as server:
        # The token is older than the question: any genuine token opens the current record.
        resumed = server("resume_checkpoint", session_token=tokens["yielded"]["early_token"])
        moved = server("next_activity", session_token=resumed.token, activity_id="write")
    assert moved.json["activity_id"] == "write"
    assert program.json("inbox")["items"] == []


@proves("compatibility.tokens")
def test_a_session_of_an_earlier_version_keeps_the_answer_and_comes_to_its_end(program: Program, tokens: Json) -> None:
    with program.serve() as server:
        token = server("resume_checkpoint", session_token=tokens["answered"]["session_token"]).token
        status = server("get_workflow_status", session_token=token).json
        for activity in ("write", "close", "__terminal__"):
            token = server("next_activity", session_token=token, activity_id=activity).token
        ended = server("get_workflow_status", session_token=token).json

    assert status["variables"]["tone"] == "long"
    assert status["variables"]["chapters"] == ["one", "two"]
    assert ended["status"] == "completed"
    assert program.json("verify", "--all")["holds"]


@proves("compatibility.tokens")
def test_trace_tokens_of_an_earlier_version_verify(program: Program, tokens: Json) -> None:
    known = tokens["completed"]
    with program.serve() as server:
        traced = server("get_trace", session_token=known["session_token"], trace_tokens=known["trace_tokens"])

    assert [event["name"] for event in traced.json["events"]] == ["start_session", "next_activity", "next_activity"]


@proves("compatibility.tokens")
def test_a_child_session_of_an_earlier_version_ends_and_its_parent_goes_on(program: Program, tokens: Json) -> None:
    with program.serve() as server:
        server("next_activity", session_token=tokens["parent"]["child_token"], activity_id="__terminal__")
        moved = server("next_activity", session_token=tokens["parent"]["session_token"], activity_id="gather")

    assert moved.json["activity_id"] == "gather"


@proves("compatibility.tokens")
def test_a_gates_session_of_an_earlier_version_goes_on(program: Program, tokens: Json) -> None:
    token = tokens["gates"]["session_token"]
    with program.serve("--dialect", "gates") as server:
        refused = server.attempt("next_activity", session_token=token, activity_id="write")
        answered = server("respond_checkpoint", session_token=token, checkpoint_id="tone", option_id="short")
        moved = server("next_activity", session_token=answered.token, activity_id="write")

    assert "unresolved checkpoint" in refused.text
    assert moved.json["id"] == "write"


@proves("compatibility.tokens")
def test_a_navigator_state_of_an_earlier_version_goes_on(program: Program, tokens: Json) -> None:
    with program.serve("--dialect", "navigator") as server:
        state = act(server, tokens["navigator"]["state"], "complete_step", step_id="ask")
        moved = server("nav_action", state=state, action="transition", activity_id="write").json
        ended = finish_nested(server, tokens["nested"]["state"])

    assert moved["position"]["activity"]["id"] == "write"
    assert ended["status"] == "completed"
    assert program.json("verify", "--all")["holds"]


@proves("compatibility.tokens")
def test_a_state_of_an_earlier_version_goes_on_where_the_ledger_is_lost(program: Program, tokens: Json) -> None:
    (program.home / "ledger.db").unlink()
    with program.serve("--dialect", "navigator") as server:
        ended = finish_nested(server, tokens["nested"]["state"])

    assert ended["status"] == "completed"


@proves("compatibility.home")
def test_an_agent_session_of_an_earlier_version_is_resumed(program: Program) -> None:
    first = program("agents", "result", "first")
    program("agents", "resume", "first", "Again.")

    assert first.strip() == "Turn 1: Hello."
    assert program("agents", "result", "first").strip() == "Turn 2: Again."
    assert program("agents", "result", "first", "--run", "1").strip() == "Turn 1: Hello."


@proves("compatibility.home")
def test_runs_of_an_earlier_version_that_ended_unwatched_are_read_from_their_spools(program: Program) -> None:
    with program.serve("--toolset", "orchestrator") as server:
        server("wait_for_agent_sessions", session_names=["alone", "program"], project_dir=PROJECT)

    assert program("agents", "result", "alone").strip() == "Finished alone."
    assert program("agents", "result", "program").split() == ["Started.", "Done."]
    said = [one for one in program.lines("agents", "events", "alone") if one["type"] == "agent.said"]
    assert len(said) == 1
    assert not any(program.home.glob("runs/*/*/*"))


@proves("compatibility.home")
def test_a_conducted_run_of_an_earlier_version_goes_on_to_its_end(program: Program, tokens: Json) -> None:
    lines = program.lines(*CONDUCT)

    assert (lines[0]["session"], lines[0]["goes_on"]) == (tokens["conducted"]["session"], True)
    assert lines[-1]["kind"] == "completed"


@proves("compatibility.tokens")
def test_the_key_ring_of_an_earlier_version_can_be_rotated(program: Program, tokens: Json) -> None:
    program("keys", "--rotate")
    with program.serve() as server:
        opened = server("get_workflow_status", session_token=tokens["completed"]["session_token"])

    assert opened.json["status"] == "completed"


@proves("compatibility.home")
def test_the_fixtures_hold_no_path_of_the_machine_that_wrote_them(fixture: Path) -> None:
    content = b"".join(file.read_bytes() for file in fixture.rglob("*") if file.is_file())

    assert b"/site-packages" not in content
    assert b"/root/" not in content
    assert b"/Users/" not in content
