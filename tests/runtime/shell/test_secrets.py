"""Encryption of secrets: what opens, what does not, and what a digest tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import KeyRingProblem, RecordMismatch
from fidelio.runtime.secrets import compute_keyed_digest, matches_keyed_digest, needs_reseal, open_sealed, seal
from fidelio.tokens.keyring import FixedKeys
from tests.support import proves

OLD, NEW = b"o" * 32, b"n" * 32
KEYS = FixedKeys(OLD)
SEALED = seal(KEYS, "shell", "s/A", "value")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@proves("runtime.secrets-sealed")
@given(TEXTS, TEXTS)
def test_a_sealed_text_opens_in_its_place_and_does_not_show_its_content(aad: str, plain: str) -> None:
    sealed = seal(KEYS, "shell", aad, plain)

    assert open_sealed(KEYS, "shell", aad, sealed) == plain
    assert len(plain) < 4 or plain not in sealed


@proves("runtime.secrets-sealed")
def test_the_same_text_is_sealed_differently_each_time() -> None:
    assert seal(KEYS, "shell", "s/A", "value") != seal(KEYS, "shell", "s/A", "value")


@proves("runtime.secrets-sealed")
@pytest.mark.parametrize(("purpose", "aad"), [("vault", "s/A"), ("shell", "s/B"), ("shell", "t/A"), ("shell", "s/A ")])
def test_a_sealed_text_does_not_open_elsewhere(purpose: str, aad: str) -> None:
    with pytest.raises(RecordMismatch):
        open_sealed(KEYS, purpose, aad, seal(KEYS, "shell", "s/A", "value"))


@proves("runtime.secrets-sealed")
@given(st.data())
def test_a_changed_text_does_not_open(data: st.DataObject) -> None:
    at = data.draw(st.integers(len("e1.abcdef."), len(SEALED) - 2))
    other = data.draw(st.sampled_from([letter for letter in "AZaz09-_" if letter != SEALED[at]]))

    with pytest.raises(RecordMismatch):
        open_sealed(KEYS, "shell", "s/A", SEALED[:at] + other + SEALED[at + 1 :])


@proves("runtime.secrets-sealed")
@pytest.mark.parametrize("text", ["", "value", "e1.", "e2.abcdef." + "A" * 40, "e1.abcdef." + "!" * 40, "e1.abcdef.AA"])
def test_a_text_that_was_never_sealed_does_not_open(text: str) -> None:
    with pytest.raises(RecordMismatch):
        open_sealed(KEYS, "shell", "s/A", text)


@proves("runtime.secrets-sealed")
@pytest.mark.parametrize("length", [38, 39, 40, 41])
def test_base64_of_any_length_is_an_error_that_says_so(length: int) -> None:
    with pytest.raises(RecordMismatch):
        open_sealed(KEYS, "shell", "s/A", f"e1.{KEYS.active().kid}." + "A" * length)


@proves("runtime.secrets-rotated")
def test_after_a_rotation_an_old_text_still_opens_and_is_found() -> None:
    sealed, rotated = seal(KEYS, "shell", "s/A", "value"), FixedKeys(NEW, OLD)

    assert open_sealed(rotated, "shell", "s/A", sealed) == "value"
    assert needs_reseal(rotated, sealed)
    assert not needs_reseal(rotated, seal(rotated, "shell", "s/A", "value"))


@proves("runtime.secrets-rotated")
def test_without_its_key_the_error_names_the_key_and_not_the_value() -> None:
    with pytest.raises(KeyRingProblem, match=KEYS.active().kid) as caught:
        open_sealed(FixedKeys(NEW), "shell", "s/A", seal(KEYS, "shell", "s/A", "hunter2"))

    assert "hunter2" not in str(caught.value)


@proves("runtime.secrets-digest")
@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_digests_are_equal_exactly_for_equal_values_of_one_name(aad: str, plain: str, aad2: str, plain2: str) -> None:
    digest = compute_keyed_digest(KEYS, "shell", aad, plain)

    assert matches_keyed_digest(KEYS, "shell", aad2, plain2, digest) == ((aad, plain) == (aad2, plain2))


@proves("runtime.secrets-digest")
def test_a_digest_of_an_earlier_key_still_matches() -> None:
    digest = compute_keyed_digest(KEYS, "shell", "s/A", "value")

    assert matches_keyed_digest(FixedKeys(NEW, OLD), "shell", "s/A", "value", digest)
    assert not matches_keyed_digest(FixedKeys(NEW), "shell", "s/A", "value", digest)
    assert not matches_keyed_digest(KEYS, "shell", "s/A", "value", "nonsense")
