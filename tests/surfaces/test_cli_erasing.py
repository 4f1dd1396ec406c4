"""`fidelio sessions --delete` and `fidelio redact`: a person erases sessions and events."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fidelio.engine.record import Record, encode_record, fold
from fidelio.ledger import open_ledger
from fidelio.ledger.long_text import store_text
from fidelio.ledger.model import Change, CloseRequest, NewEvent, NewSession, OpenRequest, PutDocument
from fidelio.ledger.redaction import EventView
from fidelio.processes.table import AGENT_MARKER
from tests.support import proves
from tests.surfaces.conftest import Fidelio

WHY = ("--reason", "On request.")
AGENT = {AGENT_MARKER: "s_000000000000.1"}
SECRET = "the-secret-word"


def commit(home: Path, *changes: Change) -> None:
    async def work() -> None:
        async with await open_ledger(str(home / "ledger.db")) as ledger:
            await ledger.commit(*changes)

    home.mkdir(mode=0o700, exist_ok=True)
    asyncio.run(work())


# The event after which a workflow session has a status.
LAST = {
    "completed": NewEvent(type="session.completed"),
    "cancelled": NewEvent(type="session.cancelled"),
    "blocked": NewEvent(type="checkpoint.yielded", body={"checkpoint": "ask", "request": "r_1"}),
}


def change(session: str, status: str, *events: NewEvent, kind: str = "workflow", **more: str) -> Change:
    """A new session with these events and this status; that of a workflow has a record that follows from them."""
    create = NewSession(kind=kind, **more)  # type: ignore[arg-type]  # the kinds of the tests exist
    if kind != "workflow":
        return Change(session=session, create=create, events=(NewEvent(type="session.created"), *events), status=status)
    started = NewEvent(type="session.started", body={"workflow": "greeting", "version": "1.0.0", "definition": "0" * 64})
    all_events = (started, *events, *([LAST[status]] if status in LAST else []))
    views = [EventView(seq, event.type, 0, dict(event.body)) for seq, event in enumerate(all_events, start=1)]
    record = fold(Record(), views)
    assert record.status == status
    return Change(session=session, create=create, events=all_events, status=status, record=encode_record(record))


def statuses(fidelio: Fidelio) -> dict[str, str]:
    pages = [fidelio("sessions", "--json", *status) for status in ((), ("--status", "deleted"))]
    return {each["id"]: each["status"] for page in pages for each in json.loads(page.stdout)["items"]}


@proves("cli.delete-session")
def test_a_person_deletes_a_session_with_its_children_and_the_record_says_why(fidelio: Fidelio, home: Path) -> None:
    commit(
        home,
        change("root", "completed", NewEvent(type="note", body={"text": SECRET})),
        change("child", "cancelled", parent="root"),
        change("grandchild", "completed", parent="child"),
        change("other", "completed"),
    )
    done = fidelio("sessions", "--delete", "root", *WHY, "--yes", "--json")
    again = fidelio("sessions", "--delete", "root", *WHY, "--yes")
    last = json.loads(fidelio("events", "child", "--json").stdout.splitlines()[-1])

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"deleted": ["root", "child", "grandchild"], "retained_worktrees": []}
    assert statuses(fidelio) == {"root": "deleted", "child": "deleted", "grandchild": "deleted", "other": "completed"}
    assert (last["type"], last["body"]["reason"]) == ("session.deleted", "On request.")
    assert last["actor"].startswith("person:")
    assert (again.returncode, "was deleted before" in again.stderr) == (4, True)
    assert SECRET.encode() not in (home / "ledger.db").read_bytes()
    assert fidelio("verify", "--all").stdout == "4 of 4 sessions hold.\n"


@proves("cli.delete-session")
def test_the_workers_of_a_conducted_session_are_deleted_with_it(fidelio: Fidelio, home: Path) -> None:
    run, other = "s_00000000000a", "s_00000000000b"
    commit(
        home,
        change(run, "completed"),
        change(other, "completed"),
        change("child", "completed", parent=run),
        change("w1", "succeeded", kind="agent", name=f"{run}-1-greet"),
        change("helper", "succeeded", kind="agent", parent="w1"),
        change("w2", "succeeded", kind="agent", name=f"{other}-1-greet"),
        change("named", "succeeded", kind="agent", name="child-1-greet"),
    )
    done = fidelio("sessions", "--delete", run, *WHY, "--yes", "--json")

    assert json.loads(done.stdout)["deleted"] == [run, "child", "w1", "helper"]
    assert {name for name, status in statuses(fidelio).items() if status != "deleted"} == {other, "w2", "named"}


@proves("cli.delete-session")
@pytest.mark.parametrize(
    ("kind", "status", "remedy"),
    [
        ("workflow", "blocked", "sessions --end child"),
        ("agent", "running", "agents stop child"),
        ("runtime", "active", "child"),
    ],
)
def test_what_works_or_waits_is_named_and_nothing_is_deleted(
    fidelio: Fidelio, home: Path, kind: str, status: str, remedy: str
) -> None:
    commit(home, change("root", "completed"), change("child", status, kind=kind, parent="root", name="--help"))
    before = statuses(fidelio)
    refused = fidelio("sessions", "--delete", "root", *WHY, "--yes")

    assert refused.returncode == 2
    assert f"--help (child) is {status}" in refused.stderr
    assert remedy in refused.stderr
    assert statuses(fidelio) == before


@proves("cli.delete-session")
@pytest.mark.parametrize("form", [["--delete", "--help"], ["--delete=--help"], ["--delete", "s_named"]])
def test_a_session_is_found_by_a_name_in_any_project_and_by_its_id(fidelio: Fidelio, home: Path, form: list[str]) -> None:
    commit(home, change("s_named", "completed", name="--help", namespace="project"))
    done = fidelio("sessions", *form, *WHY, "--yes")

    assert done.returncode == 0, done.stderr
    assert statuses(fidelio) == {"s_named": "deleted"}


@proves("cli.delete-session")
def test_a_name_of_several_projects_is_refused_with_the_ids(fidelio: Fidelio, home: Path) -> None:
    commit(home, *(change(f"s_{number}", "completed", name="same", namespace=f"p{number}") for number in (1, 2)))
    refused = fidelio("sessions", "--delete", "same", *WHY, "--yes")

    assert (refused.returncode, set(statuses(fidelio).values())) == (2, {"completed"})
    assert "s_2, s_1" in refused.stderr


@proves("cli.delete-session", "cli.redact")
@pytest.mark.parametrize("command", [["sessions", "--delete", "root"], ["redact", "root", "--event", "2"]])
def test_erasing_needs_a_person_a_reason_and_a_yes(fidelio: Fidelio, home: Path, command: list[str]) -> None:
    commit(home, change("root", "completed", NewEvent(type="note", body={"text": SECRET})))
    as_agent = fidelio(*command, *WHY, "--yes", **AGENT)
    without_reason = fidelio(*command, "--yes")
    blank = fidelio(*command, "--yes", "--reason", "  ")
    not_asked = fidelio(*command, *WHY)

    assert [each.returncode for each in (as_agent, without_reason, blank, not_asked)] == [2, 2, 2, 2]
    assert "runs below an agent" in as_agent.stderr
    assert "needs a reason" in without_reason.stderr
    assert "there is no terminal to ask at" in not_asked.stderr
    assert SECRET in fidelio("events", "root").stdout


@proves("cli.redact")
def test_a_text_is_erased_from_bodies_and_from_long_texts(fidelio: Fidelio, home: Path) -> None:
    long = store_text("x" * 10_000 + SECRET)
    commit(
        home,
        msgspec.structs.replace(
            change(
                "root",
                "completed",
                NewEvent(type="note", body={"deep": [{"text": f"before {SECRET} after"}]}),
                NewEvent(type="said", body={"said": long.body}, blobs=long.digests),
                NewEvent(type="note", body={"text": "harmless"}),
                NewEvent(type="note", body={SECRET: 1}),
            ),
            blobs=long.blobs,
        ),
    )
    planned = fidelio("redact", "root", "--text", SECRET, "--dry-run", "--json")
    shown = fidelio("redact", "root", "--text", SECRET, "--dry-run").stdout
    assert SECRET in fidelio("search", SECRET).stdout
    done = fidelio("redact", "root", "--text", SECRET, *WHY, "--yes", "--json")
    nothing = fidelio("redact", "root", "--text", SECRET, *WHY, "--yes")
    last = json.loads(fidelio("events", "root", "--json").stdout.splitlines()[-1])

    assert [event["seq"] for event in json.loads(planned.stdout)["events"]] == [2, 3, 5]
    assert f"before {SECRET} after" in shown
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"session": "root", "erased": [2, 3, 5], "recorded": [7], "unerasable": [], "remains": []}
    assert (last["type"], last["body"]["reason"], last["actor"][:7]) == ("event.redacted", "On request.", "person:")
    assert "has no such event that is not erased already" in nothing.stdout
    assert fidelio("search", SECRET).stdout == "Nothing found.\n"
    assert SECRET.encode() not in (home / "ledger.db").read_bytes()
    assert "3 of them redacted" in fidelio("verify", "root").stdout


@proves("cli.redact")
def test_events_are_erased_by_number_and_by_a_name_that_looks_like_an_option(fidelio: Fidelio, home: Path) -> None:
    commit(home, change("root", "active", *(NewEvent(type="note", body={"n": n}) for n in range(3)), name="--help"))
    unknown = fidelio("redact", "--event", "2", "--event", "99", *WHY, "--yes", "--", "--help")
    done = fidelio("redact", "--event", "2", "--event", "4", *WHY, "--yes", "--", "--help")
    redacted = [
        json.loads(line)["body"] == {"redacted": True} for line in fidelio("events", "root", "--json").stdout.splitlines()
    ]

    assert (unknown.returncode, "has no event 99" in unknown.stderr) == (2, True)
    assert done.stdout == "2 events of session root erased; event 5 says by whom and why.\n"
    assert redacted == [False, True, False, True, False]


@proves("cli.redact")
def test_what_cannot_be_erased_or_remains_is_named(fidelio: Fidelio, home: Path) -> None:
    said = NewEvent(type="note", body={"text": SECRET}, actor=f"agent:{SECRET}")
    plan = PutDocument(space="plans", path="root", text="about a greeting")
    commit(home, msgspec.structs.replace(change("root", "active", said), documents=(plan,)))
    done = fidelio("redact", "root", "--text", SECRET, *WHY, "--yes")
    # The session needs the name of its workflow to stay where it is.
    needed = fidelio("redact", "root", "--text", "greeting", *WHY, "--yes")
    again = fidelio("redact", "root", "--text", "greeting", *WHY, "--yes")

    assert (done.returncode, "in the actor of events 2. The chain contains it" in done.stderr) == (0, True)
    assert (needed.returncode, again.returncode) == (1, 1)
    for place in ("the record of session root", "event 4, which says what was erased", "document plans/root"):
        assert f"The text is still in {place}." in needed.stderr
    assert again.stderr == needed.stderr
    assert "has no such event that is not erased already" in again.stdout
    assert fidelio("verify", "root").returncode == 0


@proves("cli.redact", "chain.redacted-projections")
def test_a_text_that_only_a_request_contains_is_erased_with_the_request(fidelio: Fidelio, home: Path) -> None:
    question = OpenRequest(id="r_1", kind="checkpoint", key="ask", question=f"Greet {SECRET}?", detail={"why": SECRET})
    commit(home, msgspec.structs.replace(change("root", "blocked"), requests=(question,)))
    redact = ("redact", "root", "--text", SECRET, *WHY, "--yes")
    waiting = fidelio(*redact)
    assert SECRET.encode() in (home / "ledger.db").read_bytes()
    who = {"by": "person:ada", "channel": "cli", "assurance": "local"}
    answered = NewEvent(type="request.answered", body={"request": "r_1", "option": "yes", **who})
    note = {"option": "yes", "note": SECRET}
    answer = CloseRequest(id="r_1", answer=note, by=who["by"], channel=who["channel"], assurance=who["assurance"])
    commit(home, Change(session="root", events=(answered,), requests=(answer,)))
    done = fidelio(*redact, "--json")

    assert (waiting.returncode, "r_1 of this event still waits for an answer" in waiting.stderr) == (2, True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"session": "root", "erased": [2, 3], "recorded": [4], "unerasable": [], "remains": []}
    assert SECRET.encode() not in (home / "ledger.db").read_bytes()
    assert fidelio("verify", "--all").stdout == "1 of 1 sessions hold.\n"


@proves("cli.redact")
@pytest.mark.parametrize("options", [[], ["--event", "1", "--text", "x"], ["--event", "0"], ["--event", "x"]])
def test_other_options_are_refused(fidelio: Fidelio, home: Path, options: list[str]) -> None:
    commit(home, change("root", "completed"))

    assert fidelio("redact", "root", *options, *WHY, "--yes").returncode == 2


@proves("cli.delete-session")
def test_end_and_delete_exclude_each_other(fidelio: Fidelio, home: Path) -> None:
    commit(home, change("root", "completed"))

    assert "exclude each other" in fidelio("sessions", "--end", "root", "--delete", "root").stderr


@proves("cli.delete-session")
def test_a_person_at_a_terminal_is_asked_and_can_say_no(fidelio: Fidelio, home: Path) -> None:
    commit(home, change("root", "completed"))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fidelio", "sessions", "--delete", "root", *WHY]
    environ = {"FIDELIO_HOME": str(home), "PATH": "/usr/bin:/bin", "HOME": str(home)}
    for answer, code, status in (("n\n", 130, "completed"), ("y\n", 0, "deleted")):
        with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as process:
            os.write(ours, answer.encode())
            _, asked = process.communicate(timeout=60)
        assert (process.returncode, statuses(fidelio)["root"]) == (code, status), asked
        assert b"Erase session root for good? [y/N]" in asked


@proves("cli.delete-session")
def test_an_agent_session_is_deleted_by_its_name_with_its_files(fidelio: Fidelio, home: Path) -> None:
    (home / "agents").mkdir(parents=True)
    started = fidelio("agents", "start", "one", SECRET, "-b", "echo")
    (session,) = statuses(fidelio)
    files = home / "runs" / session
    files.mkdir(parents=True, exist_ok=True)
    done = fidelio("sessions", "--delete", "one", *WHY, "--yes", "--json")

    assert started.stdout == f"{SECRET}\n"
    assert json.loads(done.stdout)["deleted"] == [session]
    assert statuses(fidelio) == {session: "deleted"}
    assert not files.exists()
    assert json.loads(fidelio("events", session, "--json").stdout.splitlines()[-1])["body"]["reason"] == "On request."


@proves("cli.redact", "chain.redacted-projections")
def test_the_prompt_and_the_results_of_an_agent_are_erased_everywhere(fidelio: Fidelio, home: Path) -> None:
    (home / "agents").mkdir(parents=True)
    fidelio("agents", "start", "one", SECRET, "-b", "echo")
    fidelio("search", SECRET)
    done = fidelio("redact", "one", "--text", SECRET, *WHY, "--yes")
    every = fidelio("redact", "one", *(f"--event={seq}" for seq in range(1, 5)), *WHY, "--yes")
    holding = [path for path in home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]

    assert (done.returncode, done.stderr) == (0, "")
    assert every.returncode == 0, every.stderr
    assert holding == []
    assert fidelio("verify", "--all").stdout == "1 of 1 sessions hold.\n"


@proves("cli.redact", "chain.redacted-projections")
def test_every_event_of_a_real_session_can_be_erased(fidelio: Fidelio) -> None:
    session = json.loads(fidelio("tour", "--json").stdout)["session"]["id"]
    before = statuses(fidelio)
    count = len(fidelio("events", session, "--json").stdout.splitlines())
    done = fidelio("redact", session, *(f"--event={seq}" for seq in range(1, count + 1)), *WHY, "--yes")

    assert done.returncode == 0, done.stderr
    assert statuses(fidelio) == before == {session: "cancelled"}
    assert fidelio("verify", "--all").stdout == "1 of 1 sessions hold.\n"
