"""Verification of a chain that is in memory."""

from __future__ import annotations

from collections.abc import Iterable

from fidelio.ledger.chain import ChainVerdict, ChainVerifier
from fidelio.ledger.model import Event


def verify_chain(session: str, events: Iterable[Event], *, expected_heads: Iterable[bytes] = ()) -> ChainVerdict:
    verifier = ChainVerifier(session)
    for event in events:
        verifier.step(event)
    return verifier.finish(expected_heads)
