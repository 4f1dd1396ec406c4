"""Nobody waits twice for the check of the same schema."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from fidelio.errors import UncheckedAgentInput
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.blueprints.schemas import check_input
from fidelio.validation import CheckUndecided, LimitExceeded, checks, find_schema_problem
from fidelio.validation.pool import Ask
from tests.support import proves

TOO_LONG = LimitExceeded("It takes more than 2 seconds to check.")


class Answering:
    """A pool without processes: keeps what it was asked, and gives the newest of `answers`, or raises it."""

    def __init__(self) -> None:
        self.questions: list[bytes] = []
        self.answers: list[bytes | Exception] = [b'""']

    def submit(self, use: Callable[[Ask], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(use(self._ask))
        return done

    def _ask(self, question: bytes) -> bytes:
        self.questions.append(question)
        if isinstance(self.answers[-1], Exception):
            raise self.answers[-1]
        return self.answers[-1]


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Answering:
    pool = Answering()
    monkeypatch.setattr(checks, "_CACHE", {})
    monkeypatch.setattr(checks, "_POOL", pool)
    return pool


@proves("blueprints.judged-aside")
def test_every_schema_of_a_long_list_is_checked_once(pool: Answering) -> None:
    schemas = [{"pattern": f"^{number}$"} for number in range(300)]
    problems = [find_schema_problem(schema) for schema in (*schemas, *schemas)]

    assert (set(problems), len(pool.questions)) == ({""}, 300)


@proves("blueprints.judged-aside")
async def test_what_takes_too_long_is_tried_once(pool: Answering) -> None:
    pool.answers.append(TOO_LONG)
    blueprint = Blueprint(name="asker", description="Asks.", input_schema={"pattern": "x"}, source="there")
    for _ in range(3):
        with pytest.raises(UncheckedAgentInput, match=r"takes more than 2 seconds.*smaller"):
            await check_input(blueprint, "y")
    for _ in range(3):
        assert "takes more than 2 seconds" in find_schema_problem({"pattern": "z"})

    assert len(pool.questions) == 2


@proves("blueprints.judged-aside")
async def test_a_check_on_an_overloaded_machine_is_repeated_later(pool: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.answers.append(CheckUndecided("It could not be checked: no answer after 20 seconds."))
    blueprint = Blueprint(name="asker", description="Asks.", input_schema={"pattern": "x"}, source="there")
    for _ in range(3):
        with pytest.raises(UncheckedAgentInput, match="try again later"):
            await check_input(blueprint, "x")
        assert find_schema_problem({"pattern": "z"}) == ""
    assert len(pool.questions) == 2

    pool.answers.append(b'""')
    monkeypatch.setattr(checks, "monotonic", lambda: 1e12)
    assert find_schema_problem({"pattern": "z"}) == ""
    assert len(pool.questions) == 3


def test_an_answer_that_is_too_long_to_keep_is_asked_for_again(pool: Answering) -> None:
    pool.answers.append(b'"' + b"x" * 2_000 + b'"')
    problems = [find_schema_problem({"pattern": "z"}) for _ in range(2)]

    assert (problems, len(pool.questions)) == (["x" * 2_000] * 2, 2)
