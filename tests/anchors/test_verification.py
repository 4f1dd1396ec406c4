"""Anchors compared with a ledger: what was changed by the owner of the database is found, everything else agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.anchors.model import parse_anchor
from fidelio.anchors.service import AnchorService
from fidelio.errors import AnchorProblem
from fidelio.home import Home
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.audit import verify_all
from fidelio.ledger.chain import ChainVerdict
from tests.anchors.conftest import cut, open_file, problems, read, remove, remove_row, rewrite, verify
from tests.ledger.postgres.fixtures import address, postgres_database, postgres_server
from tests.support import proves
from tests.support.ledgers import MovingClock, say, start

__all__ = ["address", "postgres_database", "postgres_server"]


async def fill(ledger: Ledger, *sessions: str) -> None:
    for session in sessions:
        await start(ledger, session)
        for number in range(4):
            await say(ledger, session, {"number": number})


async def all_chains_hold(ledger: Ledger) -> bool:
    return all([isinstance(verdict, ChainVerdict) async for verdict in verify_all(ledger)])


@proves("anchors.heads")
async def test_an_anchor_holds_the_head_of_every_session_also_of_deleted_ones(
    ledger: Ledger, service: AnchorService, directory: Path, clock: MovingClock
) -> None:
    await fill(ledger, "b", "a")
    await ledger.erase(["b"], actor="person:x", reason="")
    created = await service.create(str(directory))
    statement = created.anchor.statement
    rows = [await ledger.session(session) for session in ("a", "b")]

    assert statement.heads == tuple((row.id, row.last_seq, row.head.hex()) for row in rows)
    assert (statement.count, statement.position, statement.time) == (2, 11, clock.now)
    assert statement.ledger == (await ledger.events(limit=1))[0].hash.hex()
    assert parse_anchor(read(created.location), "file") == created.anchor


@proves("anchors.proof")
async def test_a_ledger_that_only_grew_agrees_on_every_database(address: str, home: Home, directory: Path) -> None:
    async with await open_ledger(address) as ledger:
        service = AnchorService(ledger, home)
        await fill(ledger, "a", "b", "c")
        await service.create(str(directory))
        await say(ledger, "a", {"later": True})
        await start(ledger, "d")
        await ledger.redact("b", [2, 3], actor="person:x", reason="")
        await ledger.erase(["c"], actor="person:x", reason="")
        await service.create(str(directory))
        verdicts = await verify(service, directory)

    assert (verdicts.holds, problems(verdicts), len(verdicts.anchors)) == (True, [], 2)


@proves("anchors.proof")
async def test_a_session_whose_chain_was_computed_again_is_named(
    ledger: Ledger, service: AnchorService, home: Home, directory: Path
) -> None:
    await fill(ledger, "a", "b")
    await service.create(str(directory))
    rewrite(home.ledger, "b", 3, '{"number":99}')
    verdicts = await verify(service, directory)

    assert await all_chains_hold(ledger)
    assert not verdicts.holds
    assert problems(verdicts) == [("rewritten", "b", 5)]


@proves("anchors.proof")
async def test_a_ledger_that_was_rewritten_from_its_first_event_is_named(
    ledger: Ledger, service: AnchorService, home: Home, directory: Path
) -> None:
    await fill(ledger, "a")
    await service.create(str(directory))
    rewrite(home.ledger, "a", 1, '{"forged":true}')

    assert problems(await verify(service, directory)) == [("ledger", "", 0), ("rewritten", "a", 5)]


@proves("anchors.proof")
async def test_a_cut_end_and_a_missing_session_are_named(
    ledger: Ledger, service: AnchorService, home: Home, directory: Path
) -> None:
    await fill(ledger, "a", "b", "c", "d")
    await service.create(str(directory))
    cut(home.ledger, "b", 4)
    remove(home.ledger, "c")
    remove_row(home.ledger, "d")

    assert await all_chains_hold(ledger)
    assert problems(await verify(service, directory)) == [("cut", "b", 5), ("missing", "c", 5), ("missing", "d", 5)]


@proves("anchors.proof")
async def test_an_end_that_was_replaced_by_other_events_is_named(
    ledger: Ledger, service: AnchorService, home: Home, directory: Path
) -> None:
    await fill(ledger, "a")
    await service.create(str(directory))
    cut(home.ledger, "a", 3)
    async with await open_ledger(str(home.ledger)) as other:
        for number in range(5):
            await say(other, "a", {"instead": number})

    assert problems(await verify(service, directory)) == [("rewritten", "a", 5)]


@proves("anchors.proof")
@pytest.mark.parametrize("moves_position", [True, False])
async def test_a_session_that_was_inserted_before_the_anchor_is_named(
    ledger: Ledger, service: AnchorService, home: Home, directory: Path, clock: MovingClock, moves_position: bool
) -> None:
    await fill(ledger, "a")
    clock.now += 3_600_000
    await service.create(str(directory))
    clock.now -= 0 if moves_position else 3_600_000
    await start(ledger, "forged")
    if moves_position:
        with open_file(home.ledger) as database, database:
            database.execute("UPDATE events SET position = 0 WHERE session = 'forged'")
            clock.now += 1

    assert ("inserted", "forged", 1) in problems(await verify(service, directory))


@proves("anchors.proof")
async def test_the_comparison_of_one_session_ignores_the_others_and_needs_it_in_the_anchor(
    ledger: Ledger, service: AnchorService, home: Home, directory: Path
) -> None:
    await fill(ledger, "a", "b")
    await service.create(str(directory))
    await fill(ledger, "later")
    rewrite(home.ledger, "b", 3, "{}")
    one, other = await verify(service, directory, session="a"), await verify(service, directory, session="later")

    assert (one.holds, problems(one)) == (True, [])
    assert (other.holds, problems(other)) == (False, [("uncovered", "later", 0)])


@proves("anchors.series")
async def test_an_anchor_that_was_removed_from_a_series_is_noticed(
    ledger: Ledger, service: AnchorService, directory: Path, tmp_path: Path
) -> None:
    await fill(ledger, "a")
    for _ in range(4):
        await service.create(str(directory))
    other = tmp_path / "other"
    other.mkdir()
    await service.create(str(other))
    whole = await verify(service, directory, other)
    (directory / "anchor-000001.json").unlink()
    without_the_first = await verify(service, directory, other)
    (directory / "anchor-000003.json").unlink()
    with_gap = await verify(service, directory, other)

    assert (whole.holds, without_the_first.holds) == (True, True)
    assert not with_gap.holds
    assert [f"before number 4 ({directory / 'anchor-000004.json'}) is missing" in gap for gap in with_gap.gaps] == [True]


@proves("anchors.series")
async def test_an_anchor_that_could_not_be_written_leaves_no_gap(
    ledger: Ledger, service: AnchorService, directory: Path
) -> None:
    await fill(ledger, "a")
    await service.create(str(directory))
    blocked = directory / "anchor-000002.json"
    blocked.write_text("")
    with pytest.raises(Exception, match="exists already"):
        await service.create(str(directory))
    blocked.unlink()
    second = await service.create(str(directory))

    assert second.anchor.statement.number == 2
    assert (await verify(service, directory)).holds


@proves("anchors.heads")
async def test_an_empty_ledger_can_be_anchored(service: AnchorService, directory: Path) -> None:
    created = await service.create(str(directory))

    assert (created.anchor.statement.heads, created.anchor.statement.ledger) == ((), "")
    assert (await verify(service, directory)).holds


@proves("anchors.proof", "chain.covers-every-session")
async def test_a_session_that_a_flag_hides_is_compared_too(
    ledger: Ledger, service: AnchorService, home: Home, directory: Path
) -> None:
    await fill(ledger, "a", "b")
    with open_file(home.ledger) as database:
        database.execute("UPDATE sessions SET deleted = 1 WHERE id = 'b'")
    created = await service.create(str(directory))
    rewrite(home.ledger, "b", 3, '{"number":99}')

    assert [head[0] for head in created.anchor.statement.heads] == ["a", "b"]
    assert problems(await verify(service, directory)) == [("rewritten", "b", 5)]


@proves("anchors.heads")
async def test_an_anchor_signs_the_whole_chain_of_a_session_whose_row_was_set_back(
    ledger: Ledger, service: AnchorService, home: Home, directory: Path
) -> None:
    await fill(ledger, "a")
    events = await ledger.events("a")
    with open_file(home.ledger) as database:
        database.execute("UPDATE sessions SET last_seq = 2, head = ?", (events[1].hash,))

    assert (await service.create(str(directory))).anchor.statement.heads == (("a", 5, events[4].hash.hex()),)


@proves("anchors.redacted-since")
async def test_what_was_redacted_after_an_anchor_is_named_and_no_contradiction(
    ledger: Ledger, service: AnchorService, directory: Path
) -> None:
    await fill(ledger, "a", "b", "c")
    await ledger.redact("c", [2], actor="person:x", reason="")
    await service.create(str(directory))
    await say(ledger, "a", {"later": True})
    await ledger.redact("a", [2, 4, 6], actor="person:x", reason="")
    await say(ledger, "c", {"later": True})

    verdicts = await verify(service, directory)

    assert (verdicts.holds, problems(verdicts)) == (True, [])
    assert verdicts.anchors[0].notes == (
        "session a: events 2, 4 redacted after this anchor; what is left of the text is not proven by it",
    )


@proves("anchors.files")
@pytest.mark.parametrize("path", ["locks", "locks/anchor.lock"])
async def test_a_home_that_cannot_be_written_is_named(
    ledger: Ledger, service: AnchorService, home: Home, directory: Path, path: str
) -> None:
    await fill(ledger, "a")
    blocked = home.path / path
    if path == "locks":
        blocked.write_text("a file in the place of the directory")
    else:
        blocked.mkdir(parents=True)

    with pytest.raises(AnchorProblem, match="cannot be written"):
        await service.create(str(directory))
