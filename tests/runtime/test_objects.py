"""Objects of a project: versions, isolation, idempotent creation, archiving and deletion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fidelio.errors import DocumentConflict, SessionExists, SessionNotFound, UsageProblem
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.model import NewEvent
from fidelio.runtime.objects import ObjectPlan, Objects
from fidelio.runtime.tools.model import RuntimeContext
from tests.runtime.support import FakeSandboxes, open_context
from tests.support import proves

OTHER_PROJECT = "/elsewhere"


class Note(msgspec.Struct, frozen=True):
    text: str


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[RuntimeContext]:
    async with open_context(tmp_path, FakeSandboxes()) as opened:
        yield opened


@pytest.fixture
def notes(context: RuntimeContext) -> Objects[Note]:
    return Objects(context, "/project", "skill", Note)


@proves("objects.versions")
async def test_a_changed_object_has_a_new_version_and_the_same_content_has_not(notes: Objects[Note]) -> None:
    created = await notes.create(Note("a"), by="api")

    same = await notes.update(created.id, lambda _: Note("a"), by="api")
    changed = await notes.update(created.id, lambda found: Note(found.content.text + "b"), by="api")

    assert (created.version, same.version, changed.version) == (1, 1, 2)
    assert (await notes.load(created.id)).content == Note("ab")


@proves("objects.versions")
async def test_a_change_of_an_outdated_version_is_refused_and_stores_nothing(notes: Objects[Note]) -> None:
    created = await notes.create(Note("a"), by="api")
    await notes.update(created.id, lambda _: Note("b"), by="api", version=1)

    with pytest.raises(DocumentConflict):
        await notes.update(created.id, lambda _: Note("c"), by="api", version=1)

    assert (await notes.load(created.id)).content == Note("b")


@proves("objects.versions")
async def test_changes_at_the_same_time_are_all_kept(notes: Objects[Note]) -> None:
    created = await notes.create(Note(""), by="api")

    await asyncio.gather(*(notes.update(created.id, lambda found: Note(found.content.text + "x"), by="api") for _ in range(4)))

    assert (await notes.load(created.id)).content == Note("xxxx")


@proves("objects.project")
async def test_an_object_of_another_project_or_kind_is_unknown(notes: Objects[Note], context: RuntimeContext) -> None:
    created = await notes.create(Note("a"), by="api")
    strangers = (Objects(context, OTHER_PROJECT, "skill", Note), Objects(context, "/project", "file", Note))

    for other in strangers:
        assert (await other.list()).items == ()
        with pytest.raises(SessionNotFound):
            await other.load(created.id)
        with pytest.raises(SessionNotFound):
            await other.delete(created.id, by="api")

    assert await notes.load(created.id) == created


@proves("objects.idempotent")
async def test_a_repeated_creation_returns_the_first_object(notes: Objects[Note]) -> None:
    first, second = await asyncio.gather(*(notes.create(Note("a"), by="api", key="k") for _ in range(2)))

    assert first.id == second.id
    assert len((await notes.list()).items) == 1
    with pytest.raises(SessionExists):
        await notes.create(Note("b"), by="api", key="k")


@proves("objects.idempotent")
async def test_a_repeated_creation_finds_an_object_that_was_changed_meanwhile(notes: Objects[Note]) -> None:
    created = await notes.create(Note("a"), by="api", key="k")
    await notes.update(created.id, lambda _: Note("b"), by="api")

    assert (await notes.create(Note("a"), by="api", key="k")).content == Note("b")


@proves("objects.end")
async def test_an_archived_object_is_kept_and_not_changed(notes: Objects[Note]) -> None:
    created = await notes.create(Note("a"), by="api")

    archived = await notes.archive(created.id, by="api")

    assert archived.archived_at > 0
    assert (await notes.archive(created.id, by="api")).archived_at == archived.archived_at
    with pytest.raises(UsageProblem):
        await notes.update(created.id, lambda _: Note("b"), by="api")


@proves("objects.end")
async def test_a_deleted_object_is_gone_with_what_it_owned(notes: Objects[Note], context: RuntimeContext) -> None:
    content = b"bytes"
    stored = NewEvent(type="vault.value_stored", body={}, blobs=(hash_blob(content),))
    created = await notes.create(Note("a"), by="api", plan=ObjectPlan(events=(stored,), blobs=(content,)))

    await notes.delete(created.id, by="api")

    assert await context.ledger.blob(hash_blob(content)) is None
    assert (await notes.list()).items == ()
    with pytest.raises(SessionNotFound):
        await notes.load(created.id)


@proves("objects.pages")
async def test_pages_list_every_object_once_newest_first(notes: Objects[Note]) -> None:
    created = [await notes.create(Note(str(number)), by="api") for number in range(5)]

    first = await notes.list(limit=3)
    second = await notes.list(limit=3, cursor=first.next)

    assert [found.id for found in (*first.items, *second.items)] == [made.id for made in reversed(created)]
    assert second.next is None


@proves("objects.pages")
async def test_a_page_of_a_filter_that_matches_little_looks_at_a_bounded_number_of_objects(
    notes: Objects[Note], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.runtime.objects.MAX_SCANNED", 2)
    for text in "abcde":
        await notes.create(Note(text), by="api")
    pages, cursor = list[str](), None
    for _ in range(3):
        page = await notes.select(lambda found: found.content.text == "a", cursor=cursor, limit=1)
        pages.append("".join(found.content.text for found in page.items))
        cursor = page.next

    assert (pages, cursor) == (["", "", "a"], None)
