"""Requests to a model and its replies, independent of the model API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a model gets to see of the reply to a tool call."""

    text: str
    is_error: bool = False

    @property
    def json(self) -> Any:
        assert not self.is_error, self.text
        return json.loads(self.text)

    @property
    def token(self) -> str:
        """A small reply is JSON and has the token as a key; a document has it in a line of its own above the text."""
        assert not self.is_error, self.text
        if self.text.startswith("{"):
            return str(self.json["session_token"])
        head, _, _ = self.text.partition("\n\n")
        return dict(line.split(": ", 1) for line in head.splitlines())["session_token"]


@dataclass(frozen=True, slots=True)
class ModelTool:
    """A tool that is offered. Codex offers those of a server in a namespace; the others make it part of the name."""

    name: str
    namespace: str = ""

    @property
    def label(self) -> str:
        return f"{self.namespace}__{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Heard:
    """One request: `said` are the texts of the user, the oldest first, `seen` the results of tools, `body` all of it."""

    wire: str
    body: Json
    system: str
    said: tuple[str, ...]
    seen: tuple[Seen, ...]
    tools: tuple[ModelTool, ...]

    def tool(self, marker: str) -> ModelTool | None:
        """The tool that is called so, or ends so, or has it somewhere in its name, in this order."""
        fits: Sequence[Callable[[str], bool]] = (
            lambda label: label == marker,
            lambda label: label.endswith(marker),
            lambda label: marker in label,
        )
        return next((tool for fit in fits for tool in self.tools if fit(tool.label)), None)


@dataclass(frozen=True, slots=True)
class Spent:
    """What the model says an answer has cost, in tokens."""

    heard: int = 1
    said: int = 1


class MessageReply:
    """What a model does when it is asked."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ModelText(MessageReply):
    """A text, with which the agent's turn ends."""

    text: str
    spent: Spent = Spent()


@dataclass(frozen=True, slots=True)
class ModelCall(MessageReply):
    """Uses the tool that `tool` marks, see `Heard.tool`. Where none fits, the model says so instead."""

    tool: str
    arguments: Json = field(default_factory=dict)
    spent: Spent = Spent()


@dataclass(frozen=True, slots=True)
class Refuse(MessageReply):
    """The interface itself fails, with a status of HTTP and a sentence."""

    status: int
    sentence: str = "The model refuses."


@dataclass(frozen=True, slots=True)
class Held(MessageReply):
    """Says nothing until it is released. `reached` tells that the agent waits for it."""

    then: MessageReply
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        self.released.set()


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A call with the tool that was found for it and the id that its result will carry."""

    id: str
    tool: ModelTool
    arguments: Json
    spent: Spent


ApiAnswer = ModelText | ModelUse


class Wire(Protocol):
    """One interface to a model: what a request says, and how an answer is written."""

    def read(self, body: Json) -> Heard: ...

    def stream(self, answer: ApiAnswer, body: Json) -> Iterator[str]: ...

    def whole(self, answer: ApiAnswer, body: Json) -> Json: ...

    def refusal(self, refuse: Refuse) -> Json: ...


def data(body: Json) -> str:
    """One event of a stream that names no kinds."""
    return f"data: {json.dumps(body)}\n\n"


def event(kind: str, **body: Any) -> str:
    return f"event: {kind}\n" + data({"type": kind, **body})


def texts(content: str | Sequence[Json] | None) -> tuple[str, ...]:
    """Content is a text, or a list of parts of which some have one."""
    if isinstance(content, str):
        return (content,)
    return tuple(part["text"] for part in content or () if isinstance(part.get("text"), str))
