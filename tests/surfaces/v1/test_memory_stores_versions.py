"""Versions of memories and their redaction through the official SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic, BadRequestError, NotFoundError

from fidelio.app.application import Application
from tests.support import proves
from tests.surfaces.v1.strict import check_object
from tests.surfaces.v1.test_memory_stores import digest


@proves("v1.memory-versions")
async def test_every_change_is_a_version_and_a_deletion_keeps_them(sdk: AsyncAnthropic) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id
    memories, versions = sdk.beta.memory_stores.memories, sdk.beta.memory_stores.memory_versions
    created = await memories.create(store, path="/a", content="one")
    await memories.update(created.id, memory_store_id=store, content="two")
    await memories.create(store, path="/other", content="x")
    deleted = await memories.delete(created.id, memory_store_id=store)

    found = [version async for version in versions.list(store, memory_id=created.id, limit=1)]
    full = await versions.list(store, memory_id=created.id, view="full")
    first = await versions.retrieve(created.memory_version_id, memory_store_id=store)

    for item in (*found, first, deleted):
        check_object(item)
    assert [version.operation for version in found] == ["deleted", "modified", "created"]
    assert [version.content for version in full.data] == [None, "two", "one"]
    assert [version.content_sha256 for version in found] == [None, digest("two"), digest("one")]
    assert all(version.path == "/a" for version in found)
    assert (first.content, first.created_by) == ("one", found[0].created_by)
    assert first.created_by is not None
    assert first.created_by.type == "api_actor"
    with pytest.raises(NotFoundError):
        await memories.retrieve(created.id, memory_store_id=store)


@proves("v1.memory-versions")
async def test_versions_are_filtered_by_operation_author_and_time(sdk: AsyncAnthropic) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id
    versions = sdk.beta.memory_stores.memory_versions
    created = await sdk.beta.memory_stores.memories.create(store, path="/a", content="one")
    await sdk.beta.memory_stores.memories.update(created.id, memory_store_id=store, content="two")

    async def count(**query: Any) -> int:
        return len((await versions.list(store, **query)).data)

    assert await count(operation="created") == 1
    assert await count(api_key_id="apikey_owner") == 2
    assert await count(api_key_id="apikey_other") == 0
    assert await count(session_id="sesn_000000000000") == 0
    assert await count(service_account_id="svac_1") == 0
    assert await count(created_at_lte="2000-01-01T00:00:00Z") == 0
    with pytest.raises(BadRequestError, match="operation"):
        await count(operation="renamed")
    with pytest.raises(BadRequestError, match="created_at"):
        await count(created_at_gte="yesterday")


@proves("v1.memory-redaction")
async def test_a_redacted_version_keeps_who_and_when_and_loses_its_bytes(
    sdk: AsyncAnthropic, application: Application, tmp_path: Path
) -> None:
    store = (await sdk.beta.memory_stores.create(name="s")).id
    memories, versions = sdk.beta.memory_stores.memories, sdk.beta.memory_stores.memory_versions
    secret, secret_path = "correct-horse-battery", "/staple-of-the-person"
    created = await memories.create(store, path=secret_path, content=secret)
    with pytest.raises(BadRequestError, match="current version"):
        await versions.redact(created.memory_version_id, memory_store_id=store)
    await memories.update(created.id, memory_store_id=store, content="harmless", path="/b")
    assert _find_bytes(tmp_path, secret)

    redacted = await versions.redact(created.memory_version_id, memory_store_id=store)
    again = await versions.redact(created.memory_version_id, memory_store_id=store)
    listed = (await versions.list(store, view="full")).data

    check_object(redacted)
    assert redacted == again
    assert redacted.redacted_at is not None
    assert redacted.redacted_by is not None
    assert (redacted.path, redacted.content, redacted.content_sha256, redacted.content_size_bytes) == (None,) * 4
    assert (redacted.operation, redacted.memory_id, redacted.created_by) == ("created", created.id, redacted.redacted_by)
    assert [(version.path, version.content) for version in listed] == [("/b", "harmless"), (None, None)]
    assert (await memories.retrieve(created.id, memory_store_id=store)).created_at == created.created_at
    ledger = (await application.runtime()).context.ledger
    await ledger.update_index()
    assert not await ledger.erasure_pending()
    for text in (secret, secret_path[1:], digest(secret)):
        assert not _find_bytes(tmp_path, text), text


@proves("v1.memory-versions")
async def test_a_version_or_memory_of_another_store_is_not_found(sdk: AsyncAnthropic) -> None:
    one = (await sdk.beta.memory_stores.create(name="one")).id
    two = (await sdk.beta.memory_stores.create(name="two")).id
    memory = await sdk.beta.memory_stores.memories.create(one, path="/a", content="x")

    with pytest.raises(NotFoundError):
        await sdk.beta.memory_stores.memories.retrieve(memory.id, memory_store_id=two)
    for version in (memory.memory_version_id, "memver_1", memory.memory_version_id + "9" * 20, f"memver_{two[9:]}1"):
        with pytest.raises(NotFoundError):
            await sdk.beta.memory_stores.memory_versions.retrieve(version, memory_store_id=two)


def _find_bytes(directory: Path, text: str) -> bool:
    """Whether a text is anywhere in the files of the ledger: database, write-ahead log, index."""
    files = [path for path in directory.rglob("ledger*") if path.is_file()]
    assert files
    return any(text.encode() in path.read_bytes() for path in files)
