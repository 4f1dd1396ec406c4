"""Comparison of what a killed process reported with what the ledger holds."""

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
    """Checks a ledger after every kill. The chain verifier is kept, so that each event is verified once."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._verifier = ChainVerifier(SESSION)
        self._hashes: dict[int, bytes] = {}
        self._clock_offset_ms = 0

    async def check(self, messages: Iterable[tuple[Any, ...]]) -> int:
        """Assert that everything reported is stored; return the number of reports."""
        by_kind: dict[str, list[tuple[Any, ...]]] = {"event": [], "request": [], "job": [], "claimed": [], "settled": []}
        for kind, *what in messages:
            by_kind.setdefault(kind, []).append(tuple(what))
        async with await open_ledger(self._address, clock=lambda: now_ms() + self._clock_offset_ms) as ledger:
            await self._check_events(ledger, [(seq, hash_) for seq, hash_ in by_kind["event"]])
            for (request,) in by_kind["request"]:
                assert (await ledger.request(request)).state == "open"
            await self._check_jobs(ledger, by_kind)
            await self._check_leases(ledger)
        return sum(map(len, by_kind.values()))

    async def _check_events(self, ledger: Ledger, acknowledged: list[tuple[int, bytes]]) -> None:
        await _wait_for_last_statement(ledger)
        for event in await ledger.events(SESSION, after=self._verifier.seq, limit=10_000):
            self._verifier.step(event)
            self._hashes[event.seq] = event.hash
        assert (await ledger.session(SESSION)).head == self._verifier.head
        assert [(seq, self._hashes.get(seq)) for seq, _ in acknowledged] == acknowledged, "an acknowledged event is missing"
        assert sorted(acknowledged) == acknowledged, "acknowledged out of order"

    async def _check_jobs(self, ledger: Ledger, by_kind: dict[str, list[tuple[Any, ...]]]) -> None:
        queued_jobs = {(job.id,) for job in await ledger.jobs(limit=10_000)}
        settled = set(by_kind["settled"])
        assert not settled & queued_jobs, "a settled job is still queued"
        # At most one job may be missing: its settlement was durable but not yet reported.
        assert len(set(by_kind["job"]) - settled - queued_jobs) <= 1, "an acknowledged job is missing"

    async def _check_leases(self, ledger: Ledger) -> None:
        """Assert that every job can be claimed after the leases of killed processes have expired."""
        queued = len(await ledger.jobs(limit=10_000))
        self._clock_offset_ms = LEASE_MS
        for _ in range(queued):
            lease = await _claim_expired(ledger)
            assert lease is not None, "a lease stays for ever"
            await ledger.settle(lease, Completion())
        self._clock_offset_ms = 0
        assert await ledger.jobs() == ()


async def _wait_for_last_statement(ledger: Ledger) -> None:
    """Append an event, which waits for a statement of a killed client that the server still runs."""
    await ledger.append(SESSION, NewEvent(type="buried"))


async def _claim_expired(ledger: Ledger) -> Lease | None:
    lease = await ledger.claim("heir", [KIND], lease_ms=LEASE_MS)
    if lease is None:
        await _wait_for_last_statement(ledger)
        lease = await ledger.claim("heir", [KIND], lease_ms=LEASE_MS)
    return lease
