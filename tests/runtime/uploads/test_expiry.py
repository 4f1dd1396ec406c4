"""Files that expire: unreadable at once, erased by their job, without a loss for others."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.errors import SessionNotFound
from fidelio.ledger.jobs import Assignment
from fidelio.runtime.uploads.files import EXPIRY_JOB, MIN_EXPIRY, StoredFiles, expire_file
from tests.runtime.support import FakeSandboxes, open_context
from tests.support import proves


@proves("v1-files.expiry")
async def test_the_job_of_an_expired_file_erases_what_only_it_has(tmp_path: Path) -> None:
    now = [1_800_000_000_000]
    async with open_context(tmp_path, FakeSandboxes(), clock=lambda: now[0]) as context:
        files = StoredFiles(context, "/project")
        expiring = await files.store("a", "", [b"its own"], by="api", expires_in=MIN_EXPIRY)
        shared = await files.store("b", "", [b"shared"], by="api", expires_in=MIN_EXPIRY)
        kept = await files.store("c", "", [b"shared"], by="api")

        assert await context.ledger.claim("worker", (EXPIRY_JOB,), lease_ms=30_000) is None
        assert await files.read_whole(expiring) == b"its own"
        now[0] += MIN_EXPIRY * 1_000
        with pytest.raises(SessionNotFound, match="expired"):
            await files.read_whole(expiring)
        while (lease := await context.ledger.claim("worker", (EXPIRY_JOB,), lease_ms=30_000)) is not None:
            await expire_file(context, Assignment(context.ledger, lease))

        for file in (expiring, shared):
            with pytest.raises(SessionNotFound):
                await files.load(file.id)
        assert await context.ledger.blob(expiring.content.chunks[0]) is None
        assert await files.read_whole(kept) == b"shared"
        assert await context.ledger.jobs(kind=EXPIRY_JOB) == ()
