"""What leads a session after the files of its definition have changed, vanished, or cannot be read."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.definitions.models.workflow import parse_snapshot
from fidelio.definitions.reading.document import read_text
from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.surfaces.mcp.dialects import load_tools
from fidelio.workflows import session_definition
from fidelio.workflows.report import Report, report_session
from tests.definitions.test_library_errors import withheld
from tests.dialects.conftest import playing
from tests.dialects.gates.conftest import payload
from tests.support import proves
from tests.support.tool_calls import call_tool
from tests.workflows.conftest import list_events

LEADS = "This session goes on with the definition that it began with, from the ledger."
Loses = Callable[[Path], None]


def without_the_workflow(library: Path) -> None:
    shutil.rmtree(library / "score")


def with_a_broken_manifest(library: Path) -> None:
    (library / "score/workflow.yaml").write_text("id: [\n")


def without_the_activity(library: Path) -> None:
    (library / "score/activities/01-tune.yaml").unlink()


def without_the_next_activity(library: Path) -> None:
    (library / "score/activities/02-play.yaml").unlink()


LOSSES = [without_the_workflow, with_a_broken_manifest, without_the_activity]


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def read_toon(text: str) -> Any:
    return read_text(text, "served.toon").data


async def load_report(settings: Settings, token: str) -> Report:
    async with await open_ledger(settings.ledger) as ledger:
        return await report_session(ledger, payload(token)["sid"])


@proves("snapshot.advise", "snapshot.origin")
@pytest.mark.parametrize("loses", LOSSES)
async def test_the_snapshot_leads_where_the_files_cannot(settings: Settings, library: Path, loses: Loses) -> None:
    async with playing(settings, library) as play:
        token = await play.at("tune")
        before = await play("get_activity", session_token=token)
        loses(library)
        text = await play("get_activity", session_token=token)
        moved = await play("next_activity", session_token=text.token, activity_id="bow")
        status = await play("get_workflow_status", session_token=moved.token)
    report = await load_report(settings, token)

    assert before.meta["definition"] == {"source": "files", "drift": []}
    assert text.meta["definition"]["source"] == "snapshot"
    assert text.warnings == text.meta["definition"]["drift"]
    assert text.warnings[-1].endswith(LEADS)
    assert text.warnings[-1].startswith("The files cannot be used: ")
    document: Any = read_toon(text.text.partition("\n\n")[2])
    assert [step["id"] for step in document["steps"]] == ["hear", "ask", "soften", "oil"]
    assert "ownerWorkflow" not in document
    assert moved.json["activity_id"] == "bow"
    assert status.json["workflow"]["title"] == "The score"
    assert report.snapshot_calls >= 2
    assert any(LEADS in sentence for sentence in report.drift)


@proves("snapshot.advise")
@pytest.mark.parametrize("dialect", ["gates", "navigator"])
@pytest.mark.parametrize("loses", LOSSES)
async def test_the_other_dialects_go_on_with_the_snapshot(
    settings: Settings, library: Path, dialect: str, loses: Loses
) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        if dialect == "gates":
            token = (await play("start_session", workflow_id="score", agent_id="a")).token
            loses(library)
            entered = await play("next_activity", session_token=token, activity_id="tune")
            again = await play("get_workflow", session_token=token)
            assert entered.json["pending_checkpoints"][0]["checkpoint_id"] == "how"
            assert again.is_error
            assert "unresolved checkpoint" in again.text
            reply = entered
        else:
            state = (await play("nav_start", workflow_id="score")).json["state"]
            loses(library)
            answer = {"action": "respond_to_checkpoint", "checkpoint_id": "encore", "option_id": "none"}
            reply = await play("nav_action", state=state, **answer)
            assert reply.json["position"]["activity"]["id"] == "tune"
    assert reply.meta["definition"]["source"] == "snapshot"
    assert reply.warnings[-1].endswith(LEADS)


@proves("snapshot.advise")
async def test_changed_files_lead_where_moves_are_advised(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        token = await play.at("tune")
        edit(library / "score/activities/01-tune.yaml", "name: Hear the A", "name: Hear the B")
        text = await play("get_activity", session_token=token)
    report = await load_report(settings, token)

    assert "Hear the B" in text.text
    assert text.meta["definition"]["source"] == "files"
    assert "the definition has changed since the session started" in text.warnings[0]
    assert (report.drift, report.snapshot_calls) == (text.warnings, 0)


@proves("snapshot.advise")
async def test_an_activity_that_only_the_snapshot_has_can_be_entered(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        token = await play.at("tune")
        without_the_next_activity(library)
        entered = await play("next_activity", session_token=token, activity_id="play")
        text = await play("get_activity", session_token=entered.token)
        unknown = await play("next_activity", session_token=text.token, activity_id="sing")

    assert entered.json["activity_id"] == "play"
    assert text.meta["definition"]["source"] == "snapshot"
    assert unknown.is_error
    assert "Activity not found: sing in workflow score." in unknown.text


@proves("snapshot.enforce")
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("01-tune.yaml", "    answered_by: person\n", ""),
        ("01-tune.yaml", "  - {id: hear, name: Hear the A, skill: listen}\n", ""),
        ("01-tune.yaml", "transitions:\n", "transitions:\n  - {to: workflow-end, isDefault: true}\n"),
        ("02-play.yaml", "id: play", "id: sing"),
    ],
)
async def test_no_edit_has_an_effect_where_moves_are_enforced(
    settings: Settings, library: Path, file: str, old: str, new: str
) -> None:
    async with playing(settings, library, fidelity="enforce") as play:
        token = await play.at("tune")
        edit(library / "score/activities" / file, old, new)
        text = await play("get_activity", session_token=token)
        ended = await play("next_activity", session_token=text.token, activity_id="__terminal__")
        yielded = await play("yield_checkpoint", session_token=text.token, checkpoint_id="conductor")
        answered = await play("respond_checkpoint", checkpoint_handle=yielded.token, option_id="begin")

    document: Any = read_toon(text.text.partition("\n\n")[2])
    assert len(document["steps"]) == 4
    assert text.meta["definition"]["source"] == "snapshot"
    assert "the definition has changed since the session started" in text.warnings[0]
    assert text.warnings[-1] == LEADS
    assert ended.is_error
    assert answered.is_error
    assert "person" in answered.text


@proves("snapshot.enforce")
@pytest.mark.parametrize("loses", [*LOSSES, without_the_next_activity])
async def test_deleting_files_opens_no_end_where_moves_are_enforced(settings: Settings, library: Path, loses: Loses) -> None:
    async with playing(settings, library, fidelity="enforce") as play:
        token = await play.at("tune")
        before = await play("get_workflow_status", session_token=token)
        loses(library)
        ended = await play("next_activity", session_token=token, activity_id="__terminal__")
        status = await play("get_workflow_status", session_token=token)

    assert ended.is_error
    assert status.json["transitions"] == before.json["transitions"]
    assert await list_events(settings, "session.completed") == []


@proves("snapshot.enforce")
async def test_a_restarted_server_leads_by_the_same_snapshot(settings: Settings, library: Path) -> None:
    async with playing(settings, library, fidelity="enforce") as play:
        token = await play.at("tune")
    without_the_workflow(library)
    async with playing(settings, library) as play:
        taken = await play("start_session", session_token=token, workflow_id="score")
        text = await play("get_workflow", session_token=taken.token, summary=False)

    assert taken.json["workflow"]["title"] == "The score"
    assert text.meta["definition"]["source"] == "snapshot"
    document: Any = read_toon(text.text.rpartition("\n\n")[2])
    assert document["activities"] == ["tune", "play", "bow"]


@proves("snapshot.enforce")
async def test_an_activity_is_found_under_the_same_names_in_files_and_snapshot(settings: Settings, library: Path) -> None:
    async with playing(settings, library, fidelity="enforce") as play:
        token = await play.start("score")
        edit(library / "score/workflow.yaml", "version: 1.2.3", "version: 1.2.4")
        mistyped = await play("next_activity", session_token=token, activity_id="tunee")
        entered = await play("next_activity", session_token=token, activity_id=" tune ")

    assert "Did you mean tune?" in mistyped.text
    assert entered.json["activity_id"] == "tune"


@proves("snapshot.nowhere")
async def test_a_snapshot_that_cannot_be_read_counts_as_missing(
    settings: Settings, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_definition, "parse_snapshot", lambda _: parse_snapshot(b'{"id": 1}'))
    async with playing(settings, library, fidelity="enforce") as play:
        token = await play.at("tune")
        without_the_workflow(library)
        refused = await play("get_activity", session_token=token)

    assert "the ledger has no copy of it" in refused.text


@proves("snapshot.nowhere", "cancel.person")
@pytest.mark.parametrize("fidelity", ["advise", "enforce"])
async def test_without_files_and_snapshot_the_error_says_what_to_do(
    settings: Settings, library: Path, monkeypatch: pytest.MonkeyPatch, fidelity: Any
) -> None:
    async def load_nothing(*_: Any) -> None:
        return None

    async with playing(settings, library, fidelity=fidelity) as play:
        token = await play.at("tune")
        kept = (library / "score/workflow.yaml").read_text()
        with monkeypatch.context() as erased:
            erased.setattr(session_definition, "_load_snapshot", load_nothing)
            with_a_broken_manifest(library)
            refused = await play("next_activity", session_token=token, activity_id="bow")
            status = await play("get_workflow_status", session_token=token)
        (library / "score/workflow.yaml").write_text(kept)
        again = await play("get_activity", session_token=token)

    assert refused.is_error
    assert "the ledger has no copy of it" in refused.text
    assert f"fidelio sessions --end {payload(token)['sid']}" in refused.text
    assert status.json["workflow"] == {"id": "score", "version": "1.2.3"}
    assert again.meta["definition"] == {"source": "files", "drift": []}


@proves("snapshot.cache")
async def test_a_snapshot_is_parsed_once(settings: Settings, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = list[bytes]()

    def count(blob: bytes) -> Any:
        parsed.append(blob)
        return parse_snapshot(blob)

    monkeypatch.setattr(session_definition, "parse_snapshot", count)
    monkeypatch.setattr(session_definition, "MAX_SNAPSHOTS", 1)
    async with playing(settings, library) as play:
        score, solo = await play.at("tune"), await play.start("solo")
        without_the_workflow(library)
        (library / "solo.yaml").unlink()
        for token in (score, score, solo, score):
            assert (await play("get_workflow", session_token=token)).meta["definition"]["source"] == "snapshot"

    assert len(parsed) == 3


@proves("reach.faults")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
@pytest.mark.parametrize(
    ("function", "place"),
    [
        ("scandir", "."),
        ("open", "score/workflow.yaml"),
        ("scandir", "score/activities"),
        ("open", "score/activities/01-tune.yaml"),
    ],
)
async def test_a_passing_fault_is_named_and_passes(
    settings: Settings, library: Path, monkeypatch: pytest.MonkeyPatch, function: str, place: str, dialect: str
) -> None:
    async with playing(settings, library) as play, playing(settings, library, dialect=dialect) as again:
        token = await play.at("tune")
        with monkeypatch.context() as fault:
            withheld(fault, function, library / place, errno.EMFILE)
            moved = await again("next_activity", session_token=token, activity_id="bow")
        after = await play("get_activity", session_token=moved.token)

    (said,) = [warning for warning in moved.warnings if LEADS in warning]
    assert "Too many open files" in said
    assert "deleted" not in said
    assert str(library) not in said
    assert after.meta["definition"] == {"source": "files", "drift": []}


@proves("reach.private")
async def test_a_state_does_not_say_where_a_server_keeps_its_files(settings: Settings, library: Path) -> None:
    async with Application(settings, [str(library)]) as app:
        reply: Any = await call_tool(load_tools("navigator", app), "nav_start", {"workflow_id": "solo"})
        claims: Any = (await app.workflows()).unit.open_token(json.loads(reply.text)["state"])
    async with await open_ledger(settings.ledger) as ledger:
        report = await report_session(ledger, claims.sid)
    (carried,) = claims.carried_sessions()

    assert (carried.record.workflow, carried.record.found_in) == ("solo", "")
    assert report.found_in == str(library)
