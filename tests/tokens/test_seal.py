"""What a sealed token promises."""

from __future__ import annotations

import base64
import hmac
import json
import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import BadToken, ExpiredToken
from fidelio.tokens.keyring import FixedKeys, Key
from fidelio.tokens.seal import MAX_LENGTH, Seal, compute_mac, read_unverified
from tests.support import proves

KEYS = FixedKeys(b"k" * 32)
SEAL = Seal(KEYS, "session")
URL_SAFE = set(string.ascii_letters + string.digits + "-_.")
PAYLOAD = {"wf": "work-package", "act": "", "skill": "", "cond": "", "v": "3.7.0", "seq": 0, "sid": "s_0123456789ab"}
payloads = st.dictionaries(st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.text(max_size=40), max_size=8)


@proves("tokens.genuine")
@given(payloads.filter(lambda payload: "exp" not in payload))
def test_what_was_sealed_is_what_opens(payload: dict[str, object]) -> None:
    assert SEAL.open(SEAL.seal(payload), now=0) == payload


@proves("tokens.opaque")
@given(payloads)
def test_a_token_is_url_safe_and_versioned(payload: dict[str, object]) -> None:
    token = SEAL.seal(payload)

    assert set(token) <= URL_SAFE
    assert token.startswith("f1.")


@proves("tokens.opaque")
def test_a_token_shows_no_word_of_its_content() -> None:
    token = SEAL.seal(PAYLOAD)

    assert "{" not in token
    assert "work" not in token


@proves("tokens.one-spelling")
def test_no_other_character_at_any_place_is_accepted() -> None:
    token = SEAL.seal({"sid": "s_0123456789ab"})

    for place, genuine in enumerate(token):
        for other in URL_SAFE - {genuine}:
            with pytest.raises(BadToken):
                SEAL.open(token[:place] + other + token[place + 1 :], now=0)


@proves("tokens.one-spelling")
@given(st.sampled_from([" ", "\n", "=", "\0", "é", "f1."]), st.booleans())
def test_nothing_may_stand_around_a_token(extra: str, in_front: bool) -> None:
    token = SEAL.seal(PAYLOAD)

    with pytest.raises(BadToken):
        SEAL.open(extra + token if in_front else token + extra, now=0)


@proves("tokens.purpose")
def test_a_trace_token_is_no_session_token() -> None:
    with pytest.raises(BadToken):
        SEAL.open(Seal(KEYS, "trace").seal(PAYLOAD), now=0)


@proves("tokens.mutations")
def test_none_of_a_hundred_thousand_mutations_is_accepted() -> None:
    chance = random.Random(20261115)
    genuine = [SEAL.seal({**PAYLOAD, "seq": number}) for number in range(50)]

    accepted = [mutant for _ in range(100_000) if (mutant := _mutate(chance, genuine)) not in genuine and _opens(mutant)]

    assert accepted == []


def _mutate(chance: random.Random, genuine: list[str]) -> str:
    token = list(chance.choice(genuine))
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(token))
        match chance.randrange(5):
            case 0:
                token[place] = chance.choice(string.printable)
            case 1:
                del token[place : place + chance.randint(1, 8)]
            case 2:
                token.insert(place, chance.choice(string.printable + "é\0😀"))
            case 3:
                token[place:] = list(chance.choice(genuine))[place:]
            case _:
                token[place : place + 2] = reversed(token[place : place + 2])
        token = token or ["f"]
    return "".join(token)


def _opens(token: str) -> bool:
    try:
        SEAL.open(token, now=0)
    except BadToken:
        return False
    return True


@proves("tokens.mutations")
@given(st.text(max_size=200))
def test_no_text_crashes_the_check_or_the_unverified_reading(text: str) -> None:
    assert not _opens(text)
    assert read_unverified(text) is None or isinstance(read_unverified(text), dict)


@proves("tokens.expiry")
def test_a_token_opens_until_its_expiry_and_not_after() -> None:
    token = SEAL.seal(PAYLOAD, expires=1000)

    assert SEAL.open(token, now=999) == PAYLOAD
    with pytest.raises(ExpiredToken):
        SEAL.open(token, now=1000)


@proves("tokens.oversized")
def test_a_megabyte_is_refused_before_it_is_looked_at() -> None:
    token = SEAL.seal({"text": "x" * 1_000_000})

    assert len(token) > MAX_LENGTH
    with pytest.raises(BadToken):
        SEAL.open(token, now=0)
    assert read_unverified(token) is None


@proves("tokens.genuine")
def test_what_a_forged_token_claims_can_be_read_but_does_not_open() -> None:
    forged = Seal(FixedKeys(b"x" * 32), "session").seal(PAYLOAD)

    assert read_unverified(forged) == read_unverified(f"{forged}.more") == PAYLOAD
    with pytest.raises(BadToken):
        SEAL.open(forged, now=0)


@proves("tokens.genuine")
def test_deeply_nested_claims_are_no_crash() -> None:
    nested: object = []
    for _ in range(900):
        nested = [nested]

    assert read_unverified(SEAL.seal({"deep": json.dumps(nested)})) is not None


@proves("tokens.genuine")
@given(st.binary(min_size=1, max_size=100), st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_the_code_of_a_token_is_hmac_sha256_over_its_purpose_and_body(secret: bytes, body: str) -> None:
    expected = hmac.digest(secret, b"trace\0" + body.encode("utf-8"), "sha256")

    assert compute_mac(Key("kid", secret), b"trace", body) == base64.urlsafe_b64encode(expected).decode().rstrip("=")
