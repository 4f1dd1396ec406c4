"""Compares what a killed process was told with what the ledger holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fidelio.clock import now_ms
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.chain import ChainVerifier
from fidelio.ledger.model import Completion, Lease, NewEvent
from tests.ledger.programs.appender import KIND, LEASE_MS

SESSION = "s_kill"


class Survivors:
    """Goes through one ledger after every kill. The walker keeps its place, so each event is verified once."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._walker = ChainVerifier(SESSION)
        self._hashes: dict[int, bytes] = {}
        self._ahead_ms = 0

    async def check(self, told: Iterable[tuple[Any, ...]]) -> int:
        """Fails unless everything told is there; returns how much that was."""
        by_kind: dict[str, list[tuple[Any, ...]]] = {"event": [], "request": [], "job": [], "claimed": [], "settled": []}
        for kind, *what in told:
            by_kind.setdefault(kind, []).append(tuple(what))
        async with await open_ledger(self._address, clock=lambda: now_ms() + self._ahead_ms) as ledger:
            await self._check_events(ledger, [(seq, hash_) for seq, hash_ in by_kind["event"]])
            for (request,) in by_kind["request"]:
                assert (await ledger.request(request)).state == "open"
            await self._check_jobs(ledger, by_kind)
            await self._check_leases(ledger)
        return sum(map(len, by_kind.values()))

    async def _check_events(self, ledger: Ledger, acknowledged: list[tuple[int, bytes]]) -> None:
        await _let_the_dead_finish(ledger)
        for event in await ledger.events(SESSION, after=self._walker.seq, limit=10_000):
            self._walker.step(event)
            self._hashes[event.seq] = event.hash
        assert (await ledger.session(SESSION)).head == self._walker.head
        assert [(seq, self._hashes.get(seq)) for seq, _ in acknowledged] == acknowledged, "an acknowledged event is gone"
        assert sorted(acknowledged) == acknowledged, "acknowledged out of order"

    async def _check_jobs(self, ledger: Ledger, by_kind: dict[str, list[tuple[Any, ...]]]) -> None:
        there = {(job.id,) for job in await ledger.jobs(limit=10_000)}
        settled = set(by_kind["settled"])
        assert not settled & there, "a settled job is still queued"
        # A settlement that was durable but not yet told is the one thing that may be missing here.
        assert len(set(by_kind["job"]) - settled - there) <= 1, "an acknowledged job is gone"

    async def _check_leases(self, ledger: Ledger) -> None:
        """Every job can be claimed once the leases of the dead have run out."""
        queued = len(await ledger.jobs(limit=10_000))
        self._ahead_ms = LEASE_MS
        for _ in range(queued):
            lease = await _inherit(ledger)
            assert lease is not None, "a lease stays for ever"
            await ledger.settle(lease, Completion())
        self._ahead_ms = 0
        assert await ledger.jobs() == ()


async def _let_the_dead_finish(ledger: Ledger) -> None:
    """A server may still carry out the last statement of a client that is dead; an append has to wait for its end."""
    await ledger.append(SESSION, NewEvent(type="buried"))


async def _inherit(ledger: Ledger) -> Lease | None:
    lease = await ledger.claim("heir", [KIND], lease_ms=LEASE_MS)
    if lease is None:
        await _let_the_dead_finish(ledger)
        lease = await ledger.claim("heir", [KIND], lease_ms=LEASE_MS)
    return lease
