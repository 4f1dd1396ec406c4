"""Program of the provider `local`: `python -m fidelio.providers.local.process`, with its task as a line of input.

It prints a JSON line for each piece of text and one at the end. It ends when its input does, so it never outlives its parent.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec

from fidelio.providers.local.engine import complete_chat

CONTEXT_TOKENS = 8_192


class LocalTask(msgspec.Struct, frozen=True, kw_only=True):
    """Input of the process. `schema`: the reply has to be JSON that fits it."""

    model: str
    messages: list[dict[str, str]]
    max_tokens: int
    schema: Mapping[str, Any] | None = None

    def request(self) -> dict[str, Any]:
        """The request for the engine. Temperature 0, so that the same conversation has the same reply."""
        request: dict[str, Any] = {
            "messages": self.messages,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.schema is not None:
            request["response_format"] = {"type": "json_schema", "json_schema": {"name": "result", "schema": self.schema}}
        return request


class LocalLine(msgspec.Struct, omit_defaults=True):
    """A line of output: a piece of text, or at the end an error, or how the reply ended and its tokens."""

    text: str = ""
    error: str = ""
    finish: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


def main() -> None:
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=LocalTask)
    threading.Thread(target=_end_with_input, daemon=True).start()
    printer = _Printer(_claim_output())
    printer.end.error = (
        complete_chat(task.model, task.request(), printer.add_chunk, context=CONTEXT_TOKENS) or printer.end.error
    )
    printer.print_line(printer.end)


class _Printer:
    """Prints the text of the chunks, and collects the last line."""

    def __init__(self, output: BinaryIO) -> None:
        self.end = LocalLine(finish="stop")
        self._output = output

    def add_chunk(self, chunk: Mapping[str, Any]) -> None:
        self.end.error = (chunk.get("error") or {}).get("message", self.end.error)
        for choice in chunk.get("choices") or ():
            if text := (choice.get("delta") or {}).get("content"):
                self.print_line(LocalLine(text))
            self.end.finish = choice.get("finish_reason") or self.end.finish
        if usage := chunk.get("usage"):
            self.end.input_tokens, self.end.output_tokens = usage["prompt_tokens"], usage["completion_tokens"]

    def print_line(self, line: LocalLine) -> None:
        self._output.write(msgspec.json.encode(line) + b"\n")
        self._output.flush()


def _claim_output() -> BinaryIO:
    """Standard output for our lines alone: whatever else is printed, also by native code, goes to standard error."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
