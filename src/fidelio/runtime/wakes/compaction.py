"""Compaction: when the conversation fills the model's window, the older part becomes a summary, which is an event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fidelio.ledger.model import NewEvent
from fidelio.providers.model import Message, ModelReply, ModelRequest, TextBlock, ToolUseBlock
from fidelio.runtime import events as e
from fidelio.runtime.tools.model import event
from fidelio.runtime.wakes.content import store_content
from fidelio.runtime.wakes.conversation import Conversation, Part, count_characters
from fidelio.runtime.wakes.preparation import Prepared
from fidelio.runtime.wakes.prompt import text_block
from fidelio.runtime.wakes.updates import WakeUpdates

CHARACTERS_PER_TOKEN = 4
# The part of the window that the conversation may fill, and what is kept of it word by word afterwards.
FULL = 0.8
KEPT = 0.3
SUMMARY_TOKENS = 2_000
_INSTRUCTION = (
    "The conversation is about to be shortened. Summarise everything before this message for your own later use: the task "
    "and what the person wants, decisions, files and their state, results of commands, what failed and why, what is left "
    "to do. Be exact about names and paths. Write only the summary."
)
_OPENING = "Summary of the earlier conversation, which was shortened:\n"

Request = Callable[[Prepared, ModelRequest, str], Awaitable[tuple[ModelReply, tuple[NewEvent, ...]]]]


def estimate_tokens(prepared: Prepared, conversation: Conversation, reported: int) -> int:
    """Tokens of the next request: what the vendor reported of the last one, or an estimate if that is higher."""
    characters = prepared.fixed_characters + conversation.characters
    return max(reported, -(-characters // CHARACTERS_PER_TOKEN))


def find_cut(conversation: Conversation, room: int, *, after: int = 0) -> int | None:
    """The event up to which the conversation is summarised, so that at most `room` characters follow.

    The rest begins with a message of the user or a reply of the model, never with the result of a call that is cut off. What
    is up to `after` is a summary already.
    """
    kept, cut = 0, None
    for index in range(len(conversation.parts) - 1, 0, -1):
        kept += count_characters(conversation.parts[index].block)
        if kept > room and cut is not None:
            break
        if _is_boundary(conversation.parts, index) and conversation.parts[index - 1].seq > after:
            cut = conversation.parts[index - 1].seq
    return cut


def _is_boundary(parts: tuple[Part, ...], index: int) -> bool:
    """Whether a turn begins at a part: something else was before it, and no call is open there."""
    before, part = parts[index - 1], parts[index]
    if part.seq == before.seq or isinstance(before.block, ToolUseBlock):
        return False
    if part.role == before.role:
        return False
    return part.role == "assistant" or isinstance(part.block, TextBlock)


async def compact(updates: WakeUpdates, prepared: Prepared, conversation: Conversation, wake: str, request: Request) -> bool:
    """Shorten the conversation if the next request would fill the window; False if there was no need, or no way."""
    window, wakes = prepared.info.window, updates.record.wakes
    if estimate_tokens(prepared, conversation, wakes.context_tokens) <= window * FULL:
        return False
    through = find_cut(conversation, int(window * KEPT) * CHARACTERS_PER_TOKEN, after=wakes.compacted_seq)
    if through is None:
        return False
    older = Conversation(tuple(part for part in conversation.parts if part.seq <= through))
    messages = (*older.messages, Message("user", (TextBlock(_INSTRUCTION),)))
    asked = ModelRequest(
        model=prepared.vendor_model,
        system=prepared.system,
        messages=messages,
        # A vendor refuses calls in the conversation if no tool is declared.
        tools=prepared.declarations,
        max_tokens=min(SUMMARY_TOKENS, prepared.info.max_output),
        conversation=updates.loaded.id,
    )
    reply, span = await request(prepared, asked, "summary")
    text = reply.text.strip() or "(The model gave no summary.)"
    stored = store_content([text_block(_OPENING + text)])
    body = {"through_seq": through, "messages": len(older.messages), "input": stored.content, "wake_id": wake}
    await updates.commit([*span, event(e.CONTEXT_COMPACTED, body, blobs=stored.digests)], blobs=stored.blobs)
    return True
