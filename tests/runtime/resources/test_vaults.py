"""Vaults: who sees them, where their values are, and where they are not."""

from __future__ import annotations

import pytest

from fidelio.errors import DocumentConflict, RecordMismatch, VaultProblem
from fidelio.ledger.paging import all_events
from fidelio.runtime.events import VAULT_VALUE_STORED
from fidelio.runtime.stores import open_store
from fidelio.runtime.vaults import Vault, Vaults
from tests.runtime.resources.support import Bench
from tests.support import proves

SECRET = "ghp_correct-horse-battery"


@pytest.fixture
def vaults(bench: Bench) -> Vaults:
    return Vaults(bench.context)


async def find_in_ledger(bench: Bench, needle: bytes) -> bool:
    """Whether the bytes are anywhere in the files of the ledger."""
    await bench.ledger.update_index()
    files = [path for path in bench.home.path.rglob("*") if path.is_file() and path.name.startswith("ledger")]
    assert files
    return any(needle in path.read_bytes() for path in files)


async def stored_values(bench: Bench) -> list[str]:
    """The digests of the sealed values that the ledger still has."""
    store = await open_store(bench.context, "vaults")
    events = await all_events(bench.ledger, store.id, types=(VAULT_VALUE_STORED,))
    return [event.id for event in events if not event.redacted]


@proves("runtime.vaults")
async def test_a_session_sees_only_the_vaults_it_is_attached_to(bench: Bench, vaults: Vaults) -> None:
    for name in ("github", "npm", "prod"):
        await vaults.add(name, SECRET, by="anna")
    session, other = await bench.start(vaults=["github"]), await bench.start("other")
    await vaults.attach(session, "npm", by="anna")

    listed = await bench.call(session, "vault_list")
    assert listed["count"] == 2
    assert [(each["displayName"], each["mountPath"]) for each in listed["vaults"]] == [
        ("github", "/vaults/github"),
        ("npm", "/vaults/npm"),
    ]
    assert all(set(each) == {"id", "displayName", "mountPath"} for each in listed["vaults"])
    assert await bench.call(other, "vault_list") == {"count": 0, "vaults": []}
    assert "/vaults/prod" not in {mount.path for mount in (await bench.spec(session)).mounts}
    await vaults.detach(session, "github", by="anna")
    assert (await bench.call(session, "vault_list"))["count"] == 1


@proves("runtime.vaults")
async def test_a_vault_is_an_empty_directory_inside(bench: Bench, vaults: Vaults) -> None:
    await vaults.add("github", SECRET, by="anna")
    session = await bench.start(vaults=["github"])
    spec = await bench.spec(session)
    listed = await bench.sandboxes.call(spec, "list_dir", {"path": "/vaults/github"})
    assert listed.output["entries"] == []
    written = await bench.sandboxes.call(spec, "write_text", {"path": "/vaults/github/x", "content": "x"})
    assert written.error is not None
    assert written.error.code == "read_only"


@proves("runtime.vaults")
async def test_the_value_is_nowhere_in_the_ledger_or_the_directory_of_the_session(bench: Bench, vaults: Vaults) -> None:
    await vaults.add("github", SECRET, by="anna")
    session = await bench.start(vaults=["github"])
    await bench.call(session, "vault_list")
    assert not await find_in_ledger(bench, SECRET.encode())
    assert not any(SECRET.encode() in path.read_bytes() for path in bench.home.path.rglob("*") if path.is_file())
    assert await find_in_ledger(bench, b"e1.")


@proves("runtime.vaults")
async def test_a_value_opens_only_for_an_attached_session(bench: Bench, vaults: Vaults) -> None:
    await vaults.add("github", SECRET, by="anna")
    attached, other = await bench.start(vaults=["github"]), await bench.start("other")
    assert await vaults.open_value((await bench.load(attached)).record, "github") == SECRET
    with pytest.raises(VaultProblem, match="not attached"):
        await vaults.open_value((await bench.load(other)).record, "github")


