"""What a sealed token with a compressed payload promises."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import BadToken
from fidelio.tokens.keyring import FixedKeys
from fidelio.tokens.packed import MAX_BYTES, MAX_LENGTH, PREFIX, PackedSeal
from fidelio.tokens.seal import Seal, compute_mac, encode_base64
from tests.support import proves

KEYS = FixedKeys(b"k" * 32)
SEAL = PackedSeal(KEYS, "state")


def sealed(packed: bytes) -> str:
    """Genuine, whatever the content."""
    key = KEYS.active()
    body = f"{PREFIX}{encode_base64(packed)}.{key.kid}"
    return f"{body}.{compute_mac(key, b'state', body)}"


@proves("tokens.genuine")
@given(st.binary(max_size=5000))
def test_what_was_packed_is_what_opens(content: bytes) -> None:
    assert SEAL.open(SEAL.seal(content)) == content


@proves("tokens.genuine")
def test_any_gzip_below_the_seal_is_opened() -> None:
    assert SEAL.open(sealed(gzip.compress(b"x" * 100_000))) == b"x" * 100_000


@proves("tokens.genuine", "tokens.purpose")
@pytest.mark.parametrize("other", [PackedSeal(FixedKeys(b"x" * 32), "state"), PackedSeal(KEYS, "session")])
def test_a_packed_token_of_other_keys_or_another_purpose_is_refused(other: PackedSeal) -> None:
    with pytest.raises(BadToken):
        SEAL.open(other.seal(b"content"))


@proves("tokens.one-spelling")
def test_no_changed_or_added_character_of_a_packed_token_is_accepted() -> None:
    token = SEAL.seal(b"content")
    changed = [token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :] for place in range(len(token))]

    for other in (*changed, token + "A", "A" + token, token[:-1], ""):
        with pytest.raises(BadToken):
            SEAL.open(other)


@proves("tokens.oversized")
def test_a_content_is_opened_up_to_its_limit_and_not_beyond() -> None:
    assert SEAL.open(SEAL.seal(b"x" * MAX_BYTES)) == b"x" * MAX_BYTES
    with pytest.raises(BadToken):
        SEAL.open(SEAL.seal(b"x" * (MAX_BYTES + 1)))


@proves("tokens.oversized")
def test_a_longer_text_than_any_token_is_refused_before_its_seal_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    token = sealed(b"x" * (MAX_LENGTH * 3 // 4))
    monkeypatch.setattr(KEYS, "find", pytest.fail)

    assert len(token) > MAX_LENGTH
    with pytest.raises(BadToken):
        SEAL.open(token)


@proves("tokens.genuine")
@pytest.mark.parametrize(
    "packed",
    [b"no gzip", gzip.compress(b"content")[:-1], gzip.compress(b"content") + b"more"],
    # gzip stores the time, so the values are no names: each test process would have others.
    ids=["no gzip", "cut off", "too long"],
)
def test_a_genuine_token_that_cannot_be_unpacked_is_refused(packed: bytes) -> None:
    with pytest.raises(BadToken):
        SEAL.open(sealed(packed))


@proves("tokens.opaque")
def test_the_first_characters_tell_a_packed_token_from_others() -> None:
    assert SEAL.seal(b"content").startswith(PREFIX)
    assert not Seal(KEYS, "session").seal({}).startswith(PREFIX)
