"""Promotion of drafts and restoring of versions: exact bytes, exact versions, one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from fidelio.errors import DocumentConflict
from fidelio.ledger.encoding import hash_blob
from fidelio.runtime import events as e
from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.resources import IMPLEMENTATIONS
from fidelio.runtime.resources.versions import MAX_BYTES
from tests.runtime.resources.support import Bench
from tests.support import proves

PROMOTE, RESTORE, COMPARE = (
    "resources_promote_to_substrate",
    "resources_restore_version",
    "resources_compare_with_substrate",
)
CONTENTS = {
    "text": b"first\nsecond\n",
    "empty": b"",
    "binary": bytes(range(256)) * 3,
    "not UTF-8": b"caf\xe9\n",
    "NUL": b"a\0b",
    "no last newline": b"one",
}


@proves("runtime.promotion", "runtime.shared-files")
@pytest.mark.parametrize("what", CONTENTS)
async def test_a_promoted_file_is_shared_byte_for_byte(bench: Bench, what: str) -> None:
    session = await bench.start()
    (await bench.workspace(session) / "note.bin").write_bytes(CONTENTS[what])

    output = await bench.call(session, PROMOTE, sourcePath="note.bin", targetPath="notes/note.bin")

    assert output["contentHash"] == hash_blob(CONTENTS[what])
    assert output["previousVersionId"] is None
    assert output["outcomeEvaluation"]["status"] == "missing_outcome"
    await bench.spec(session)
    assert (await bench.shared() / "notes/note.bin").read_bytes() == CONTENTS[what]
    substrate = await bench.substrate()
    (version,) = await substrate.list_versions("notes/note.bin", 10)
    assert await substrate.load_content(version) == CONTENTS[what]
    assert (version.session_id, version.source_path, version.size_bytes) == (session, "note.bin", len(CONTENTS[what]))


@proves("runtime.promotion")
async def test_promotion_and_version_are_one_transaction_with_the_event_of_the_session(bench: Bench) -> None:
    session = await bench.start()
    (await bench.workspace(session) / "a.md").write_text("one\n")
    prepared = await bench.prepare(session, PROMOTE, sourcePath="a.md")
    await bench.share("a.md", b"of a person\n")

    # The state was looked at again by `run`, so the race is only visible to the commit.
    call, arguments, preparation = prepared
    with pytest.raises(Exception, match="was changed after it was looked at"):
        await bench.finish((call, arguments, preparation))

    types = [event.type for event in await bench.ledger.events(session)]
    assert e.PROMOTED not in types
    assert (await (await bench.substrate()).load("a.md")).digest == hash_blob(b"of a person\n")


@proves("runtime.promotion")
@pytest.mark.parametrize("exists", [True, False])
async def test_of_two_sessions_that_promote_one_path_at_once_exactly_one_wins(bench: Bench, exists: bool) -> None:
    if exists:
        await bench.share("plan.md", b"old\n")
    sessions = [await bench.start(f"worker-{number}") for number in range(4)]
    for number, session in enumerate(sessions):
        (await bench.workspace(session) / "plan.md").write_text(f"from {number}\n")
    prepared = [await bench.prepare(session, PROMOTE, sourcePath="plan.md", overwrite=True) for session in sessions]

    results = [await IMPLEMENTATIONS[PROMOTE].run(call, arguments, known) for call, arguments, known in prepared]
    commits = (bench.commit(call, result) for (call, _, _), result in zip(prepared, results, strict=True))
    outcomes = await asyncio.gather(*commits, return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["DocumentConflict"] * 3 + ["NoneType"]
    winner = next(number for number, outcome in enumerate(outcomes) if outcome is None)
    assert (await (await bench.substrate()).load("plan.md")).digest == hash_blob(f"from {winner}\n".encode())
    promoted = [event for session in sessions for event in await bench.ledger.events(session) if event.type == e.PROMOTED]
    assert len(promoted) == 1


@proves("runtime.promotion")
async def test_a_file_and_a_directory_of_one_name_cannot_both_be_created_at_once(bench: Bench) -> None:
    session = await bench.start()
    workspace = await bench.workspace(session)
    (workspace / "a").mkdir()
    (workspace / "a" / "b").write_text("below\n")
    (workspace / "c").write_text("flat\n")
    below = await bench.prepare(session, PROMOTE, sourcePath="a/b")
    flat = await bench.prepare(session, PROMOTE, sourcePath="c", targetPath="a")
    results = [await IMPLEMENTATIONS[PROMOTE].run(*each) for each in (below, flat)]
    await bench.commit(below[0], results[0])
    with pytest.raises(DocumentConflict):
        await bench.commit(flat[0], results[1])

    refused = await bench.refuse(session, PROMOTE, sourcePath="c", targetPath="a")
    assert refused.reason == "exists"
    assert "a/b" in str(refused)


@proves("runtime.promotion")
async def test_a_draft_that_changes_after_it_was_looked_at_is_not_shared(bench: Bench) -> None:
    session = await bench.start()
    draft = await bench.workspace(session) / "a.md"
    draft.write_text("looked at\n")
    prepared = await bench.prepare(session, PROMOTE, sourcePath="a.md")
    draft.write_text("something else\n")

    with pytest.raises(Exception, match="was changed after it was looked at") as refused:
        await bench.finish(prepared)
    assert refused.value.reason == "content_changed"  # type: ignore[attr-defined]  # a ToolRefused
    assert (await (await bench.substrate()).load("a.md")).version is None


@proves("runtime.promotion")
async def test_a_link_that_is_planted_after_the_look_leads_to_nothing(bench: Bench) -> None:
    session = await bench.start()
    draft = await bench.workspace(session) / "a.md"
    draft.write_text("looked at\n")
    prepared = await bench.prepare(session, PROMOTE, sourcePath="a.md")
    draft.unlink()
    draft.symlink_to(bench.home.keys)
    bench.keys.active()

    with pytest.raises(Exception, match=r"does not exist|looked at"):
        await bench.finish(prepared)
    draft.unlink()
    draft.symlink_to("/etc/passwd")
    refused = await bench.refuse(session, PROMOTE, sourcePath="a.md")
    assert refused.reason == "not_found"


@proves("runtime.promotion")
async def test_the_content_that_is_written_is_the_one_that_was_read_even_while_the_file_changes(bench: Bench) -> None:
    """A file that grows between two reads is either bound as it was read, or refused."""
    session = await bench.start()
    draft = await bench.workspace(session) / "big.bin"
    draft.write_bytes(b"a" * (3 << 20))
    prepared = await bench.prepare(session, PROMOTE, sourcePath="big.bin")
    reads = 0

    def change(action: str, _: Mapping[str, Any]) -> None:
        nonlocal reads
        reads += action == "read_bytes"
        if reads == 2:
            draft.write_bytes(b"b" * (3 << 20))

    bench.sandboxes.before = change
    with pytest.raises(Exception, match="was changed after it was looked at"):
        await bench.finish(prepared)


@proves("runtime.promotion")
@pytest.mark.parametrize("tool", [PROMOTE, RESTORE])
async def test_a_precondition_that_does_not_hold_is_refused_before_anybody_is_asked(bench: Bench, tool: str) -> None:
    session = await bench.start()
    version = await bench.share("a.md", b"one\n")
    (await bench.workspace(session) / "a.md").write_text("two\n")
    subject = {"sourcePath": "a.md"} if tool == PROMOTE else {"versionId": version.version_id}

    for wrong in ({"expectedVersionId": "ver_0000000000000000"}, {"expectedContentHash": "0" * 64}):
        refused = await bench.refuse(session, tool, **subject, **wrong)
        assert refused.reason == "precondition_failed"

    right = {"expectedVersionId": version.version_id, "expectedContentHash": version.content_hash}
    output = await bench.call(session, tool, **subject, **right)
    assert output["previousVersionId"] == version.version_id


@proves("runtime.promotion")
async def test_an_existing_file_is_replaced_only_when_asked_for(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\n")
    (await bench.workspace(session) / "a.md").write_text("two\n")

    assert (await bench.refuse(session, PROMOTE, sourcePath="a.md")).reason == "exists"
    await bench.call(session, PROMOTE, sourcePath="a.md", overwrite=True)
    assert len(await (await bench.substrate()).list_versions("a.md", 10)) == 2


@proves("runtime.promotion")
async def test_the_model_cannot_switch_the_gate_of_the_outcome_off(bench: Bench) -> None:
    session = await bench.start()
    version = await bench.share("a.md", b"one\n")
    (await bench.workspace(session) / "b.md").write_text("two\n")

    for tool, subject in ((PROMOTE, {"sourcePath": "b.md"}), (RESTORE, {"versionId": version.version_id})):
        assert (await bench.refuse(session, tool, **subject, requireOutcomePass=False)).reason == "outcome_gate"
        assert (await bench.refuse(session, tool, **subject, requireOutcomePass=True)).reason == "outcome_gate"
        assert await bench.prepare(session, tool, **subject)


@proves("runtime.promotion", "runtime.shared-files")
async def test_every_state_can_be_restored_also_the_one_before_the_first_promotion(bench: Bench) -> None:
    session = await bench.start()
    before = await bench.share("a.md", b"\x00before\xff")
    (await bench.workspace(session) / "a.md").write_text("after\n")
    promoted = await bench.call(session, PROMOTE, sourcePath="a.md", overwrite=True)

    restored = await bench.call(session, RESTORE, versionId=before.version_id)

    assert restored["restoredFromVersionId"] == before.version_id
    assert restored["previousVersionId"] == promoted["versionId"]
    assert restored["contentHash"] == before.content_hash
    await bench.spec(session)
    assert (await bench.shared() / "a.md").read_bytes() == b"\x00before\xff"
    listed = await bench.call(session, "resources_list_versions", targetPath="/workspace/agent/a.md")
    assert [version["origin"] for version in listed["versions"]] == ["restore", "promotion", "person"]


@proves("runtime.shared-files")
async def test_versions_stay_when_the_session_that_promoted_them_is_deleted(bench: Bench) -> None:
    session, other = await bench.start(), await bench.start("other")
    (await bench.workspace(session) / "a.bin").write_bytes(b"\x00kept")
    output = await bench.call(session, PROMOTE, sourcePath="a.bin")
    await bench.ledger.erase([session], actor="anna", reason="no longer needed")

    read = await bench.call(other, "resources_read_version", versionId=output["versionId"])
    assert (read["encoding"], read["content"]) == ("base64", "AGtlcHQ=")
    await bench.spec(other)
    assert (await bench.shared() / "a.bin").read_bytes() == b"\x00kept"


@proves("runtime.shared-files")
async def test_a_redacted_version_is_erased_and_blocks_nothing(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("kept.md", b"kept\n")
    secret = await bench.share("a.md", b"a secret that must go\n")
    await bench.spec(session)
    store = (await bench.substrate()).store.id
    (seq,) = [event.seq for event in await bench.ledger.events_naming(store, secret.version_id)]
    await bench.ledger.redact(store, [seq], actor="anna", reason="a secret")

    await bench.spec(session)
    assert [path.name for path in (await bench.shared()).iterdir()] == ["kept.md"]
    (listed,) = (await bench.call(session, "resources_list_versions", targetPath="a.md"))["versions"]
    assert "secret" not in str(listed)
    assert (await bench.refuse(session, "resources_read_version", versionId=secret.version_id)).reason == "content_erased"
    assert (await bench.refuse(session, RESTORE, versionId=secret.version_id)).reason == "content_erased"
    (await bench.workspace(session) / "a.md").write_text("clean\n")
    assert (await bench.call(session, COMPARE, sessionPath="a.md"))["identical"] is False
    await bench.call(session, PROMOTE, sourcePath="a.md", overwrite=True)
    await bench.spec(session)
    assert (await bench.shared() / "a.md").read_text() == "clean\n"


@proves("runtime.shared-files")
async def test_stores_and_environments_that_are_created_at_once_are_the_same(bench: Bench) -> None:
    opened = await asyncio.gather(*(bench.substrate() for _ in range(8)))
    assert len({each.store.id for each in opened}) == 1
    same = Environment(network="unrestricted")
    versions = await asyncio.gather(*(define(bench.context, "web", same, by="anna") for _ in range(8)))
    assert {each.version for each in versions} == {1}


@proves("runtime.shared-files")
async def test_another_agent_and_another_project_share_other_files(bench: Bench) -> None:
    version = await bench.share("a.md", b"one\n")
    stranger = await bench.start("stranger", agent="reviewer")
    elsewhere = await bench.start("elsewhere", project="/projects/other")

    for session in (stranger, elsewhere):
        assert (await bench.call(session, "resources_list_versions", targetPath="a.md"))["count"] == 0
        assert (await bench.refuse(session, "resources_read_version", versionId=version.version_id)).reason == "not_found"
        assert (await bench.refuse(session, RESTORE, versionId=version.version_id)).reason == "not_found"


@proves("runtime.resource-limit")
@pytest.mark.parametrize("tool", [PROMOTE, COMPARE])
async def test_a_file_of_ten_megabytes_is_refused_with_the_limit(bench: Bench, tool: str) -> None:
    session = await bench.start()
    with (await bench.workspace(session) / "huge.bin").open("wb") as file:
        file.truncate(10_000_000)
    subject = {"sourcePath": "huge.bin"} if tool == PROMOTE else {"sessionPath": "huge.bin"}

    refused = await bench.refuse(session, tool, **subject)

    assert refused.reason == "resource_too_large"
    assert str(MAX_BYTES) in str(refused)
    assert "10000000" in str(refused)


@proves("runtime.resource-limit")
async def test_a_file_of_exactly_the_limit_is_shared(bench: Bench) -> None:
    session = await bench.start()
    (await bench.workspace(session) / "full.bin").write_bytes(b"x" * MAX_BYTES)
    assert (await bench.call(session, PROMOTE, sourcePath="full.bin"))["bytes"] == MAX_BYTES


@proves("runtime.promotion-question")
async def test_a_person_sees_what_changes_without_control_characters(bench: Bench) -> None:
    session = await bench.start()
    await bench.share("a.md", b"one\ntwo\nthree\n")
    (await bench.workspace(session) / "a.md").write_text("one\n\x1b[2Jtwo\u202e\nthree\n")
    _, _, preparation = await bench.prepare(session, PROMOTE, sourcePath="a.md", overwrite=True)

    text = "\n".join(preparation.about)
    assert "/workspace/agent/a.md" in text
    assert "14 bytes" in text
    assert preparation.bound["contentDigest"] in text
    assert "-two" in text
    assert "+\\x1b[2Jtwo\\u202e" in text
    assert text.replace("\n", "").isprintable()


@proves("runtime.promotion-question")
async def test_a_long_difference_is_cut_and_says_so(bench: Bench) -> None:
    session = await bench.start()
    (await bench.workspace(session) / "a.md").write_text("x" * 5_000 + "\n" + "line\n" * 500)
    _, _, preparation = await bench.prepare(session, PROMOTE, sourcePath="a.md")
    assert max(map(len, preparation.about)) < 300
    assert preparation.about[-1] == "... and 462 more lines of the difference."
    assert len(preparation.about) < 60
    assert [line for line in preparation.about if line.endswith("xx ... and 4841 more characters of this line")]


@proves("runtime.promotion-question")
async def test_binary_content_is_named_and_not_shown(bench: Bench) -> None:
    session = await bench.start()
    (await bench.workspace(session) / "a.bin").write_bytes(b"\x00\x01")
    _, _, preparation = await bench.prepare(session, PROMOTE, sourcePath="a.bin")
    assert preparation.about[-1] == "The content is binary, so no difference is shown."
