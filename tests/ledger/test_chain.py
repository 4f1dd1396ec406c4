"""Verification of hash chains: changed, missing, repeated and reordered events, and removed last events."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fidelio.errors import ChainBroken
from fidelio.ledger.chain import ChainVerdict, hash_event, hash_session_id
from fidelio.ledger.encoding import chain_event, encode_event
from fidelio.ledger.model import Event, NewEvent
from tests.support import proves
from tests.support.chains import verify_chain

SESSION = "s_abc"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def chained(bodies: list[dict[str, str]], session: str = SESSION) -> list[Event]:
    head, events = hash_session_id(session), []
    for seq, body in enumerate(bodies, 1):
        new = NewEvent(type="note", body=body, actor="ada")
        event = chain_event(encode_event(new, now=seq), session=session, seq=seq, previous=head, position=seq)
        head = event.hash
        events.append(event)
    return events


chains = st.lists(st.dictionaries(TEXT, TEXT, max_size=3), min_size=2, max_size=8).map(chained)


def redacted(event: Event) -> Event:
    return replace(event, raw=None, salt=None)


def flipped(value: bytes, bit: int) -> bytes:
    place = bit % (len(value) * 8)
    changed = bytearray(value)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def changed(event: Event, field: str, bit: int) -> Event:
    value: Any = getattr(event, field)
    if isinstance(value, bytes):
        value = flipped(value, bit)
    elif isinstance(value, int):
        value ^= 1 << bit % 40
    else:
        place = bit % (len(value) + 1)
        value = value[:place] + chr(97 + bit % 26) + value[place:]
    changes: dict[str, Any] = {field: value}
    return replace(event, **changes)


@proves("chain.tamper")
@given(chains)
def test_an_untouched_chain_holds(events: list[Event]) -> None:
    assert verify_chain(SESSION, events) == ChainVerdict(SESSION, len(events), events[-1].hash, 0)


@proves("chain.tamper")
@given(
    chains,
    st.integers(0, 1000),
    st.sampled_from(["session", "seq", "id", "type", "actor", "time", "raw", "salt", "digest", "hash"]),
    st.integers(0, 10_000),
)
def test_any_changed_field_of_any_event_is_found_there(events: list[Event], which: int, field: str, bit: int) -> None:
    place = which % len(events)
    events[place] = changed(events[place], field, bit)

    with pytest.raises(ChainBroken) as broken:
        verify_chain(SESSION, events)
    assert broken.value.seq == place + 1
    assert f"event {place + 1}" in str(broken.value)


@proves("chain.tamper")
@given(chains, st.integers(0, 1000))
def test_a_dropped_event_is_found(events: list[Event], which: int) -> None:
    place = which % (len(events) - 1)
    del events[place]

    with pytest.raises(ChainBroken, match="is missing") as broken:
        verify_chain(SESSION, events)
    assert broken.value.seq == place + 1


@proves("chain.tamper")
@given(chains, st.integers(0, 1000))
def test_a_doubled_event_is_found(events: list[Event], which: int) -> None:
    place = which % len(events)
    events.insert(place, events[place])

    with pytest.raises(ChainBroken) as broken:
        verify_chain(SESSION, events)
    assert broken.value.seq == place + 2


@proves("chain.tamper")
@given(chains, st.integers(0, 1000))
def test_two_events_in_each_others_place_are_found(events: list[Event], which: int) -> None:
    place = which % (len(events) - 1)
    one, two = events[place], events[place + 1]
    events[place : place + 2] = [replace(two, seq=one.seq), replace(one, seq=two.seq)]

    with pytest.raises(ChainBroken) as broken:
        verify_chain(SESSION, events)
    assert broken.value.seq == place + 1


@proves("chain.tamper")
@given(chains, st.integers(0, 1000), st.booleans())
def test_a_new_body_with_a_fitting_digest_is_still_found(events: list[Event], which: int, resealed: bool) -> None:
    place = which % (len(events) - 1)
    forged = encode_event(NewEvent(type="note", body={"forged": "yes"}, actor="ada"), now=1)
    previous = events[place - 1].hash if place else hash_session_id(SESSION)
    new = chain_event(forged, session=SESSION, seq=place + 1, previous=previous, position=1)
    events[place] = new if resealed else replace(new, hash=events[place].hash)

    # Resealed, the forged event itself holds, and the lie shows at the next one.
    with pytest.raises(ChainBroken) as broken:
        verify_chain(SESSION, events)
    assert broken.value.seq == place + (2 if resealed else 1)


@proves("chain.tamper")
def test_a_chain_cannot_be_passed_off_as_that_of_another_session() -> None:
    events = [replace(event, session="s_other") for event in chained([{"a": "b"}])]

    with pytest.raises(ChainBroken):
        verify_chain("s_other", events)
    with pytest.raises(ChainBroken, match="belongs to session s_other"):
        verify_chain(SESSION, events)


@proves("chain.cut-tail")
@given(chains, st.integers(0, 1000))
def test_a_cut_tail_is_found_by_whoever_kept_a_later_head(events: list[Event], which: int) -> None:
    kept = which % len(events)
    head = events[-1].hash

    verify_chain(SESSION, events[:kept])
    with pytest.raises(ChainBroken, match="does not reach it") as broken:
        verify_chain(SESSION, events[:kept], expected_heads=[head])
    assert broken.value.seq == kept + 1
    verify_chain(SESSION, events, expected_heads=[hash_session_id(SESSION), *(event.hash for event in events)])


@proves("chain.redacted")
@given(chains, st.sets(st.integers(0, 7)))
def test_redacted_bodies_keep_the_chain_verifiable(events: list[Event], which: set[int]) -> None:
    changed_events = [redacted(event) if place in which else event for place, event in enumerate(events)]

    verdict = verify_chain(SESSION, changed_events, expected_heads=[events[-1].hash])
    assert verdict.redacted == sum(place in which for place in range(len(events)))


@proves("chain.redacted", "chain.tamper")
@given(chains, st.integers(0, 1000))
def test_a_body_without_its_salt_is_not_taken_for_redacted(events: list[Event], which: int) -> None:
    place = which % len(events)
    events[place] = replace(events[place], salt=None)

    with pytest.raises(ChainBroken, match="a body without its salt"):
        verify_chain(SESSION, events)


@proves("chain.redacted")
def test_the_same_body_has_another_digest_every_time() -> None:
    one, two = chained([{"a": "b"}, {"a": "b"}])

    assert one.raw == two.raw
    assert one.digest != two.digest


@proves("chain.format")
@given(TEXT, TEXT, TEXT, st.integers(0, 2**53))
def test_the_hash_can_be_computed_with_other_tools(id_: str, type_: str, actor: str, time: int) -> None:
    previous, digest = hash_session_id(SESSION), hashlib.sha256(b"x").digest()
    fields = ["fidelio.event.v1", previous.hex(), SESSION, 1, id_, type_, actor, time, digest.hex()]

    expected = hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).digest()
    assert hash_event(previous, SESSION, 1, id_, type_, actor, time, digest) == expected
    assert previous == hashlib.sha256(b"fidelio.session.v1:s_abc").digest()


@proves("chain.format")
def test_the_digest_is_that_of_the_salt_and_the_text() -> None:
    (event,) = chained([{"b": "ü", "a": "1"}])

    assert event.raw == '{"a":"1","b":"ü"}'
    assert event.salt is not None
    assert event.digest == hashlib.sha256(event.salt + event.raw.encode()).digest()
