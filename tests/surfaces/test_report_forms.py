"""The report of a session whose chain is valid although an event has another form: an error with a name."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest

from fidelio.engine.record import CHILD_STARTED, FOLDED_TYPES
from fidelio.errors.ledger import LedgerDamaged
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.settings import Settings, load_settings
from fidelio.workflows.report import report_session
from fidelio.workflows.report.builder import _HANDLERS
from tests.support import proves
from tests.surfaces.conftest import Fidelio

SESSION = "s_0123456789ab"
START = {"workflow": "wf", "version": "1.0.0", "definition": "d"}
BEGIN = [
    NewEvent(type="session.started", body=START),
    NewEvent(type="activity.entered", body={"activity": "one"}),
    NewEvent(type="checkpoint.yielded", body={"checkpoint": "ask", "request": "r"}),
]
_NAMES = """
workflow version definition variables by record activity manifest warnings checkpoints step checkpoint request option effect
channel assurance after_ms outcome session iteration loop name aid s drift err reason at parent snapshot items loop_items
pass_context skill
"""
KEYS = _NAMES.split()
VALUES: list[Any] = [None, 7, "r", [], [7], {"a": 1}, [{"a": []}]]


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    return load_settings(environ=environ)


def bodies() -> list[dict[str, Any]]:
    return [{}, *({**dict.fromkeys(KEYS, value), "suspends": True} for value in VALUES)]


async def append(settings: Settings, *events: NewEvent) -> None:
    settings.home.ensure()
    async with await open_ledger(settings.ledger) as ledger:
        await ledger.commit(Change(session=SESSION, create=NewSession(kind="workflow"), events=(*BEGIN, *events)))


@proves("report.other-form")
async def test_no_form_of_an_event_makes_a_report_fail_without_a_name(settings: Settings) -> None:
    await append(settings)
    sentences = list[tuple[str, str]]()
    async with await open_ledger(settings.ledger) as ledger:
        for number, (kind, body) in enumerate(product(sorted({*_HANDLERS, *FOLDED_TYPES}), bodies())):
            session = f"s_{number:012}"
            events = (*BEGIN, NewEvent(type=kind, body=body), NewEvent(type=CHILD_STARTED, body={"session": []}))
            await ledger.commit(Change(session=session, create=NewSession(kind="workflow"), events=events))
            try:
                msgspec.json.encode(await report_session(ledger, session))
            except LedgerDamaged as error:
                sentences.append((session, error.sentence))

    assert len(sentences) > len(FOLDED_TYPES)
    assert [sentence for session, sentence in sentences if session not in sentence] == []


@proves("report.other-form")
async def test_the_command_names_the_event(fidelio: Fidelio, settings: Settings) -> None:
    await append(settings, NewEvent(type="request.answered", body={"request": "r", "by": 5}))

    printed = fidelio("report", SESSION)

    assert printed.returncode == 5
    assert f"Event 4 (request.answered) of session {SESSION} cannot be read" in printed.stderr
    assert f"events {SESSION} --json" in printed.stderr


@proves("report.other-form")
@pytest.mark.parametrize("value", [7, ["x"]])
async def test_a_text_of_another_type_is_named_too(settings: Settings, value: object) -> None:
    await append(settings, NewEvent(type="session.started", body={**START, "workflow": value}))

    async with await open_ledger(settings.ledger) as ledger:
        with pytest.raises(LedgerDamaged, match=SESSION):
            await report_session(ledger, SESSION)
