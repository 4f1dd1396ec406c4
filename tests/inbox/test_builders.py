"""Changes of requests that other packages commit in their own unit of work."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fidelio
from fidelio.inbox import answer_request, dismiss_all, dismiss_request, open_request
from fidelio.ledger.model import CloseRequest, OpenRequest
from tests.support import proves

PACKAGE = Path(fidelio.__file__).parent
OWNERS = ("inbox", "ledger")
STRUCTS = frozenset({OpenRequest.__name__, CloseRequest.__name__})


def names_in(file: Path) -> set[str]:
    """Every identifier of a module: names, attributes, and what it imports."""
    found = set[str]()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                found.add(name)
            case ast.Constant(value=str() as text):
                # A quoted annotation names it, too.
                found |= STRUCTS & {text.strip()}
    return found


@proves("inbox.builders")
def test_only_the_inbox_and_the_ledger_name_the_structs_of_requests() -> None:
    modules = [file for file in PACKAGE.rglob("*.py") if file.relative_to(PACKAGE).parts[0] not in OWNERS]

    assert len(modules) > 100
    assert {str(file.relative_to(PACKAGE)) for file in modules if names_in(file) & STRUCTS} == set()


@proves("inbox.builders")
def test_a_request_gets_a_new_id_unless_it_keeps_that_of_another_ledger() -> None:
    first, second, kept = (open_request("question", "k", "Go on?", (), {}, request=name) for name in ("", "", "r_kept"))

    assert first.id.startswith("r_")
    assert first.id != second.id
    assert kept.id == "r_kept"


@proves("inbox.builders")
@pytest.mark.parametrize(("channel", "assurance"), [("cli", "local"), ("relayed", "relayed"), ("timer", "timer")])
def test_an_answer_and_a_dismissal_have_the_assurance_of_their_channel(channel: str, assurance: str) -> None:
    answered = answer_request("r_1", {"option": "yes"}, by="person:a", channel=channel)
    dismissed = dismiss_request("r_1", by="person:a", channel=channel)

    assert (answered.state, answered.answer, answered.assurance) == ("answered", {"option": "yes"}, assurance)
    assert (dismissed.state, dismissed.answer, dismissed.assurance) == ("dismissed", {}, assurance)


@proves("inbox.builders")
def test_what_was_closed_in_the_meantime_is_not_dismissed() -> None:
    changes = dismiss_all(["r_1", "r_2"], by="host", but={"r_1"})

    assert [(change.id, change.state, change.by, change.channel) for change in changes] == [("r_2", "dismissed", "host", "")]
