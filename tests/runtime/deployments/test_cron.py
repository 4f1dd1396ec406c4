"""Times of cron expressions: against a plain search through every minute, and where clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.errors import UsageProblem
from fidelio.runtime.deployments.cron import Cron, find_next, find_times, find_zone, parse_cron
from tests.support import proves

BERLIN = "Europe/Berlin"
ZONES = [BERLIN, "UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Havana", "Pacific/Apia"]


def ms(text: str, zone: str = "UTC") -> int:
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))).timestamp() * 1000)


def times(expression: str, zone: str, after: str, count: int) -> list[str]:
    found = islice(find_times(parse_cron(expression), find_zone(zone), ms(after, zone)), count)
    return [datetime.fromtimestamp(time / 1000, ZoneInfo(zone)).isoformat(timespec="minutes") for time in found]


@proves("cron.times")
@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 9 * * 1-5", "2026-11-20T09:00", ["2026-11-23T09:00+01:00", "2026-11-24T09:00+01:00"]),
        ("0 9 * * mon-fri", "2026-11-20T09:00", ["2026-11-23T09:00+01:00"]),
        ("*/20 8 * * *", "2026-11-20T08:20", ["2026-11-20T08:40+01:00", "2026-11-21T08:00+01:00"]),
        ("5/30 0 1 jan *", "2026-11-20T08:20", ["2027-01-01T00:05+01:00", "2027-01-01T00:35+01:00", "2028-01-01T00:05+01:00"]),
        ("0 0 29 2 *", "2026-01-01T00:00", ["2028-02-29T00:00+01:00", "2032-02-29T00:00+01:00"]),
        ("0 0 * * 0", "2026-11-20T08:20", ["2026-11-22T00:00+01:00"]),
        ("0 0 * * 7", "2026-11-20T08:20", ["2026-11-22T00:00+01:00"]),
        # Either day is enough if both are restricted.
        ("0 0 13 * 5", "2026-11-10T00:00", ["2026-11-13T00:00+01:00", "2026-11-20T00:00+01:00"]),
        ("0 0 1 * 5", "2026-11-28T00:00", ["2026-12-01T00:00+01:00", "2026-12-04T00:00+01:00"]),
    ],
)
def test_the_next_times_of_an_expression(expression: str, after: str, expected: list[str]) -> None:
    assert times(expression, BERLIN, after, len(expected)) == expected


@proves("cron.clock-changes")
def test_a_time_of_the_day_comes_once_when_clocks_change() -> None:
    assert times("30 2 * * *", BERLIN, "2026-03-28T03:00", 2) == ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]
    assert times("30 2 * * *", BERLIN, "2026-10-24T03:00", 2) == ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]
    assert times("0 0 * * *", "America/Havana", "2026-03-07T01:00", 1) == ["2026-03-08T01:00-04:00"]
    # Two times in the gap end it together.
    assert times("15,45 2 * * *", BERLIN, "2026-03-28T03:00", 2) == ["2026-03-29T03:00+02:00", "2026-03-30T02:15+02:00"]


@proves("cron.clock-changes")
def test_every_half_hour_is_every_half_hour_when_clocks_change() -> None:
    for after in ("2026-03-28T23:00", "2026-10-24T23:00"):
        found = list(islice(find_times(parse_cron("*/30 * * * *"), find_zone(BERLIN), ms(after, BERLIN)), 20))
        assert {second - first for first, second in pairwise(found)} == {30 * 60 * 1000}


def _matches(cron: Cron, moment: datetime) -> bool:
    return moment.minute in cron.minutes and moment.hour in cron.hours and cron.matches_day(moment.date())


_VALUE = {0: (0, 59), 1: (0, 23), 2: (1, 28), 3: (1, 12), 4: (0, 7)}


@st.composite
def expressions(draw: st.DrawFn) -> str:
    def field(number: int) -> str:
        low, high = _VALUE[number]
        first, last = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
        step = draw(st.integers(1, 9))
        return draw(
            st.sampled_from(["*", f"*/{step}", f"{first}", f"{first}-{last}", f"{first}-{last}/{step}", f"{first},{last}"])
        )

    return " ".join([field(0), field(1), draw(st.sampled_from(["*", field(2)])), "*", draw(st.sampled_from(["*", field(4)]))])


@proves("cron.times")
@settings(max_examples=60, deadline=None)
@given(expressions(), st.sampled_from(ZONES), st.integers(ms("2026-01-01"), ms("2027-12-01")))
def test_the_next_time_is_the_first_minute_that_matches(expression: str, zone: str, begin: int) -> None:
    cron, place = parse_cron(expression), ZoneInfo(zone)
    after = datetime.fromtimestamp(begin // 60_000 * 60, UTC)
    found = next(find_times(cron, place, round(after.timestamp() * 1000)))
    reached = datetime.fromtimestamp(found / 1000, UTC)
    minute, searched = after + timedelta(minutes=1), 0
    while minute < reached and searched < 3_000:
        local = minute.astimezone(place)
        is_repeated = local.fold == 1 and not cron.is_continuous
        assert not _matches(cron, local) or is_repeated, f"{minute} matches, and {reached} was found"
        minute, searched = minute + timedelta(minutes=1), searched + 1
    if not _matches(cron, reached.astimezone(place)):
        # Only the end of a gap makes up for a time that does not exist.
        before = (reached - timedelta(minutes=1)).astimezone(place)
        assert before.utcoffset() != reached.astimezone(place).utcoffset()


@proves("cron.refused")
@pytest.mark.parametrize(
    "expression",
    [
        "", "* * * *", "* * * * 8", "* * * * * *", "@daily",
        "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *",
        "L * * * *", "* * ? * *", "* * 1W * *", "* * * * 5#2", "5-1 * * * *", "*/0 * * * *", "1- * * * *", "-1 * * * *",
        ", * * * *", "0 0 30 2 *", "0 0 31 4,6 *", "a" * 300, "٣ * * * *", "* * * mon *", "1/ * * * *",
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(UsageProblem, match=r"schedule\.expression"):
        parse_cron(expression)


@proves("cron.refused")
@pytest.mark.parametrize("zone", ["", "Europe/Nowhere", "../../etc/passwd", "/etc/localtime", "UTC\x00", "x" * 100, "Europe"])
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(UsageProblem, match=r"schedule\.timezone"):
        find_next("* * * * *", zone, 0)
