"""The conversation of a session, rebuilt from its events.

The events are the only memory of it: a wake that goes on in another process, or after a crash, sends the model exactly what was
sent before, so nothing is asked twice and the vendor's prompt cache still fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fidelio.ledger import Ledger
from fidelio.ledger.long_text import load_text
from fidelio.ledger.model import Event
from fidelio.ledger.paging import event_pages
from fidelio.providers.model import (
    Block,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from fidelio.runtime import events as e
from fidelio.runtime.wakes.content import MAX_BLOCKS, escape_json_tags, escape_tags

TYPES = (
    e.SPAN_STARTED,
    e.AGENT_MESSAGE,
    e.AGENT_THINKING,
    e.TOOL_USE,
    e.CUSTOM_TOOL_USE,
    e.TOOL_RESULT,
    e.USER_TOOL_RESULT,
    e.WORKER_RESULT,
    e.CONTEXT_COMPACTED,
)
# Results that were sent to the session.
_RECEIVED = (e.USER_TOOL_RESULT, e.WORKER_RESULT)
LOST = "The content of this part was deleted from the record."


class Part(msgspec.Struct, frozen=True):
    """A block of the conversation with the event that it comes from. `turn` is that of the model's reply, 0 for the user's."""

    role: str
    block: Block
    seq: int


class Conversation(msgspec.Struct, frozen=True):
    """The conversation so far. `last_text` is the whole text of the model's last reply, if no tool was called after it."""

    blocks: tuple[Part, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(_merge(self.blocks))

    @property
    def characters(self) -> int:
        return sum(count_characters(part.block) for part in self.blocks)

    @property
    def last_text(self) -> str:
        """The text of the model's reply with which the conversation ends; empty if it ends with something else."""
        texts = []
        for part in reversed(self.blocks):
            if part.role != "assistant" or isinstance(part.block, ToolUseBlock):
                break
            if isinstance(part.block, TextBlock):
                texts.append(part.block.text)
        return "\n".join(reversed(texts))

    @property
    def ends_with_reply(self) -> bool:
        """Whether the model has answered without calling a tool."""
        return bool(self.blocks) and self.blocks[-1].role == "assistant" and not isinstance(self.blocks[-1].block, ToolUseBlock)


class ConversationReader:
    """Reads the conversation of a session. A later read only reads what was added, because a wake reads it often."""

    def __init__(self, ledger: Ledger, session: str) -> None:
        self._ledger, self._session = ledger, session
        self._begin, self._seq = -1, 0
        self._summary: list[Part] = []
        self._blocks: list[Part] = []

    async def read(self, *, after: int = 0) -> Conversation:
        """The conversation after an event, which is the last that a compaction has summarised."""
        if after != self._begin:
            self._begin, self._seq, self._summary, self._blocks = after, after, [], []
        async for page in event_pages(self._ledger, self._session, after=self._seq, types=TYPES):
            for event in page:
                await self._add(event)
            self._seq = page[-1].seq
        return Conversation((*self._summary, *self._blocks))

    async def _add(self, event: Event) -> None:
        read = await _read(self._ledger, event)
        if event.type == e.CONTEXT_COMPACTED:
            # It stands for what was before the beginning, although it was written later.
            self._summary = read
        else:
            self._blocks += read


async def load_conversation(ledger: Ledger, session: str, *, after: int = 0) -> Conversation:
    """Read the conversation after an event, which is the last that a compaction has summarised."""
    return await ConversationReader(ledger, session).read(after=after)


async def _read(ledger: Ledger, event: Event) -> list[Part]:
    body = event.body
    if event.type in (e.SPAN_STARTED, e.CONTEXT_COMPACTED):
        # Without it a reply could be the first message, which the vendors refuse.
        content = [{"type": "text", "text": LOST}] if event.redacted else body.get("input")
        # A summary comes before everything that it does not stand for, although it was written later.
        seq = body.get("through_seq", event.seq)
        is_summary = event.type == e.CONTEXT_COMPACTED
        blocks = await _read_blocks(ledger, content, received=body.get("received", MAX_BLOCKS if is_summary else 0))
        return [Part("user", block, seq) for block in blocks]
    # A call of an external client is no part of the conversation.
    if event.type not in (e.TOOL_RESULT, *_RECEIVED) and not event.redacted and "wake_id" not in body:
        return []
    if event.type == e.AGENT_MESSAGE:
        return [Part("assistant", TextBlock(await _read_message(ledger, body)), event.seq)]
    if event.type == e.AGENT_THINKING:
        thinking = ThinkingBlock(await load_text(ledger, body.get("text")), body.get("signature", ""))
        return [] if event.redacted else [Part("assistant", thinking, event.seq)]
    if event.type in (e.TOOL_USE, e.CUSTOM_TOOL_USE):
        return [Part("assistant", await _read_use(ledger, body), event.seq)] if "id" in body else []
    return await _read_result(ledger, event, body)


async def _read_message(ledger: Ledger, body: Mapping[str, Any]) -> str:
    texts = [await load_text(ledger, item.get("stored")) if "stored" in item else item.get("text", "") for item in _items(body)]
    directive = body.get("directive")
    raw = await load_text(ledger, directive) if isinstance(directive, dict) else directive
    whole = "\n".join([*texts, *([raw] if raw else [])])
    return whole or LOST


async def _read_use(ledger: Ledger, body: Mapping[str, Any]) -> ToolUseBlock:
    raw = await load_text(ledger, body.get("input"))
    try:
        arguments = msgspec.json.decode(raw or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        arguments = {}
    return ToolUseBlock(body["id"], body.get("name", ""), arguments, body.get("problem", ""))


async def _read_result(ledger: Ledger, event: Event, body: Mapping[str, Any]) -> list[Part]:
    name = body.get("tool_use_id") or body.get("custom_tool_use_id")
    if not name:
        return []
    if event.type in _RECEIVED:
        blocks = await _read_blocks(ledger, body.get("content"), received=MAX_BLOCKS)
        content = tuple(block for block in blocks if isinstance(block, TextBlock | ImageBlock))
    else:
        content = await _read_own_result(ledger, body)
    return [Part("user", ToolResultBlock(name, content or (TextBlock("(empty)"),), bool(body.get("is_error"))), event.seq)]


async def _read_own_result(ledger: Ledger, body: Mapping[str, Any]) -> tuple[TextBlock | ImageBlock, ...]:
    """The result of a tool of ours: JSON, or text with images."""
    text = await load_text(ledger, body.get("result"))
    shown = escape_tags(text) if body.get("form") == "text" else escape_json_tags(text)
    images = await _read_blocks(ledger, body.get("images"), received=MAX_BLOCKS)
    return (TextBlock(shown or LOST), *(image for image in images if isinstance(image, ImageBlock)))


def _items(body: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    content = body.get("content")
    return [item for item in content if isinstance(item, Mapping)] if isinstance(content, list) else []


async def _read_blocks(ledger: Ledger, content: Any, *, received: int) -> list[Block]:
    """Blocks of stored content: texts, which may be stored apart, and images. The first `received` are of somebody else."""
    blocks: list[Block] = []
    for number, item in enumerate(_items({"content": content})):
        if item.get("type") == "image":
            source = item.get("source") or {}
            data = await load_text(ledger, source["stored"]) if "stored" in source else source.get("data", "")
            blocks.append(ImageBlock(source.get("media_type", "image/png"), data))
        elif text := (await load_text(ledger, item["stored"]) if "stored" in item else item.get("text", "")):
            blocks.append(TextBlock(escape_tags(text) if number < received else text))
    return blocks


def _merge(blocks: Iterable[Part]) -> Iterable[Message]:
    """Messages of alternating roles. Results of tools come first in a message of the user, as the vendors want them.

    A result whose call is not in the conversation any more, and a call without a result, would be refused by the vendors.
    """
    role, content = "", list[Block]()
    for part in _drop_unpaired(tuple(blocks)):
        if part.role != role and content:
            yield _to_message(role, content)
            content = []
        role = part.role
        content.append(part.block)
    if content:
        yield _to_message(role, content)


def _drop_unpaired(blocks: tuple[Part, ...]) -> list[Part]:
    calls = {part.block.id for part in blocks if isinstance(part.block, ToolUseBlock)}
    results = {part.block.tool_use_id for part in blocks if isinstance(part.block, ToolResultBlock)}
    return [part for part in blocks if _is_paired(part.block, calls, results)]


def _is_paired(block: Block, calls: set[str], results: set[str]) -> bool:
    if isinstance(block, ToolUseBlock):
        return block.id in results
    return not isinstance(block, ToolResultBlock) or block.tool_use_id in calls


def _to_message(role: str, blocks: list[Block]) -> Message:
    if role == "assistant":
        return Message("assistant", tuple(blocks))
    return Message("user", tuple(sorted(blocks, key=lambda block: not isinstance(block, ToolResultBlock))))


def drop_images(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Replace images in messages by their names; the same messages if they have none."""
    if not any(isinstance(block, ImageBlock | ToolResultBlock) for message in messages for block in message.content):
        return messages
    return tuple(msgspec.structs.replace(message, content=tuple(map(_drop_image, message.content))) for message in messages)


def _drop_image(block: Block) -> Block:
    if isinstance(block, ImageBlock):
        return TextBlock(f"({block.media_type}, which this model does not take)")
    if isinstance(block, ToolResultBlock) and any(isinstance(inner, ImageBlock) for inner in block.content):
        inner = tuple(found for part in block.content if isinstance(found := _drop_image(part), TextBlock))
        return msgspec.structs.replace(block, content=inner)
    return block


def count_characters(block: Block) -> int:
    """Characters that a block takes of the context. An image counts as a vendor's usual 1,600 tokens."""
    if isinstance(block, TextBlock | ThinkingBlock):
        return len(block.text)
    if isinstance(block, ToolUseBlock):
        return len(block.name) + len(msgspec.json.encode(block.input))
    if isinstance(block, ToolResultBlock):
        return sum(count_characters(inner) for inner in block.content)
    return 6_400
