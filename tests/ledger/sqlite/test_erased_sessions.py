"""Erased sessions leave no bytes in the files, and lists do not scan them."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import apsw
import pytest

from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, NewEvent, OpenRequest, PutDocument, Query
from fidelio.ledger.sqlite import open_sqlite
from fidelio.ledger.sqlite import search_index as index
from fidelio.ledger.sqlite.reads import NOT_DELETED
from tests.support import proves
from tests.support.ledgers import start


def bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir())).lower()


async def fill(ledger: Ledger, session: str, words: list[str]) -> None:
    """One session that has its words everywhere a session can have them."""
    content = f"blob {words[0]}".encode()
    await start(ledger, session, kind="agent", name=f"name{words[1]}")
    events = [NewEvent(type="note", body={"text": " ".join(words), "ünplain": f"ü {words[2]}"})]
    events.append(NewEvent(type="note", blobs=(hashlib.sha256(content).hexdigest(),)))
    question = OpenRequest(id=f"r_{session}", kind="question", key=words[3], question=words[4], detail={"a": words[5]})
    await ledger.commit(
        Change(
            session=session,
            events=tuple(events),
            blobs=(content,),
            record={"prompt": words[6]},
            reason=words[7],
            requests=(question,),
            documents=(PutDocument(space="n", path=f"{session}/p", text=f"text {words[8]}"),),
        )
    )


@proves("erasing.bytes", "erasing.neighbours")
@pytest.mark.parametrize(
    ("dear", "how_many"),
    [(0, 20), (index.REWRITES_PER_EVENT, 10), (index.REWRITES_PER_EVENT, 20)],
    ids=["in place", "struck off", "the rest is kept"],
)
async def test_words_of_deleted_sessions_are_gone_from_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dear: int, how_many: int
) -> None:
    monkeypatch.setattr(index, "REWRITES_PER_EVENT", dear)
    chance = random.Random(dear)
    secrets = {f"s_{n}": ["".join(chance.choices("abcdefghij", k=14)) for _ in range(30)] for n in range(30)}
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        for session, words in secrets.items():
            await fill(ledger, session, words)
            await ledger.update_index()
        gone = list(secrets)[:how_many]
        before = bytes_in(tmp_path)
        await ledger.erase(gone, actor="ada", reason="x")
        left = bytes_in(tmp_path)
        await ledger.check()
        found = [await ledger.search(Query(text=word)) for session in list(secrets)[how_many:] for word in secrets[session][9:]]

    assert all(word.encode() in before for session in gone for word in secrets[session])
    assert [word for session in gone for word in secrets[session] if word.encode() in left] == []
    assert all(hits for hits in found)


@proves("erasing.lists")
async def test_no_list_walks_over_deleted_sessions(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path / "ledger.db"):
        pass
    connection = apsw.Connection(str(tmp_path / "ledger.db"))
    plans = []
    for tests in ("", "kind = ? AND", "namespace = ? AND", "namespace = ? AND kind = ? AND"):
        text = f"EXPLAIN QUERY PLAN SELECT * FROM sessions WHERE {tests} {NOT_DELETED} ORDER BY key DESC LIMIT 5"
        plans += [row[3] for row in connection.execute(text, ["x"] * text.count("?"))]
    connection.close()

    indexes = ["sessions_there", "sessions_by_kind (", "sessions_by_namespace (", "sessions_by_namespace_kind ("]
    assert [name in plan for name, plan in zip(indexes, plans, strict=True)] == [True] * 4
