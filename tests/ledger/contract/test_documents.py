"""Documents and blobs: versions of texts, and content by digest."""

from __future__ import annotations

import hashlib

import pytest

from fidelio.errors import BadRecord, DocumentConflict
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, Document, NewEvent, PutDocument
from tests.support import proves
from tests.support.ledgers import MovingClock, start


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def put(ledger: Ledger, path: str, text: str | None, *, expect: int | None = None, space: str = "notes") -> None:
    document = PutDocument(space=space, path=path, text=text, author="ada", expect=expect)
    await ledger.commit(Change(session="s_a", documents=(document,)))


@proves("ledger.documents")
async def test_every_version_of_a_document_can_be_read(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    await put(ledger, "plan.md", "first ü")
    await put(ledger, "plan.md", "second\x00")

    newest = await ledger.document("notes", "plan.md")
    assert newest == Document("notes", "plan.md", 2, sha(b"second\x00"), "ada", clock.now, "second\x00")
    assert (await ledger.document("notes", "plan.md", version=1)).text == "first ü"  # type: ignore[union-attr]  # the document was written above, so it is not None
    assert await ledger.document("notes", "plan.md", version=3) is None
    assert await ledger.document("other", "plan.md") is None
    assert [(d.version, d.text) for d in await ledger.versions("notes", "plan.md")] == [(2, None), (1, None)]
    assert len(await ledger.versions("notes", "plan.md", limit=1)) == 1
    assert await ledger.versions("notes", "none.md") == ()


@proves("ledger.documents")
async def test_a_write_on_an_older_version_is_refused(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await put(ledger, "plan.md", "first", expect=0)
    await put(ledger, "plan.md", "second", expect=1)

    with pytest.raises(DocumentConflict) as refusal:
        await put(ledger, "plan.md", "third", expect=1)
    with pytest.raises(DocumentConflict):
        await put(ledger, "plan.md", "third", expect=0)

    assert (refusal.value.path, refusal.value.expected, refusal.value.actual) == ("plan.md", 1, 2)
    assert (await ledger.document("notes", "plan.md")).text == "second"  # type: ignore[union-attr]  # the document was written above, so it is not None


@proves("ledger.documents")
async def test_a_deleted_document_leaves_the_list_but_not_the_history(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await put(ledger, "plan.md", "first")
    await put(ledger, "plan.md", None)
    gone = await ledger.document("notes", "plan.md")

    assert gone is not None
    assert (gone.version, gone.text, gone.digest) == (2, None, None)
    assert (await ledger.documents("notes")).items == ()
    await put(ledger, "plan.md", "again", expect=2)
    assert [(d.path, d.version) for d in (await ledger.documents("notes")).items] == [("plan.md", 3)]


@proves("ledger.documents")
async def test_documents_are_listed_by_path_below_a_prefix(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    for path in ("b/2", "a", "b/1", "b/3", "c", "ü"):
        await put(ledger, path, path)
    await put(ledger, "b/1", "elsewhere", space="other")

    first = await ledger.documents("notes", prefix="b/", limit=2)
    second = await ledger.documents("notes", prefix="b/", limit=2, cursor=first.next)

    assert [d.path for d in first.items + second.items] == ["b/1", "b/2", "b/3"]
    assert second.next is None
    assert [d.path for d in (await ledger.documents("notes")).items] == ["a", "b/1", "b/2", "b/3", "c", "ü"]
    assert all(d.text is None for d in first.items)


@proves("ledger.blobs")
async def test_content_is_found_under_its_digest(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await ledger.commit(Change(session="s_a", blobs=(b"\x00\xff", b"", b"\x00\xff")))

    assert await ledger.blob(sha(b"\x00\xff")) == b"\x00\xff"
    assert await ledger.blob(sha(b"")) == b""
    assert await ledger.blob(sha(b"nothing")) is None
    assert await ledger.blob("no digest") is None


@proves("ledger.blobs")
async def test_an_event_refers_only_to_content_that_is_there(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    event = NewEvent(type="note", blobs=(sha(b"x"),))

    with pytest.raises(BadRecord, match=sha(b"x")[:16]):
        await ledger.append("s_a", event)
    await ledger.commit(Change(session="s_a", events=(event,), blobs=(b"x",)))
    await ledger.append("s_a", event)

    assert (await ledger.session("s_a")).last_seq == 3
