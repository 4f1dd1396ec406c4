"""Effects and loops in words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.definitions.models import Effect, Loop
from fidelio.definitions.wording import describe_effect, describe_loop, join_words, to_ascii
from tests.support import proves

A, B = ({"type": "simple", "variable": name, "operator": "==", "value": True} for name in "ab")


@proves("wording.conditions")
def test_an_effect_in_words() -> None:
    effect = Effect.model_validate({"setVariable": {"ready": True}, "skipActivities": ["a", "b"], "transitionTo": "c"})

    assert describe_effect(effect) == "sets ready to true, skips a and b, goes to c"
    assert describe_effect(Effect.model_validate({})) == ""


@proves("wording.conditions")
@pytest.mark.parametrize(
    ("loop", "words"),
    [
        ({"type": "forEach", "variable": "task", "over": "all_tasks"}, "for each task of all tasks, at most 100 times"),
        ({"type": "while", "condition": A, "maxIterations": 1}, "while a, at most 1 time"),
        ({"type": "doWhile", "breakCondition": B}, "once, then again while needed, until b, at most 100 times"),
    ],
)
def test_a_loop_in_words(loop: dict[str, Any], words: str) -> None:
    assert describe_loop(Loop.model_validate({"id": "l", "name": "L", **loop})) == words


@proves("wording.conditions")
@pytest.mark.parametrize(("words", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_a_list_in_words(words: list[str], text: str) -> None:
    assert join_words(words) == text


@proves("wording.ascii")
def test_signs_become_their_likes() -> None:
    assert to_ascii("→ “Café” — 3 · ⇒ …") == '-> "Cafe" - 3 - => ...'


@proves("wording.ascii")
@given(st.text())
def test_any_text_becomes_ascii(text: str) -> None:
    assert to_ascii(text).isascii()
