"""Properties of the directive: whatever a model writes, it is read within the limits, and nothing of it disappears silently."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.runtime.wakes.directive import (
    CLOSING,
    DEFAULT_FOLLOW_UP_SECONDS,
    MAX_DELAY_SECONDS,
    MAX_LEARNINGS,
    MAX_WAKES,
    OPENING,
    REASON_LENGTH,
    SUMMARY_LENGTH,
    Directive,
    parse_reply,
)
from tests.support import proves

HUGE = 200_000
# Numbers as models write them, also those that no float can hold.
NUMBERS = st.integers(-(10**6), 10**6) | st.floats(allow_nan=False, allow_infinity=False) | st.just(10**400)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=20)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5), max_leaves=8
)
PLAIN = st.text(max_size=40).filter(lambda text: "<" not in text)
WAKES = st.fixed_dictionaries(
    {},
    optional={
        "reason": PLAIN | JSON,
        "delaySeconds": NUMBERS | JSON,
        "note": PLAIN | JSON,
        "dedupeKey": PLAIN | JSON,
        "priority": st.sampled_from(["low", "normal", "high"]) | JSON,
    },
)
LEARNINGS = st.fixed_dictionaries({}, optional={"title": PLAIN | JSON, "detail": PLAIN | JSON})
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "outcome": st.sampled_from(["continue", "sleep"]) | JSON,
    "summary": PLAIN | JSON,
    "followUpSeconds": NUMBERS | JSON,
    "queuedWakes": st.lists(WAKES | JSON, max_size=6) | JSON,
    "learnings": st.lists(LEARNINGS | JSON, max_size=6) | JSON,
    "customToolRequest": st.fixed_dictionaries({}, optional={"name": PLAIN | JSON, "input": JSON}) | JSON,
}
DIRECTIVES = st.fixed_dictionaries({}, optional=FIELDS)


def encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def write(value: Any) -> str:
    """A directive as a model writes it. The tags never occur in its texts."""
    return f"{OPENING}{encode(value)}{CLOSING}"


def read(value: Any) -> Directive:
    return parse_reply(f"Done.\n{write(value)}").directive


def is_told(directive: Directive, field: str) -> bool:
    return any(text.startswith(field) for text in directive.rejected)


def is_delay(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MAX_DELAY_SECONDS


@proves("runtime.directive-bounds")
@given(JSON | DIRECTIVES | st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_any_directive_is_read_within_the_limits(value: Any, before: str, after: str) -> None:
    raw = value if isinstance(value, str) else encode(value)
    parsed = parse_reply(f"{before}{OPENING}{raw}{CLOSING}{after}")

    directive = parsed.directive
    assert directive.outcome in ("continue", "sleep")
    assert len(directive.summary) <= SUMMARY_LENGTH
    assert 1 <= directive.follow_up_seconds <= MAX_DELAY_SECONDS
    assert len(directive.wakes) <= MAX_WAKES
    assert len(directive.learnings) <= MAX_LEARNINGS
    for wake in directive.wakes:
        assert 1 <= wake.delay_seconds <= MAX_DELAY_SECONDS
        assert 0 < len(wake.reason) <= REASON_LENGTH
        assert max(len(wake.note), len(wake.key)) <= REASON_LENGTH
        assert wake.priority in ("low", "normal", "high")
    assert sum(map(len, directive.rejected)) < 10_000


@proves("runtime.directive-fields")
@given(DIRECTIVES)
def test_every_field_that_is_not_accepted_as_it_was_written_is_told(given: dict[str, Any]) -> None:
    directive = read(given)
    follow_up, outcome = given.get("followUpSeconds"), given.get("outcome")

    assert (directive.outcome == outcome or outcome is None) or is_told(directive, "outcome:")
    if follow_up is None:
        assert directive.follow_up_seconds == DEFAULT_FOLLOW_UP_SECONDS
    else:
        assert is_told(directive, "followUpSeconds:") is not is_delay(follow_up)
    summary = given.get("summary")
    assert summary is None or isinstance(summary, str) or is_told(directive, "summary:")
    for field, taken in (("queuedWakes", directive.wakes), ("learnings", directive.learnings)):
        items = given.get(field)
        if isinstance(items, list):
            assert len(taken) == len(items) or is_told(directive, field)
        else:
            assert items is None or is_told(directive, f"{field}:")
    asked = given.get("customToolRequest")
    assert asked is None or directive.custom_tool is not None or is_told(directive, "customToolRequest:")


@proves("runtime.directive-fields")
@given(WAKES)
def test_every_part_of_a_queued_wake_is_taken_or_told(wake: dict[str, Any]) -> None:
    directive = read({"queuedWakes": [wake]})
    told = is_told(directive, "queuedWakes 1:")

    if not directive.wakes:
        assert told
        return
    (taken,) = directive.wakes
    kept = {
        "delaySeconds": is_delay(wake["delaySeconds"]),
        "note": isinstance(wake.get("note"), str | None),
        "dedupeKey": isinstance(wake.get("dedupeKey"), str | None),
        "priority": wake.get("priority", "normal") == taken.priority,
    }
    assert told is not all(kept.values())


@proves("runtime.directive-fields")
@given(st.integers(1, 200))
def test_any_number_of_unknown_fields_is_told(count: int) -> None:
    directive = read({f"field{number}": number for number in range(count)})

    named = sum("unknown field" in text for text in directive.rejected)
    assert named == count or (named and str(count - named) in directive.rejected[-1])


@proves("runtime.directive-fields")
@given(st.text(max_size=200))
def test_text_that_is_no_json_object_is_told(text: str) -> None:
    try:
        is_object = isinstance(msgspec.json.decode(text), dict)
    except msgspec.DecodeError:
        is_object = False
    directive = parse_reply(f"Done.{OPENING}{text}{CLOSING}").directive

    assert is_object or directive.rejected


@proves("runtime.directive-fields")
@given(st.lists(DIRECTIVES, min_size=1, max_size=4), st.lists(PLAIN, min_size=5, max_size=5))
def test_the_last_directive_counts_and_is_no_part_of_the_message(directives: list[Any], between: list[str]) -> None:
    *earlier, last = [write(value) for value in directives]
    text = "".join(f"{part}{raw}" for part, raw in zip(between, earlier, strict=False)) + between[-1]
    parsed = parse_reply(f"{text}{last}\n{between[0]}")

    expected = read(directives[-1])
    assert parsed.raw == last
    assert msgspec.structs.replace(parsed.directive, summary="") == msgspec.structs.replace(expected, summary="")
    assert parsed.message == f"{text.rstrip()}\n{between[0].lstrip()}".strip()


@proves("runtime.directive-fields")
@given(st.text(max_size=300))
def test_a_reply_without_a_directive_sleeps_and_is_the_message(text: str) -> None:
    parsed = parse_reply(text.replace(CLOSING, ""))

    assert (parsed.directive.outcome, parsed.directive.wakes, parsed.raw) == ("sleep", (), "")
    assert parsed.message == text.replace(CLOSING, "").strip()


@proves("runtime.directive-bounds")
@pytest.mark.timeout(30)  # what takes quadratic time does not end within it
@pytest.mark.parametrize(
    "text",
    [
        OPENING * HUGE,
        CLOSING * HUGE,
        (OPENING + CLOSING) * HUGE,
        OPENING * HUGE + CLOSING,
        OPENING + CLOSING * HUGE,
        "<fidelio-loop" * HUGE + CLOSING,
        OPENING + " " * HUGE * 10 + CLOSING,
        OPENING + "[" * HUGE + CLOSING,
        OPENING + '{"a":' * HUGE + "1" + "}" * HUGE + CLOSING,
        OPENING + '"' * HUGE + CLOSING,
        OPENING + "9" * HUGE + CLOSING,
        OPENING + '{"followUpSeconds":' + "9" * HUGE + "}" + CLOSING,
        OPENING + '{"queuedWakes":[' + "{}," * HUGE + "{}]}" + CLOSING,
        OPENING + "{" + ",".join(f'"f{number}":1' for number in range(HUGE)) + "}" + CLOSING,
        "a." * HUGE * 5,
        "a " * HUGE * 5,
        "." * HUGE * 5,
    ],
    ids=range(17),
)
def test_hostile_text_is_read_in_linear_time(text: str) -> None:
    parsed = parse_reply(text)

    assert len(parsed.directive.summary) <= SUMMARY_LENGTH
    assert parsed.directive.outcome == "sleep"


@proves("runtime.directive-bounds")
@given(st.floats(min_value=0, exclude_min=True) | st.integers(min_value=1))
def test_a_delay_is_whole_seconds_of_at_most_a_day(seconds: float) -> None:
    wake = {"reason": "look", "delaySeconds": seconds}
    directive = read({"queuedWakes": [wake]}) if math.isfinite(seconds) else Directive()

    for taken in directive.wakes:
        assert taken.delay_seconds == max(1, min(MAX_DELAY_SECONDS, math.floor(seconds)))
    assert bool(directive.wakes) is math.isfinite(seconds)
