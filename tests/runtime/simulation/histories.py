"""Generated histories: the events of sessions as wakes write them, with pauses, interrupts, failures and compactions.

A history is legal: whatever wakes, people and crashes can bring about, and nothing else. It is built together with what the
conversation has to contain, so that a test can compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

import msgspec
from hypothesis import strategies as st

from fidelio.ledger import Ledger
from fidelio.ledger.model import Event, NewEvent
from fidelio.providers.model import Block, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from fidelio.runtime import events as e
from fidelio.runtime.wakes import ending
from fidelio.runtime.wakes.content import store_content

SESSION = "s_history"


class HistoryTurn(msgspec.Struct, frozen=True):
    """A turn of the model: what it says, and the calls it makes, which get their results in any order."""

    thinking: bool
    text: bool
    calls: tuple[bool, ...]  # whether it is a custom tool
    order: tuple[int, ...]  # in which the results arrive
    pauses_after: int  # so many results arrive before the wake pauses; the others in another wake


class WakeShape(msgspec.Struct, frozen=True):
    """A wake: how many messages it gets, its turns, and how it ends."""

    messages: int
    turns: tuple[HistoryTurn, ...]
    end: str  # reply, failed, interrupted


@st.composite
def turns(draw: st.DrawFn) -> HistoryTurn:
    calls = tuple(draw(st.lists(st.booleans(), min_size=1, max_size=3)))
    order = tuple(draw(st.permutations(range(len(calls)))))
    return HistoryTurn(draw(st.booleans()), draw(st.booleans()), calls, order, draw(st.integers(0, len(calls))))


WAKES = st.builds(
    WakeShape,
    st.integers(1, 3),
    st.lists(turns(), max_size=3).map(tuple),
    st.sampled_from(["reply", "reply", "failed", "interrupted"]),
)
SHAPES = st.lists(WAKES, min_size=1, max_size=4)


class EventHistory:
    """Writes events. `blocks` is what the conversation has to contain, in order; `requests` are the moments of requests."""

    def __init__(self, shapes: Sequence[WakeShape] = ()) -> None:
        self.events: list[Event] = []
        self.blocks: list[Block] = []
        # How many events were on record when the model was asked.
        self.requests: list[int] = []
        self._names = 0
        self._wake = ""
        self.extend(shapes)

    def extend(self, shapes: Sequence[WakeShape]) -> None:
        for shape in shapes:
            self._write_wake(shape)

    def append(self, new: NewEvent) -> Event:
        seq = len(self.events) + 1
        raw = msgspec.json.encode(new.body).decode()
        event = Event(seq, SESSION, seq, f"e_{seq}", new.type, new.actor, seq * 1_000, raw, b"", b"", b"")
        self.events.append(event)
        return event

    def add(self, type_: str, body: dict[str, Any]) -> Event:
        return self.append(NewEvent(type=type_, body=body))

    def new_name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    def begin(self, texts: Sequence[str]) -> None:
        self._wake = self.new_name("wake_")
        content = store_content([{"type": "text", "text": text} for text in texts]).content
        for new in ending.start_wake(self._wake, {"messages": len(texts), "input": content}):
            self.append(new)
        self.blocks += map(TextBlock, texts)

    def say(self, text: str) -> None:
        self.add(e.AGENT_MESSAGE, {"content": [{"type": "text", "text": text}], "wake_id": self._wake})
        self.blocks.append(TextBlock(text))

    def end(self, reason: str) -> None:
        self.append(ending.end_wake(self._wake, "success"))
        self.append(ending.go_idle(self._wake, reason))

    def compact(self, through: int, text: str) -> None:
        content = store_content([{"type": "text", "text": text}]).content
        self.add(e.CONTEXT_COMPACTED, {"through_seq": through, "messages": 1, "input": content, "wake_id": self._wake})

    def _write_wake(self, shape: WakeShape) -> None:
        for text in (texts := [self.new_name("message ") for _ in range(shape.messages)]):
            self.add(e.USER_MESSAGE, {"content": [{"type": "text", "text": text}]})
        self.begin(texts)
        for number, turn in enumerate(shape.turns, 1):
            self.requests.append(len(self.events))
            is_last = shape.end == "interrupted" and number == len(shape.turns)
            self._write_turn(turn, is_interrupted=is_last)
        if shape.end == "reply":
            self.requests.append(len(self.events))
            self.say(self.new_name("reply "))
        self.end("end_turn")

    def _write_turn(self, turn: HistoryTurn, *, is_interrupted: bool) -> None:
        if turn.thinking:
            thought = self.new_name("thought ")
            self.add(e.AGENT_THINKING, {"text": {"text": thought}, "signature": "signed", "wake_id": self._wake})
            self.blocks.append(ThinkingBlock(thought, "signed"))
        if turn.text:
            self.say(self.new_name("word "))
        calls = [self._call(is_custom=is_custom) for is_custom in turn.calls]
        for count, index in enumerate(turn.order):
            if count == turn.pauses_after and not is_interrupted:
                self.end("requires_action")
                self.begin(())
            self._answer(calls[index], is_custom=turn.calls[index] and not is_interrupted)

    def _call(self, *, is_custom: bool) -> str:
        name = self.new_name("toolu_")
        body = {"id": name, "name": "work", "input": {"text": '{"a":1}'}, "wake_id": self._wake}
        self.add(e.CUSTOM_TOOL_USE if is_custom else e.TOOL_USE, body)
        self.blocks.append(ToolUseBlock(name, "work", {"a": 1}))
        return name

    def _answer(self, call: str, *, is_custom: bool) -> None:
        text = f"result of {call}"
        if is_custom:
            self.add(e.USER_TOOL_RESULT, {"custom_tool_use_id": call, "content": [{"type": "text", "text": text}]})
        else:
            self.add(e.TOOL_RESULT, {"tool_use_id": call, "name": "work", "is_error": False, "result": {"text": text}})
        self.blocks.append(ToolResultBlock(call, (TextBlock(text),)))


class EventList:
    """A ledger that only reads: the events of a history, up to some of them."""

    def __init__(self, events: Sequence[Event], count: int | None = None) -> None:
        self.all = list(events)
        self.count = len(self.all) if count is None else count

    async def events(self, session: str, *, after: int = 0, types: Sequence[str] = (), limit: int = 1000) -> tuple[Event, ...]:
        assert session == SESSION
        return tuple(event for event in self.all[: self.count] if event.seq > after and event.type in types)[:limit]


def as_ledger(events: EventList) -> Ledger:
    return cast("Ledger", events)


def flatten(messages: Sequence[Message]) -> list[Block]:
    return [block for message in messages for block in message.content]


def find_conversation_problems(messages: Sequence[Message]) -> Iterator[str]:
    """What a vendor would refuse about a conversation."""
    if messages and messages[0].role != "user":
        yield "it does not begin with the user"
    for number, (before, message) in enumerate(pairwise(messages), 1):
        if before.role == message.role:
            yield f"messages {number - 1} and {number} are both of the {message.role}"
    for number, message in enumerate(messages):
        calls = [block.id for block in message.content if isinstance(block, ToolUseBlock)]
        following = messages[number + 1].content if number + 1 < len(messages) else ()
        results = [block.tool_use_id for block in following if isinstance(block, ToolResultBlock)]
        if sorted(calls) != sorted(results):
            yield f"message {number} calls {calls}, and {results} are the results after it"
        kinds = [isinstance(block, ToolResultBlock) for block in following]
        if kinds != sorted(kinds, reverse=True):
            yield f"in message {number + 1} a result is not at the beginning"
        if not message.content:
            yield f"message {number} is empty"
