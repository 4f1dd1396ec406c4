"""Frames and output buffers against simpler equivalents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.sandbox.inside.frames import HEADER, MAX_PAYLOAD, FrameReader, FrameTooLarge, encode_frame
from fidelio.sandbox.inside.ring import Head, Ring
from tests.support import proves

_PIECES = st.lists(st.binary(max_size=40))
_FRAMES = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=50)), max_size=8)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut data into pieces of these sizes; the rest is the last piece."""
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


@proves("sandbox.frames")
@given(_FRAMES, st.lists(st.integers(0, 30), max_size=40))
def test_frames_arrive_unchanged_in_whatever_pieces(frames: list[tuple[int, bytes]], sizes: list[int]) -> None:
    stream = b"".join(encode_frame(number, payload) for number, payload in frames)
    reader = FrameReader()

    assert [frame for piece in cut(stream, sizes) for frame in reader.feed(piece)] == frames


@proves("sandbox.frames")
def test_a_frame_that_is_too_large_is_refused_before_its_payload() -> None:
    with pytest.raises(FrameTooLarge, match="larger than the allowed"):
        FrameReader().feed(HEADER.pack(MAX_PAYLOAD + 1, 1))
    assert FrameReader().feed(HEADER.pack(MAX_PAYLOAD, 1)) == []


@proves("sandbox.output")
@given(_PIECES, st.integers(1, 50), st.integers(0, 200), st.integers(1, 100))
def test_a_ring_keeps_the_newest_bytes_with_their_offsets(pieces: list[bytes], capacity: int, offset: int, count: int) -> None:
    ring, whole = Ring(capacity), b"".join(pieces)
    for piece in pieces:
        ring.append(piece)
    found = ring.read(offset, count, is_complete=True)

    assert ring.end == len(whole)
    assert ring.oldest == max(0, len(whole) - capacity)
    assert found.offset == min(max(offset, ring.oldest), ring.end)
    assert found.text == whole[found.offset : found.end].decode("utf-8", "replace")
    assert found.truncated == (found.end < len(whole))
    assert found.end > found.offset or found.offset == ring.end


@proves("sandbox.output")
def test_a_character_is_read_when_it_is_complete_or_when_too_few_bytes_are_asked_for() -> None:
    ring = Ring()
    ring.append("aü".encode()[:-1])
    assert ring.read(0, 10, is_complete=False).text == "a"
    assert ring.read(1, 10, is_complete=False).end == 1
    assert ring.read(1, 10, is_complete=True).text == "\ufffd"

    ring.append("ü".encode()[-1:] + b"b")
    assert ring.read(1, 10, is_complete=False).text == "üb"
    assert ring.read(1, 1, is_complete=False).text == "\ufffd"


@proves("sandbox.output")
@given(_TEXT, st.lists(st.integers(0, 9), max_size=30), st.integers(1, 30))
def test_reading_on_loses_and_repeats_nothing_while_output_grows(text: str, sizes: list[int], count: int) -> None:
    ring, read, offset = Ring(), "", 0
    for piece in cut(text.encode(), sizes):
        ring.append(piece)
        found = ring.read(offset, max(count, 4), is_complete=False)
        read, offset = read + found.text, found.end
    while (found := ring.read(offset, max(count, 4), is_complete=True)).text:
        read, offset = read + found.text, found.end

    assert read == text
    assert offset == ring.end


@proves("sandbox.output")
@given(_PIECES, st.integers(4, 50), st.integers(1, 40))
def test_a_result_shows_the_last_characters_and_where_they_begin(pieces: list[bytes], capacity: int, count: int) -> None:
    ring, whole = Ring(capacity), b"".join(pieces)
    for piece in pieces:
        ring.append(piece)
    found = ring.view(count)

    assert len(found.text) <= count
    assert found.text == whole[found.offset :].decode("utf-8", "replace")
    assert found.truncated == (found.offset > 0)
    assert found.end == len(whole)


@proves("sandbox.output")
@given(_TEXT, st.integers(1, 40))
def test_a_result_that_fits_is_whole_and_another_has_all_that_fits(text: str, count: int) -> None:
    ring = Ring()
    ring.append(text.encode())

    assert ring.view(count).text == text[-count:]
    assert ring.view(count).truncated == (len(text) > count)


@proves("sandbox.output")
@given(_TEXT, st.lists(st.integers(0, 9), max_size=30), st.integers(1, 40))
def test_the_head_is_the_first_characters(text: str, sizes: list[int], count: int) -> None:
    head = Head(count)
    for piece in cut(text.encode(), sizes):
        head.append(piece)

    assert head.view(count).text == text[:count]
    assert head.view(count).truncated == (len(text) > count)


@proves("sandbox.output")
def test_a_ring_of_an_old_command_gives_its_oldest_bytes_up() -> None:
    ring = Ring(100)
    ring.append(b"x" * 50 + b"y" * 50)
    ring.shrink(50)

    assert (ring.oldest, ring.end) == (50, 100)
    assert ring.read(0, 100, is_complete=True).text == "y" * 50
