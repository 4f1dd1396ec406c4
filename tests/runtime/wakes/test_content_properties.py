"""Properties of content: what was sent is what the model reads, and no event grows beyond what the ledger stores."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import UsageProblem
from fidelio.ledger import Ledger
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.long_text import sanitize_text
from fidelio.ledger.model import Event, NewEvent
from fidelio.providers.model import Block, ImageBlock, TextBlock
from fidelio.runtime import events as e
from fidelio.runtime.wakes.content import IMAGES, MAX_BLOCKS, check_content, store_content
from fidelio.runtime.wakes.conversation import load_conversation
from tests.runtime.simulation.histories import SESSION, EventHistory
from tests.support import proves

# Half of what an event may hold: a wake adds notes and reasons to what was sent.
MAX_BODY = 524_288
# Short and long texts, also of characters that JSON writes as six.
TEXTS = st.tuples(st.text(min_size=1, max_size=20), st.sampled_from([1, 1, 200, 3_000])).map(lambda pair: pair[0] * pair[1])
IMAGE = st.tuples(st.sampled_from(IMAGES), st.binary(min_size=1, max_size=4_000))
BLOCKS = st.one_of(
    TEXTS.filter(lambda text: bool(sanitize_text(text).strip())).map(lambda text: {"type": "text", "text": text}),
    IMAGE.map(
        lambda pair: {
            "type": "image",
            "source": {"type": "base64", "media_type": pair[0], "data": base64.b64encode(pair[1]).decode()},
        }
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "source", "data"]), inner),
    max_leaves=6,
)


class BlobLedger:
    """A ledger that has the blobs of a message, and the wake that got it."""

    def __init__(self, event: Event, blobs: tuple[bytes, ...]) -> None:
        self._event = event
        self._blobs = {hash_blob(blob): blob for blob in blobs}

    async def events(self, session: str, *, after: int = 0, **_: Any) -> tuple[Event, ...]:
        assert session == SESSION
        return (self._event,) if after == 0 else ()

    async def blob(self, digest: str) -> bytes | None:
        return self._blobs.get(digest)


def expect(block: dict[str, Any]) -> Block:
    if block["type"] == "image":
        return ImageBlock(block["source"]["media_type"], block["source"]["data"])
    return TextBlock(sanitize_text(block["text"]))


@proves("runtime.content-stored")
@given(st.lists(BLOCKS, min_size=1, max_size=MAX_BLOCKS))
async def test_what_was_sent_is_what_the_model_reads(blocks: list[dict[str, Any]]) -> None:
    stored = store_content(check_content(blocks, "The message"))
    body = {"span_kind": "wake", "wake_id": "wake_1", "input": stored.content}
    event = EventHistory().append(NewEvent(type=e.SPAN_STARTED, body=body))
    conversation = await load_conversation(cast("Ledger", BlobLedger(event, stored.blobs)), SESSION)

    assert [part.block for part in conversation.blocks] == [expect(block) for block in blocks]
    assert set(stored.digests) == {hash_blob(blob) for blob in stored.blobs}


@proves("runtime.content-stored")
@given(st.sampled_from(["a", "\x01", "\u00e9", "😀", '"\\']), st.integers(1, 4_100), st.integers(1, MAX_BLOCKS))
def test_the_event_of_any_message_has_room_for_more(character: str, length: int, count: int) -> None:
    blocks = [{"type": "text", "text": character * length}] * count
    stored = store_content(check_content(blocks, "The message"))

    assert len(msgspec.json.encode(stored.content)) <= MAX_BODY


@proves("runtime.content-stored")
@given(JSON)
def test_any_content_is_accepted_or_refused(value: Any) -> None:
    with suppress(UsageProblem):
        checked = check_content(value, "The message")
        assert 1 <= len(checked) <= MAX_BLOCKS
        assert all(block["type"] in ("text", "image") for block in checked)


@proves("runtime.content-stored")
@pytest.mark.parametrize("value", [None, "", " ", [], [{"type": "text", "text": "x"}] * (MAX_BLOCKS + 1), "\0"])
def test_content_without_anything_to_read_is_refused(value: Any) -> None:
    if value == "\0":
        assert check_content(value, "The message") == [{"type": "text", "text": "\ufffd"}]
        return
    with pytest.raises(UsageProblem):
        check_content(value, "The message")
