"""Times of a cron expression in a time zone. Pure.

An expression has the five fields of POSIX: minute, hour, day of the month, month, day of the week (0 and 7 are Sunday). Each is
`*` or a list of values, ranges and steps (`*/15`, `1-5`, `mon`). If both days are restricted, one of them is enough.

When clocks change: an expression that names its hours runs once for each of its times of the day. A time that does not exist
that day is made up for when the gap ends, and of a time that comes twice the first counts. One whose hour begins with `*`
runs whenever the clock shows a matching time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from fidelio.errors import UsageProblem

# 29 February is at most eight years away (1896 to 1904); with a day of the week no expression needs it.
_MAX_DAYS = 366 * 9
_NAMES = {
    3: ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    4: ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
}
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))
_MAX_LENGTH = 200
_PART = re.compile(r"(?P<range>\*|(?P<first>[0-9a-z]{1,3})(?:-(?P<last>[0-9a-z]{1,3}))?)(?:/(?P<step>[0-9]{1,3}))?")
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,3}")


class Cron(msgspec.Struct, frozen=True):
    """A parsed expression. Days of the week count from Sunday."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    # Whether either day is enough, and whether every hour is meant.
    is_either: bool
    is_continuous: bool

    def matches_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_day or by_weekday if self.is_either else by_day and by_weekday


def parse_cron(expression: str) -> Cron:
    """Parse an expression. Raises `UsageProblem`, which names the field."""
    fields = expression.lower().split()
    if len(expression) > _MAX_LENGTH or len(fields) != len(_FIELDS):
        raise UsageProblem(
            f"schedule.expression: {expression!r:.80} does not have five fields.",
            remedy="Write minute, hour, day of month, month and day of week, such as 0 9 * * 1-5.",
        )
    values = [_parse_field(text, number) for number, text in enumerate(fields)]
    cron = Cron(
        minutes=tuple(sorted(values[0])),
        hours=tuple(sorted(values[1])),
        days=frozenset(values[2]),
        months=frozenset(values[3]),
        weekdays=frozenset(value % 7 for value in values[4]),
        is_either=not fields[2].startswith("*") and not fields[4].startswith("*"),
        is_continuous=fields[1].startswith("*"),
    )
    if not any(_days_exist(cron)):
        raise UsageProblem(f"schedule.expression: {expression!r:.80} never comes: no month has such a day.")
    return cron


def find_zone(name: str) -> ZoneInfo:
    """The time zone with this name of the IANA database. Raises `UsageProblem`."""
    if len(name) <= 64 and _ZONE.fullmatch(name):
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    raise UsageProblem(
        f"schedule.timezone: {name!r:.80} is not a time zone.", remedy="Use a name such as Europe/Berlin, or UTC."
    )


def find_times(cron: Cron, zone: ZoneInfo, after: int) -> Iterator[int]:
    """The times after a moment, in milliseconds, in order. It ends where the calendar of Python or nine years end."""
    last = after
    # Clocks may be a day apart.
    begin = datetime.fromtimestamp(after / 1000, zone).date() - timedelta(days=1)
    for number in range(_MAX_DAYS):
        day = begin + timedelta(days=number)
        if cron.matches_day(day):
            for time in _list_times(cron, zone, day, after):
                if time > last:
                    last = time
                    yield time


def find_next(expression: str, timezone: str, after: int) -> int:
    """The next time of a schedule. Raises `UsageProblem` if there is none."""
    found = next(find_times(parse_cron(expression), find_zone(timezone), after), None)
    if found is None:
        raise UsageProblem(f"schedule.expression: {expression!r:.80} does not come in the next nine years.")
    return found


def _days_exist(cron: Cron) -> Iterator[bool]:
    longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
    yield cron.is_either and bool(cron.weekdays)
    yield from (min(cron.days) <= longest.get(month, 31) for month in cron.months)


def _parse_field(text: str, number: int) -> set[int]:
    name, low, high = _FIELDS[number]
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        values = _read_part(match, number) if match else None
        if not values:
            raise UsageProblem(
                f"schedule.expression: {part!r:.40} is no {name}.",
                remedy=f"Use *, or values from {low} to {high} with commas, ranges and steps.",
            )
        found.update(values)
    return found


def _read_part(match: re.Match[str], number: int) -> range | None:
    _, low, high = _FIELDS[number]
    step = int(match["step"] or 1)
    if match["range"] == "*":
        # Sunday is not counted twice.
        first, last = low, 6 if number == 4 else high  # the index of the field
    else:
        begin, end = _read_value(match["first"], number), _read_value(match["last"] or match["first"], number)
        if begin is None or end is None:
            return None
        # `5/10` means from 5 on.
        first, last = begin, high if match["step"] and not match["last"] else end
    return range(first, last + 1, step) if low <= first <= last <= high and step > 0 else None


def _read_value(text: str, number: int) -> int | None:
    if text.isascii() and text.isdigit():
        return int(text)
    names = _NAMES.get(number, ())
    return names.index(text) + (number == 3) if text in names else None  # months count from 1


def _list_times(cron: Cron, zone: ZoneInfo, day: date, after: int) -> list[int] | Iterator[int]:
    if _changes(zone, day):
        return sorted({time for moment in _list_moments(cron, day) for time in _convert(cron, zone, moment)})
    earliest = datetime.fromtimestamp(after / 1000, zone).replace(tzinfo=None) - timedelta(minutes=1)
    return (_to_ms(moment, zone) for moment in _list_moments(cron, day) if moment >= earliest)


def _list_moments(cron: Cron, day: date) -> Iterator[datetime]:
    for hour in cron.hours:
        for minute in cron.minutes:
            yield datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001  # what the clock on the wall shows


def _changes(zone: ZoneInfo, day: date) -> bool:
    """Whether clocks change on a day."""
    begin = datetime(day.year, day.month, day.day, tzinfo=zone)
    return begin.utcoffset() != (begin + timedelta(days=1)).utcoffset()


def _convert(cron: Cron, zone: ZoneInfo, moment: datetime) -> Iterator[int]:
    """The times at which the clock shows something on a day on which clocks change."""
    first = _to_ms(moment, zone)
    exists = datetime.fromtimestamp(first / 1000, zone).replace(tzinfo=None) == moment
    if cron.is_continuous:
        second = _to_ms(moment.replace(fold=1), zone)
        yield from (first, second) if exists else ()
    else:
        yield first if exists else _find_end_of_gap(zone, moment)


def _find_end_of_gap(zone: ZoneInfo, moment: datetime) -> int:
    """The first time after the clocks were put forward over a time."""
    low, high = _to_ms(moment.replace(fold=1), zone), _to_ms(moment, zone)
    offset = datetime.fromtimestamp(high / 1000, zone).utcoffset()
    while high - low > 1000:
        middle = (low + high) // 2000 * 1000
        if datetime.fromtimestamp(middle / 1000, zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return high


def _to_ms(moment: datetime, zone: ZoneInfo) -> int:
    return round(moment.replace(tzinfo=zone).astimezone(UTC).timestamp()) * 1000
