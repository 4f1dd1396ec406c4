"""What a script can see of a request: the user's texts, and the results that the last message holds."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from fidelio.providers.model import Message, ModelRequest, TextBlock, ToolResultBlock, ToolUseBlock

# A text block of the user's message that the user did not write.
_NOTES = "<runtime-notes>"


class ConversationView:
    """A request as the rules of a script see it. `user`: the last text of the user. `wake`: how many there were.

    `turn`: how often the model has answered since that text.
    `answers_user`: the turn answers that text, and not results of tools or notes of the runtime.
    """

    def __init__(self, request: ModelRequest) -> None:
        texts = [text for message in request.messages if (text := _user_text(message))]
        self.user = texts[-1] if texts else ""
        self.wake = len(texts)
        last = max((number for number, message in enumerate(request.messages) if _user_text(message)), default=-1)
        self.turn = sum(message.role == "assistant" for message in request.messages[last + 1 :])
        self._results = tuple(_last_results(request))
        self.answers_user = not self._results and bool(request.messages and _user_text(request.messages[-1]))
        names = dict(_tool_names(request)) if self._results else {}
        self.tools = tuple(names.get(result.tool_use_id, "") for result in self._results)

    def find_failed(self, tool: str) -> bool | None:
        """Whether the last result of a tool is an error; None if the last message has no result of it."""
        found = [result.is_error for name, result in zip(self.tools, self._results, strict=True) if name == tool]
        return found[-1] if found else None

    @property
    def result(self) -> str:
        """The text of the last result."""
        return _join_texts(self._results[-1].content) if self._results else ""

    def find_result_field(self, path: str) -> str:
        """A field of the last result, if that is JSON; names are separated by dots. A missing field is empty."""
        try:
            value: Any = msgspec.json.decode(self.result)
        except msgspec.DecodeError:
            return ""
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is None:
            return ""
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def make_call_id(request: ModelRequest, position: int) -> str:
    """The id of a tool call: equal for equal requests, and different in every other turn of a conversation."""
    digest = blake2b(msgspec.json.encode((request.conversation, request.messages)), digest_size=6)
    return f"call_{digest.hexdigest()}_{position}"


def _user_text(message: Message) -> str:
    if message.role != "user":
        return ""
    return _join_texts(block for block in message.content if not _is_note(block))


def _join_texts(blocks: Any) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def _is_note(block: object) -> bool:
    return isinstance(block, TextBlock) and block.text.lstrip().startswith(_NOTES)


def _last_results(request: ModelRequest) -> Iterator[ToolResultBlock]:
    last = request.messages[-1].content if request.messages else ()
    return (block for block in last if isinstance(block, ToolResultBlock))


def _tool_names(request: ModelRequest) -> Iterator[tuple[str, str]]:
    blocks = (block for message in request.messages for block in message.content)
    return ((block.id, block.name) for block in blocks if isinstance(block, ToolUseBlock))
