"""The report of a session of which events were redacted: no difference disappears, and nobody is accused of erased work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.app.records import record_type
from fidelio.engine.record import ANSWERED, CALLED, COMPLETED, ENTERED, STARTED, VARIABLES_SET
from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.workflows.report import report_session
from fidelio.workflows.report.model import Report
from tests.dialects.conftest import playing
from tests.support import proves

WORKFLOW = """
id: tour
version: 1.2.0
title: Tour
initialActivity: one
fidelity: {level}
variables: [{{name: items, type: array}}]
activities:
  - id: one
    version: 1.0.0
    name: One
    loops: [{{id: each, name: Each, type: forEach, over: items, variable: item, steps: [{{id: s, name: S}}]}}]
    transitions: [{{to: two, isDefault: true}}]
  - {{id: two, version: 1.0.0, name: Two}}
"""
MANIFEST = [{"step_id": "s", "output": "a secret", "iteration": number} for number in (1, 2)]


async def report_without(settings: Settings, *types: str) -> Report:
    """Redact the events of these types and return the report of the session."""
    async with await open_ledger(settings.ledger) as ledger:
        ledger.record_type = record_type
        (session,) = (await ledger.sessions()).items
        seqs = [event.seq for event in await ledger.events(session.id) if event.type in types]
        if seqs:
            await ledger.redact(session.id, seqs, actor="person:ada", reason="x")
        return await report_session(ledger, session.id)


async def walk(settings: Settings, library: Path, level: str, manifest: list[dict[str, Any]]) -> None:
    (library / "tour.yaml").write_text(WORKFLOW.format(level=level))
    async with playing(settings, library, dialect="sessions") as play:
        token = (await play("start_session", workflow_id="tour")).token
        token = (await play("next_activity", session_token=token, activity_id="one", variables={"items": ["a", "b"]})).token
        given = {"step_manifest": manifest} if manifest else {}
        token = (await play("next_activity", session_token=token, activity_id="two", **given)).token
        assert not (await play("next_activity", session_token=token, activity_id="__terminal__")).is_error


def unchecked(seq: int) -> str:
    return f"What depends on event {seq} could not be checked because it was redacted."


@proves("report.redacted")
async def test_a_redacted_start_still_shows_workflow_level_and_times(settings: Settings, library: Path) -> None:
    await walk(settings, library, "enforce", MANIFEST)
    whole = await report_without(settings)

    report = await report_without(settings, STARTED)

    assert (report.workflow, report.version, report.fidelity) == ("tour", "1.2.0", "enforce")
    assert (report.started_at, report.ended_at) == (whole.started_at, whole.ended_at)
    assert (whole.differences, report.differences) == ([], [unchecked(1)])


@proves("report.redacted")
async def test_no_difference_is_lost_when_the_first_event_is_redacted(settings: Settings, library: Path) -> None:
    await walk(settings, library, "advise", [])
    before = (await report_without(settings)).differences

    after = (await report_without(settings, STARTED)).differences

    assert len(before) == 2
    assert after == [*before, unchecked(1)]


@proves("report.redacted")
@pytest.mark.parametrize("types", [(ENTERED, COMPLETED), (VARIABLES_SET,)])
async def test_erased_work_could_not_be_checked_and_is_not_called_missing(
    settings: Settings, library: Path, types: tuple[str, ...]
) -> None:
    await walk(settings, library, "enforce", MANIFEST)

    report = await report_without(settings, *types)

    assert report.unchecked
    assert report.differences == [unchecked(seq) for seq in report.unchecked]
    assert "a secret" not in str(report) or ENTERED not in types


@proves("report.redacted")
async def test_a_redacted_event_without_anything_to_compare_is_a_fact(settings: Settings, library: Path) -> None:
    await walk(settings, library, "enforce", MANIFEST)

    report = await report_without(settings, CALLED, ANSWERED)

    assert (report.differences, report.agents) == ([], [])
