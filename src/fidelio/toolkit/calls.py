"""One call of a tool: the context that its handler gets, and the outcomes that it may return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec


class Done(msgspec.Struct, frozen=True):
    """A finished call: text for the model, and metadata and small structured content for the client.

    A large document goes into `text` alone; `structured` then holds only what describes it. `remarks` are further texts beside
    the first, which clients may parse.
    """

    text: str
    meta: Mapping[str, Any] = msgspec.field(default_factory=dict)
    is_error: bool = False
    structured: Mapping[str, Any] | None = None
    remarks: tuple[str, ...] = ()

    def as_result(self) -> dict[str, Any]:
        texts = (self.text, *self.remarks)
        result: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts], "isError": self.is_error}
        if self.structured is not None:
            result["structuredContent"] = dict(self.structured)
        if self.meta:
            result["_meta"] = dict(self.meta)
        return result


class Option(msgspec.Struct, frozen=True):
    """One of the answers a person can give."""

    id: str
    label: str
    description: str = ""


class AskPerson(msgspec.Struct, frozen=True):
    """A request that only a person may answer.

    `answered(option id, who)` records the answer. `waiting` is the reply when nobody could be asked now or nobody answered in
    time, and `unanswered()` records that. `elsewhere()` returns once the request was answered by other means, so that a client
    need not go on asking. `session` is the session that the request belongs to.
    """

    request_id: str
    message: str
    options: tuple[Option, ...]
    answered: Callable[[str, str], Awaitable[None]]
    waiting: Done | None = None
    elsewhere: Callable[[], Awaitable[None]] | None = None
    unanswered: Callable[[], Awaitable[None]] | None = None
    session: str = ""


Outcome = Done | AskPerson
# Turns the id of an open request into a question to the person at the client. Bound to the inbox by the composition root.
Ask = Callable[[str], Awaitable[AskPerson]]
# Receives the progress of a call: done, total, message.
Reporter = Callable[[float, float | None, str | None], Awaitable[None]]
# Renders a text or an error of ours for the client, with its commands as a person types them.
Render = Callable[[object], str]


class CallContext(msgspec.Struct):
    """What a handler knows about the call it carries out, besides the arguments. Built once per call by the front.

    `caller` is the run id that the calling agent claims, empty where the client claims none. `person_requests` are the
    requests that this call has put to a person: the handler is called again afterwards and goes on with the person's answer,
    whatever the model had passed on. The answer to a later call is treated like any other.
    """

    render: Render = str
    caller: str = ""
    reporter: Reporter | None = None
    ask_port: Ask | None = None
    person_requests: set[str] = msgspec.field(default_factory=set)

    async def ask(self, request_id: str) -> AskPerson:
        """Puts an open request to the person at the client; their answer is recorded as theirs."""
        if self.ask_port is None:
            raise RuntimeError("No inbox is bound to this call.")
        question = await self.ask_port(request_id)
        self.person_requests.add(question.request_id)
        return question

    async def report(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Reports progress; `done` grows with every report. Does nothing when the client did not ask for progress."""
        if self.reporter is not None:
            await self.reporter(done, total, message)
