"""Compaction: when the conversation fills the model's window, the older part becomes a summary, which is an event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fidelio.ledger.model import NewEvent
from fidelio.providers.model import Message, ModelProblem, ModelReply, ModelRequest, TextBlock, ToolUseBlock
from fidelio.runtime import events as e
from fidelio.runtime.tools.model import event
from fidelio.runtime.wakes.content import store_content
from fidelio.runtime.wakes.conversation import Conversation, Part, count_characters
from fidelio.runtime.wakes.preparation import Prepared
from fidelio.runtime.wakes.prompt import SYSTEM_CLOSING, SYSTEM_OPENING, text_block
from fidelio.runtime.wakes.updates import WakeUpdates

CHARACTERS_PER_TOKEN = 4
# The part of the window that the conversation may fill, and what is retained of it word by word afterwards.
FULL = 0.8
RETAINED = 0.3
SUMMARY_TOKENS = 2_000
_INSTRUCTION = (
    "The conversation is about to be shortened. Summarise everything before this message for your own later use: the task "
    "and what the person wants, decisions, files and their state, results of commands, what failed and why, what is left "
    "to do. Be exact about names and paths. Write only the summary."
)
_OPENING = "Summary of the earlier conversation, which was shortened:\n"

Request = Callable[[Prepared, ModelRequest, str], Awaitable[tuple[ModelReply, tuple[NewEvent, ...]]]]


def estimate_tokens(prepared: Prepared, conversation: Conversation, reported: int) -> int:
    """Tokens of the next request: what the vendor reported of the last request, or an estimate if that is higher."""
    characters = prepared.fixed_characters + conversation.characters
    return max(reported, -(-characters // CHARACTERS_PER_TOKEN))


def find_cut(conversation: Conversation, room: int, *, after: int = 0) -> int | None:
    """The event up to which the conversation is summarised, so that at most `room` characters follow.

    The rest begins with a message of the user or a reply of the model, never with the result of a call that is cut off. What
    is up to `after` is a summary already.
    """
    retained, cut = 0, None
    for index in range(len(conversation.blocks) - 1, 0, -1):
        retained += count_characters(conversation.blocks[index].block)
        if retained > room and cut is not None:
            break
        if _is_boundary(conversation.blocks, index) and conversation.blocks[index - 1].seq > after:
            cut = conversation.blocks[index - 1].seq
    return cut


def _is_boundary(blocks: tuple[Part, ...], index: int) -> bool:
    """Whether a turn begins at a part: something else was before it, and no call is open there."""
    before, part = blocks[index - 1], blocks[index]
    if part.seq == before.seq or isinstance(before.block, ToolUseBlock):
        return False
    if part.role == before.role:
        return False
    return part.role == "assistant" or isinstance(part.block, TextBlock)


async def compact(
    updates: WakeUpdates,
    prepared: Prepared,
    conversation: Conversation,
    wake: str,
    request: Request,
    *,
    is_forced: bool = False,
) -> bool:
    """Shorten the conversation if the next request would fill the window; False if that is not needed or not possible.

    `is_forced`: the vendor has said that it is too long, whatever its window was taken to be.
    """
    window, wakes = prepared.info.window, updates.record.wakes
    if not is_forced and estimate_tokens(prepared, conversation, wakes.context_tokens) <= window * FULL:
        return False
    room = conversation.characters // 2 if is_forced else int(window * RETAINED) * CHARACTERS_PER_TOKEN
    through = find_cut(conversation, room, after=wakes.compacted_seq)
    if through is None:
        return False
    older = Conversation(tuple(part for part in conversation.blocks if part.seq <= through))
    request_for_summary = ModelRequest(
        model=prepared.vendor_model,
        system=prepared.system,
        messages=ask_for_summary(older),
        # A vendor refuses calls in the conversation if no tool is declared.
        tools=prepared.declarations,
        max_tokens=min(SUMMARY_TOKENS, prepared.info.max_output),
        conversation=updates.loaded.id,
    )
    text, span = await _summarize(prepared, request_for_summary, request)
    # What a program has added to the instructions holds for all turns that follow, in its own words.
    system = [text_block(part) for part in find_system_texts(older)]
    stored = store_content([text_block(_OPENING + text), *system])
    body = {"through_seq": through, "messages": len(older.messages), "input": stored.content, "received": 1, "wake_id": wake}
    await updates.commit([*span, event(e.CONTEXT_COMPACTED, body, blobs=stored.digests)], blobs=stored.blobs)
    return True


def find_system_texts(conversation: Conversation) -> list[str]:
    """The marked texts with their marks. Nothing that was received can look like a mark."""
    found, is_inside = list[str](), False
    for part in conversation.blocks:
        text = part.block.text if part.role == "user" and isinstance(part.block, TextBlock) else ""
        is_inside = is_inside or text == SYSTEM_OPENING
        if is_inside and text:
            found.append(text)
        is_inside = is_inside and text != SYSTEM_CLOSING
    return found


def ask_for_summary(older: Conversation) -> tuple[Message, ...]:
    """The conversation with the instruction at its end. Two messages of the user in a row would be refused by some servers."""
    messages, instruction = older.messages, TextBlock(_INSTRUCTION)
    if messages[-1].role == "user":
        return (*messages[:-1], Message("user", (*messages[-1].content, instruction)))
    return (*messages, Message("user", (instruction,)))


async def _summarize(prepared: Prepared, asking: ModelRequest, request: Request) -> tuple[str, tuple[NewEvent, ...]]:
    """The summary of the model. What is too long even for that is dropped, rather than that the session never answers again."""
    try:
        reply, span = await request(prepared, asking, "summary")
    except ModelProblem as problem:
        if problem.kind != "context_too_long_error":
            raise
        return "(It was too long for a summary. The events of the session have all of it: session_search_context finds it.)", ()
    return reply.text.strip() or "(The model gave no summary.)", span
