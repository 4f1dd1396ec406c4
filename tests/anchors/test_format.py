"""The file of an anchor: its canonical form, its keys, and files of strangers."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fidelio.anchors import model, targets
from fidelio.anchors.model import encode_anchor, parse_anchor, sign_statement
from fidelio.anchors.service import AnchorService
from fidelio.errors import AnchorProblem, UsageProblem
from fidelio.home import Home
from fidelio.ledger import Ledger
from tests.anchors.conftest import read, verify
from tests.support import proves
from tests.support.ledgers import start

Change = Callable[[dict[str, Any]], object]


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.fixture
async def anchor(ledger: Ledger, service: AnchorService, tmp_path: Path) -> Path:
    for session in ("a", "b"):
        await start(ledger, session)
    return Path((await service.create(str(tmp_path / "anchor.json"))).location)


@proves("anchors.format")
async def test_the_documented_form_can_be_verified_without_fidelio(anchor: Path) -> None:
    content = read(anchor)
    found = json.loads(content)
    message = b"fidelio.anchor.v1\n" + compact(found["statement"])
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(found["statement"]["key"]))
    key.verify(bytes.fromhex(found["signature"]), message)

    assert content == compact(found) + b"\n"
    assert list(found["statement"]) == sorted(found["statement"])
    assert parse_anchor(content, "x").digest == hashlib.sha256(message + bytes.fromhex(found["signature"])).digest()


def _swap(anchor: dict[str, Any]) -> None:
    anchor["statement"]["heads"].reverse()


def _repeat(anchor: dict[str, Any]) -> None:
    anchor["statement"]["heads"][1][0] = "a"


@proves("anchors.format")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda anchor: anchor.update(version=2), "has version 2"),
        (lambda anchor: anchor.update(version="1"), "holds no valid anchor"),
        (lambda anchor: anchor.update(format="other"), "its format is 'other'"),
        (lambda anchor: anchor.update(more=1), "unknown field"),
        (lambda anchor: anchor.pop("signature"), "missing required field"),
        (lambda anchor: anchor.update(signature="A" * 128), "matching regex"),
        (lambda anchor: anchor["statement"].update(count=3), "lists 2 sessions and claims 3"),
        (lambda anchor: anchor["statement"].update(count=-1), "holds no valid anchor"),
        (lambda anchor: anchor["statement"].update(heads={}), "holds no valid anchor"),
        (lambda anchor: anchor["statement"].update(time=1 << 52), "holds no valid anchor"),
        (lambda anchor: anchor["statement"]["heads"][0].append(1), "holds no valid anchor"),
        (lambda anchor: anchor["statement"]["heads"][0].__setitem__(0, "a\n"), "matching regex"),
        (_swap, "is not in its place"),
        (_repeat, "lists the session a twice"),
    ],
)
async def test_a_file_with_other_content_is_a_clear_error(anchor: Path, change: Change, words: str) -> None:
    found = json.loads(read(anchor))
    change(found)

    with pytest.raises(AnchorProblem, match=words):
        parse_anchor(compact(found), "file")


@proves("anchors.format")
@pytest.mark.parametrize(
    "content", [b"", b"\0", b"\xff\xfe", b"null", b"[" * 100_000, b'{"format":' * 10_000, b"{}", b'"x"', b"1e999999"]
)
def test_a_file_that_is_no_anchor_is_a_clear_error(content: bytes) -> None:
    with pytest.raises(AnchorProblem, match="file holds no valid anchor"):
        parse_anchor(content, "file")


@proves("anchors.format")
async def test_every_truncated_and_every_differently_written_anchor_is_refused(anchor: Path) -> None:
    content = read(anchor)
    parse_anchor(content, "x")
    spaced = json.dumps(json.loads(content)).encode()
    twice = content.replace(b'"version":1', b'"version":1,"version":1')
    for other in [*(content[:length] for length in range(len(content) - 1)), spaced, twice, content + b" ", b"\n" + content]:
        with pytest.raises(AnchorProblem):
            parse_anchor(other, "x")


@proves("anchors.format")
async def test_a_huge_file_a_pipe_and_a_device_are_refused_without_reading_them(service: AnchorService, tmp_path: Path) -> None:
    pipe, huge = tmp_path / "pipe", tmp_path / "huge"
    os.mkfifo(pipe)
    with huge.open("wb") as file:
        file.truncate(model.MAX_BYTES + 1)
    with pytest.raises(AnchorProblem, match="is not a file"):
        await verify(service, pipe)
    with pytest.raises(AnchorProblem, match="is not a file"):
        await verify(service, "/dev/zero")
    with pytest.raises(AnchorProblem, match="has more than"):
        await verify(service, huge)
    with pytest.raises(AnchorProblem, match="cannot be read: No such file"):
        await verify(service, tmp_path / "missing")
    with pytest.raises(AnchorProblem, match="There is no anchor in"):
        await verify(service, tmp_path / "home")


@proves("anchors.files")
async def test_no_file_and_no_link_is_overwritten(service: AnchorService, tmp_path: Path) -> None:
    kept, link = tmp_path / "kept", tmp_path / "link"
    kept.write_text("mine")
    link.symlink_to(tmp_path / "elsewhere")
    for path in (kept, link):
        with pytest.raises(AnchorProblem, match="exists already"):
            await service.create(str(path))

    assert kept.read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


@proves("anchors.files")
async def test_a_directory_that_is_missing_is_refused_before_the_work(service: AnchorService, tmp_path: Path) -> None:
    with pytest.raises(AnchorProblem, match="There is no directory"):
        await service.create(str(tmp_path / "missing" / "anchor.json"))


@proves("anchors.keys")
async def test_the_key_is_created_on_first_use_for_its_owner_only(home: Home, service: AnchorService) -> None:
    assert not home.anchor_keys.exists()
    first = service.active_fingerprint()

    assert home.anchor_keys.stat().st_mode & 0o777 == 0o600
    assert AnchorService(service._ledger, home).active_fingerprint() == first


@proves("anchors.keys")
async def test_verifying_creates_no_key(home: Home, service: AnchorService, anchor: Path) -> None:
    home.anchor_keys.unlink()
    (verdict,) = (await verify(service, anchor)).anchors

    assert (verdict.signer, verdict.holds) == ("unknown", False)
    assert not home.anchor_keys.exists()


@proves("anchors.keys", "anchors.unknown-key")
async def test_a_rotated_key_still_verifies_and_a_pin_excludes_the_others(
    service: AnchorService, anchor: Path, tmp_path: Path
) -> None:
    old = service.active_fingerprint()
    new = service.rotate_key()
    pins = tmp_path / "pins"
    pins.write_text(f"# kept in another place\n{old}\n\n{new}  # since today\n")
    signers = {}
    for name, chosen in {"none": [], "old": [old], "new": [new], "file": [str(pins)]}.items():
        (verdict,) = (await service.verify([str(anchor)], service.trust(chosen))).anchors
        signers[name] = (verdict.signer, verdict.holds)

    assert new != old
    assert signers == {
        "none": ("home", True),
        "old": ("pinned", True),
        "new": ("unknown", False),
        "file": ("pinned", True),
    }


@proves("anchors.keys")
@pytest.mark.parametrize("pin", ["abc", "missing.txt", "A" * 64])
async def test_a_pin_that_is_neither_a_fingerprint_nor_a_file_is_refused(service: AnchorService, pin: str) -> None:
    with pytest.raises(UsageProblem, match="neither a fingerprint"):
        service.trust([pin])


@proves("anchors.keys")
@pytest.mark.parametrize("text", ["", "# nothing\n", "not a fingerprint\n", "\xff\n"])
async def test_a_file_of_pins_without_fingerprints_is_refused(service: AnchorService, tmp_path: Path, text: str) -> None:
    pins = tmp_path / "pins"
    pins.write_text(text)
    with pytest.raises(UsageProblem, match="does not consist of fingerprints"):
        service.trust([str(pins)])


@proves("anchors.unknown-key")
async def test_an_anchor_that_somebody_else_signed_or_that_was_changed_is_no_proof(
    service: AnchorService, anchor: Path, tmp_path: Path
) -> None:
    genuine = parse_anchor(read(anchor), "x")
    stranger = Ed25519PrivateKey.generate()
    key = stranger.public_key().public_bytes_raw().hex()
    theirs = sign_statement(msgspec.structs.replace(genuine.statement, key=key), stranger.private_bytes_raw())
    # The key of the home, but a signature of the stranger; a changed statement with the old signature; a key that is none.
    borrowed = msgspec.structs.replace(genuine, signature=theirs.signature)
    changed = msgspec.structs.replace(genuine, statement=msgspec.structs.replace(genuine.statement, position=99))
    no_key = msgspec.structs.replace(genuine, statement=msgspec.structs.replace(genuine.statement, key="ff" * 32))
    signers = []
    for number, forged in enumerate((theirs, borrowed, changed, no_key)):
        file = tmp_path / f"forged-{number}.json"
        file.write_bytes(encode_anchor(forged))
        verdicts = await verify(service, file)
        signers.append((verdicts.anchors[0].signer, verdicts.holds))

    assert signers == [("unknown", False), *[("forged", False)] * 3]


@proves("anchors.git")
@pytest.mark.parametrize(
    "text",
    [
        "git:",
        "git:tags/",
        "git:heads/main",
        "git:tags/-d",
        "git:tags/a..b",
        "git:tags/a/../../heads/main",
        "git:tags/a b",
        "git:tags/a.lock",
        "git:tags/a/",
        "git:tags/a*",
        "git:tags/a@{1}",
        "git:notes/a\n",
        "git:notes/--ref=x",
        "git:refs/tags/a",
        "git:tags/" + "a" * 300,
    ],
)
def test_a_name_that_git_could_take_for_something_else_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match="names no git tag or note"):
        targets.parse_target(text)
