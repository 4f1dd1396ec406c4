"""The life of a work item: `queued`, `starting`, `active`, `stopping`, `stopped`. Pure: functions of the item and the time.

A worker polls an item, acknowledges it, and keeps its lease by heartbeats. An item whose worker falls silent goes back to the
queue, so nothing waits for a worker that has died.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

WorkState = Literal["queued", "starting", "active", "stopping", "stopped"]
# How long a lease lasts without a heartbeat, and what a worker may ask for.
TTL_SECONDS, MIN_TTL, MAX_TTL = 60, 5, 3_600
# How long a polled item waits to be acknowledged before another poll gets it.
RECLAIM_MS = 5_000
# In the metadata: the call that a worker of ours carries out now. Other workers do not say it.
CALL_KEY = "fidelio_call"


class SelfHostedWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session that needs a worker. Times are milliseconds since 1970, 0 if it has not happened."""

    id: str
    session: str
    state: WorkState
    created_at: int
    polled_at: int = 0
    acknowledged_at: int = 0
    started_at: int = 0
    heartbeat_at: int = 0
    stop_requested_at: int = 0
    stopped_at: int = 0
    ttl_seconds: int = TTL_SECONDS
    metadata: dict[str, str] = {}

    @property
    def is_live(self) -> bool:
        return self.state != "stopped"

    @property
    def lease_end(self) -> int:
        """When a worker that is silent since then has lost the item; 0 if no worker has it."""
        since = max(self.acknowledged_at, self.heartbeat_at)
        return since + self.ttl_seconds * 1000 if self.state in ("starting", "active", "stopping") and since else 0

    def has_lapsed(self, now: int) -> bool:
        return 0 < self.lease_end <= now

    def can_be_polled(self, now: int, reclaim_ms: int) -> bool:
        return self.state == "queued" and (not self.polled_at or now - self.polled_at >= reclaim_ms)


def acknowledge(item: SelfHostedWork, now: int) -> SelfHostedWork:
    return item if item.acknowledged_at else replace(item, state="starting", acknowledged_at=now)


def beat(item: SelfHostedWork, now: int, ttl_seconds: int) -> SelfHostedWork:
    """Extend the lease. Two heartbeats never have the same time, because the next must name the time.

    Each is a version of the item that stays stored, so one in the first quarter of the lease changes nothing: a worker that
    sends them without a pause writes four for each lease.
    """
    if item.state == "active" and item.ttl_seconds == ttl_seconds and now < item.heartbeat_at + ttl_seconds * 1000 // 4:
        return item
    state = "active" if item.state == "starting" else item.state
    return replace(
        item,
        state=state,
        started_at=item.started_at or now,
        heartbeat_at=max(now, item.heartbeat_at + 1),
        ttl_seconds=ttl_seconds,
    )


def request_stop(item: SelfHostedWork, now: int, *, force: bool) -> SelfHostedWork:
    """Stop an item. Without `force` a worker that has it finishes first."""
    if force or not item.lease_end:
        return replace(item, state="stopped", stop_requested_at=item.stop_requested_at or now, stopped_at=now)
    return replace(item, state="stopping", stop_requested_at=item.stop_requested_at or now)


def requeue(item: SelfHostedWork, now: int) -> SelfHostedWork:
    """What becomes of an item whose worker has fallen silent."""
    if item.state == "stopping":
        return replace(item, state="stopped", stopped_at=now)
    metadata = {name: value for name, value in item.metadata.items() if name != CALL_KEY}
    return replace(item, state="queued", polled_at=0, acknowledged_at=0, started_at=0, heartbeat_at=0, metadata=metadata)
