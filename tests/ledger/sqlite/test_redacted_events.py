"""Redacted texts leave no bytes in the files."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from fidelio.ledger.model import Change, NewEvent
from fidelio.ledger.sqlite import open_sqlite
from tests.support import proves
from tests.support.ledgers import say, start


def bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir())).lower()


@proves("ledger.erased")
@pytest.mark.parametrize("seed", range(4))
async def test_redacted_words_are_gone_from_the_files(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    # Many words of the same beginning and of others, so that some of them begin a page of the index.
    secrets = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=14)) for _ in range(400)]
    content = b"a secret blob " + chance.randbytes(5000).hex().encode()
    digest = hashlib.sha256(content).hexdigest()
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a")
        for part in range(0, len(secrets), 20):
            await say(ledger, "s_a", {"text": " ".join(secrets[part : part + 20]), "filler": f"public {part} " * 50})
            await ledger.update_index()
        await ledger.commit(Change(session="s_a", events=(NewEvent(type="note", blobs=(digest,)),), blobs=(content,)))
        last = (await ledger.session("s_a")).last_seq
        assert secrets[0].encode() in bytes_in(tmp_path)
        await ledger.redact("s_a", range(2, last + 1), actor="ada", reason="x")
        left = bytes_in(tmp_path)
        await ledger.check()

    assert [secret for secret in secrets if secret.encode() in left] == []
    assert content[:40] not in left
    assert b"event.redacted" in left