@proves("runtime.vaults")
async def test_a_sealed_value_that_is_moved_to_another_vault_does_not_open(
    bench: Bench, vaults: Vaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await vaults.add("github", SECRET, by="anna")
    await vaults.add("npm", "other", by="anna")
    record = (await bench.load(await bench.start(vaults=["npm"]))).record

    async def load_other(self: Vaults, _: Vault) -> str:
        content = await bench.ledger.blob(first.digest)
        assert content is not None
        return content.decode()

    monkeypatch.setattr(Vaults, "_load_sealed", load_other)
    with pytest.raises(RecordMismatch):
        await vaults.open_value(record, "npm")


@proves("runtime.vaults", "runtime.vault-erasure")
async def test_values_are_sealed_anew_after_a_key_rotation(bench: Bench, vaults: Vaults) -> None:
    for name in ("github", "npm"):
        await vaults.add(name, f"{SECRET}-{name}", by="anna")
    record = (await bench.load(await bench.start(vaults=["github", "npm"]))).record
    old = bench.keys.active().kid
    new = bench.keys.rotate().kid
    # The first use after the rotation seals a value anew; the others wait for `reseal`.
    assert await vaults.open_value(record, "github") == f"{SECRET}-github"

    assert await vaults.reseal(by="anna") == 1
    assert await vaults.reseal(by="anna") == 0

    assert [await vaults.open_value(record, name) for name in ("github", "npm")] == [f"{SECRET}-github", f"{SECRET}-npm"]
    blobs = [await bench.ledger.blob(vault.digest) for vault in await vaults.list()]
    assert all(blob is not None and f"e1.{new}.".encode() in blob for blob in blobs)
    assert old != new
    assert len(await stored_values(bench)) == 2


@proves("runtime.vault-erasure")
async def test_a_replaced_and_a_removed_value_are_erased(bench: Bench, vaults: Vaults) -> None:
    first = await vaults.add("github", "one", by="anna")
    with pytest.raises(VaultProblem, match="exists"):
        await vaults.add("github", "two", by="anna")
    second = await vaults.add("github", "two", by="anna", replaces=True)
    assert (first.id, await bench.ledger.blob(first.digest)) == (second.id, None)

    await vaults.remove("github", by="anna")
    assert await bench.ledger.blob(second.digest) is None
    assert await stored_values(bench) == []
    assert await vaults.list() == ()
    with pytest.raises(VaultProblem, match="no vault 'github'"):
        await vaults.remove("github", by="anna")


@proves("runtime.vaults")
async def test_a_removed_vault_disappears_from_attached_sessions_and_a_new_one_is_another(bench: Bench, vaults: Vaults) -> None:
    first = await vaults.add("github", "one", by="anna")
    session = await bench.start(vaults=["github"])
    await vaults.remove("github", by="anna")
    assert (await bench.call(session, "vault_list"))["count"] == 0
    assert (await vaults.add("github", "two", by="anna")).id != first.id


@proves("runtime.vaults")
@pytest.mark.parametrize("name", ["", "../keys", "a/b", "a b", "x" * 61, ".", "a\0", "ü"])
async def test_a_name_that_is_no_file_name_is_refused(bench: Bench, vaults: Vaults, name: str) -> None:
    with pytest.raises(VaultProblem):
        await vaults.add(name, SECRET, by="anna")
    session = await bench.start()
    with pytest.raises(VaultProblem):
        await vaults.attach(session, name, by="anna")


@proves("runtime.vaults")
@pytest.mark.parametrize("value", ["", "a\0b", "x" * 70_000])
async def test_a_value_that_cannot_be_stored_is_refused_without_showing_it(vaults: Vaults, value: str) -> None:
    with pytest.raises(VaultProblem) as refused:
        await vaults.add("github", value, by="anna")
    assert not value or value not in str(refused.value)


@proves("runtime.vaults")
async def test_of_two_that_add_a_vault_at_once_one_wins(bench: Bench, vaults: Vaults) -> None:
    store = await open_store(bench.context, "vaults")
    await vaults.add("github", "one", by="anna")
    found = await vaults._load(store, "github")  # both have read the same state
    await vaults._write(store, found, "two", "replaced", "anna")
    with pytest.raises(DocumentConflict):
        await vaults._write(store, found, "three", "replaced", "bea")
