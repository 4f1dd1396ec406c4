"""Properties of the conversation: whatever happened in a session, the vendors accept it, and nothing in it is lost or moves."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fidelio.providers.model import TextBlock, ToolResultBlock, ToolUseBlock
from fidelio.runtime.wakes.compaction import ask_for_summary, find_cut
from fidelio.runtime.wakes.conversation import Conversation, ConversationReader, count_characters, load_conversation
from tests.runtime.simulation.histories import (
    SESSION,
    SHAPES,
    EventHistory,
    EventList,
    WakeShape,
    as_ledger,
    find_conversation_problems,
    flatten,
)
from tests.support import proves

HISTORIES = SHAPES.map(EventHistory)


async def read(history: EventHistory, count: int | None = None, *, after: int = 0) -> Conversation:
    return await load_conversation(as_ledger(EventList(history.events, count)), SESSION, after=after)


@proves("runtime.conversation-accepted")
@given(HISTORIES)
async def test_roles_alternate_and_every_call_has_its_result_next_to_it(history: EventHistory) -> None:
    conversation = await read(history)

    assert list(find_conversation_problems(conversation.messages)) == []


@proves("runtime.conversation-accepted")
@given(HISTORIES)
async def test_nothing_that_was_said_called_or_returned_is_lost(history: EventHistory) -> None:
    blocks = flatten((await read(history)).messages)

    assert sorted(map(str, blocks)) == sorted(map(str, history.blocks))
    for kind in (TextBlock, ToolUseBlock, ToolResultBlock):
        # Within a kind the order is kept; only results move to the beginning of their message.
        assert [b for b in blocks if isinstance(b, kind)] == [b for b in history.blocks if isinstance(b, kind)]


@proves("runtime.conversation-accepted")
@given(HISTORIES, st.sets(st.integers(0, 40)))
async def test_a_conversation_of_which_events_were_redacted_is_still_accepted(
    history: EventHistory, redacted: set[int]
) -> None:
    for index in redacted & set(range(len(history.events))):
        history.events[index] = replace(history.events[index], raw=None)

    assert list(find_conversation_problems((await read(history)).messages)) == []


@proves("runtime.wake-conversation")
@given(HISTORIES)
async def test_every_request_begins_with_the_one_before(history: EventHistory) -> None:
    requests = [(await read(history, count)).messages for count in history.requests]

    for before, after in pairwise(requests):
        assert flatten(after)[: len(flatten(before))] == flatten(before)
        assert after[: len(before) - 1] == before[:-1]
    for messages in requests:
        assert messages[-1].role == "user"
        assert list(find_conversation_problems(messages)) == []


@proves("runtime.wake-conversation")
@given(HISTORIES, st.lists(st.integers(0, 60), max_size=4))
async def test_reading_on_gives_the_same_as_reading_anew(history: EventHistory, stops: list[int]) -> None:
    events = EventList(history.events, 0)
    reader = ConversationReader(as_ledger(events), SESSION)
    for stop in sorted(stops):
        events.count = min(stop, len(history.events))
        assert await reader.read() == await read(history, events.count)
    events.count = len(history.events)
    assert await reader.read() == await read(history)


def is_cut_clean(conversation: Conversation, through: int) -> bool:
    """Whether no call is separated from its result."""
    before = [part.block for part in conversation.blocks if part.seq <= through]
    called = {block.id for block in before if isinstance(block, ToolUseBlock)}
    returned = {block.tool_use_id for block in before if isinstance(block, ToolResultBlock)}
    return called == returned


@proves("runtime.context-compaction")
@given(HISTORIES, st.integers(0, 400))
async def test_a_cut_never_separates_a_call_from_its_result(history: EventHistory, room: int) -> None:
    conversation = await read(history)
    through = find_cut(conversation, room)

    if through is not None:
        assert is_cut_clean(conversation, through)
        history.compact(through, "the summary")
        rest = await read(history, after=through)
        assert list(find_conversation_problems(rest.messages)) == []
        assert flatten(rest.messages)[0] == TextBlock("the summary")


@proves("runtime.context-compaction")
@given(HISTORIES, st.integers(0, 400))
async def test_a_cut_keeps_what_fits_and_no_more_than_it_has_to(history: EventHistory, room: int) -> None:
    conversation = await read(history)
    through = find_cut(conversation, room)
    kept = [part for part in conversation.blocks if through is None or part.seq > through]
    size = sum(count_characters(part.block) for part in kept)

    # What is kept is too long only if no turn begins in it where it could be cut.
    assert size <= room or find_cut(Conversation(tuple(kept)), 0) is None


@proves("runtime.context-compaction")
@settings(max_examples=60)
@given(st.lists(SHAPES, min_size=2, max_size=4), st.lists(st.integers(0, 300), min_size=4, max_size=4))
async def test_summaries_of_summaries_lose_nothing(parts: list[list[WakeShape]], rooms: list[int]) -> None:
    history, through, contents = EventHistory(), 0, dict[str, set[str]]()
    for number, shapes in enumerate(parts):
        history.extend(shapes)
        conversation = await read(history, after=through)
        cut = find_cut(conversation, rooms[number], after=through)
        if cut is None:
            continue
        assert cut > through
        # A summary contains what it was made from, and so what an earlier summary contained.
        name = f"summary {number}"
        contents[name] = {str(part.block) for part in conversation.blocks if part.seq <= cut}
        history.compact(cut, name)
        through = cut

    found = {str(part.block) for part in (await read(history, after=through)).blocks}
    for name in reversed(list(contents)):
        if str(TextBlock(name)) in found:
            found |= contents[name]
    assert {str(block) for block in history.blocks} <= found


@proves("runtime.context-compaction")
@given(HISTORIES, st.integers(0, 400))
async def test_the_request_for_a_summary_is_one_that_vendors_accept(history: EventHistory, room: int) -> None:
    conversation = await read(history)
    through = find_cut(conversation, room)
    if through is None:
        return
    older = Conversation(tuple(part for part in conversation.blocks if part.seq <= through))
    messages = ask_for_summary(older)

    assert list(find_conversation_problems(messages)) == []
    assert messages[-1].role == "user"
    assert flatten(messages)[:-1] == flatten(older.messages)
