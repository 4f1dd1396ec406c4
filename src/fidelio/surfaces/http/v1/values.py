"""Values that several groups of the API share: metadata, ranges of times, and fields that an update may omit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from fidelio.clock import format_iso
from fidelio.surfaces.http.v1.errors import ApiProblem

T = TypeVar("T")
MAX_PAIRS, MAX_KEY, MAX_VALUE = 16, 64, 512
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the bodies of requests: a field that is not known is refused."""


def keep(value: T | UnsetType | None, former: T, cleared: T) -> T:
    """The value of a field after an update: omitted keeps it, null clears it."""
    if value is UNSET:
        return former
    return cleared if value is None else value


def patch_metadata(
    former: Mapping[str, str], patch: Mapping[str, str | None] | UnsetType | None, *, clears_empty: bool = False
) -> dict[str, str]:
    """Metadata after an update: null deletes a key, and with `clears_empty` an empty text does too. Raises 400 at a limit."""
    if patch is UNSET:
        return dict(former)
    if patch is None:
        return {}
    merged = {**former, **patch}
    patched = {key: value for key, value in merged.items() if value is not None and not (clears_empty and not value)}
    _check_metadata(patched)
    return patched


def _check_metadata(metadata: Mapping[str, str]) -> None:
    if len(metadata) > MAX_PAIRS:
        raise ApiProblem(f"metadata: {len(metadata)} pairs are more than {MAX_PAIRS}.")
    for key, value in metadata.items():
        if not 0 < len(key) <= MAX_KEY:
            raise ApiProblem(f"metadata: the key {key!r:.100} does not have 1 to {MAX_KEY} characters.")
        if len(value) > MAX_VALUE:
            raise ApiProblem(f"metadata.{key}: {len(value)} characters are more than {MAX_VALUE}.")


def render_time(moment: int) -> str | None:
    """A moment of a field that may be null: 0 is none."""
    return format_iso(moment) if moment else None


class _Amount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    amount: Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]{0,11})$")]
    currency: Literal["USD"]


class CostLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A limit in whole cents."""

    type: Literal["limit"]
    max_list_cost: _Amount

    @property
    def cents(self) -> int:
        return int(self.max_list_cost.amount)

    def require_cents(self) -> int:
        """The limit of something new. Raises 400 if it is nothing."""
        if not self.cents:
            raise ApiProblem("budget.max_list_cost.amount: the limit is 0. Use at least one cent, or leave budget out.")
        return self.cents


class TimeRange(msgspec.Struct, frozen=True):
    """A range of times in milliseconds, with both ends."""

    first: int = 0
    last: int = 1 << 62

    def __contains__(self, time: int) -> bool:
        return self.first <= time <= self.last


def read_range(name: str, queries: Mapping[str, str]) -> TimeRange:
    """The range of `name[gt]`, `[gte]`, `[lt]` and `[lte]`. Raises 400 for what is no time."""
    times = {bound: _read_time(f"{name}[{bound}]", text) for bound, text in _find_bounds(name, queries)}
    first = max(times.get("gte", 0), times.get("gt", -1) + 1)
    last = min(times.get("lte", 1 << 62), times.get("lt", (1 << 62) + 1) - 1)
    return TimeRange(first, last)


def _find_bounds(name: str, queries: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(bound, queries[f"{name}[{bound}]"]) for bound in ("gt", "gte", "lt", "lte") if f"{name}[{bound}]" in queries]


def _read_time(name: str, text: str) -> int:
    try:
        # A + that was not encoded arrives as a space.
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ApiProblem(f"{name}: {text!r:.80} is not a time such as 2026-11-15T20:04:46Z.") from error
