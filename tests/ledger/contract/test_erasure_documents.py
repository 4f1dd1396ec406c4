"""Erasure of sessions that wrote documents: their versions are deleted, the versions of others stay."""

from __future__ import annotations

from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, PutDocument, Query
from tests.support import proves
from tests.support.ledgers import start


async def write(ledger: Ledger, session: str, path: str, text: str) -> None:
    await ledger.commit(Change(session=session, documents=(PutDocument(space="n", path=path, text=text),)))


async def two_sessions(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")


@proves("erasing.documents")
async def test_a_document_whose_newest_version_is_erased_is_deleted(ledger: Ledger) -> None:
    await two_sessions(ledger)
    await write(ledger, "s_b", "shared", "kept version")
    await write(ledger, "s_a", "shared", "secret version")
    await ledger.update_index()
    await ledger.erase(["s_a"], actor="ada", reason="x")
    await ledger.update_index()

    newest, before = await ledger.versions("n", "shared")
    assert (newest.version, newest.digest, before.version) == (2, None, 1)
    document = await ledger.document("n", "shared")
    assert document is not None
    assert document.text is None
    first = await ledger.document("n", "shared", version=1)
    assert first is not None
    assert first.text == "kept version"
    assert (await ledger.documents("n")).items == ()
    assert await ledger.search(Query(text="version")) == ()


@proves("erasing.documents", "erasing.neighbours")
async def test_a_document_that_somebody_else_wrote_last_stays(ledger: Ledger) -> None:
    await two_sessions(ledger)
    await write(ledger, "s_a", "shared", "secret version")
    await ledger.update_index()
    await write(ledger, "s_b", "shared", "kept version")
    await ledger.erase(["s_a"], actor="ada", reason="x")
    await ledger.update_index()

    erased = await ledger.document("n", "shared", version=1)
    assert erased is not None
    assert (erased.text, erased.digest) == (None, None)
    assert [each.version for each in (await ledger.documents("n")).items] == [2]
    assert [hit.version for hit in await ledger.search(Query(text="version"))] == [2]
    assert await ledger.search(Query(text="secret")) == ()


@proves("erasing.documents")
async def test_a_text_that_another_document_has_too_stays_there(ledger: Ledger) -> None:
    await two_sessions(ledger)
    await write(ledger, "s_a", "mine", "the same text")
    await write(ledger, "s_b", "yours", "the same text")
    await ledger.erase(["s_a"], actor="ada", reason="x")

    yours = await ledger.document("n", "yours")
    assert yours is not None
    assert yours.text == "the same text"


@proves("erasing.documents")
async def test_an_erased_document_can_be_written_again(ledger: Ledger) -> None:
    await two_sessions(ledger)
    await write(ledger, "s_a", "shared", "secret")
    await ledger.update_index()
    await ledger.erase(["s_a"], actor="ada", reason="x")
    await write(ledger, "s_b", "shared", "anew")
    await ledger.update_index()

    assert [(hit.version, hit.session) for hit in await ledger.search(Query(text="anew"))] == [(2, "s_b")]
