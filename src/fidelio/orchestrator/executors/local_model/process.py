"""Program of the local model: `python -m fidelio.orchestrator.executors.local_model.process`, with its task as a line of input.

A process of its own, because the engine is native code that can be stopped only by ending its process.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from fidelio.orchestrator.executors import line_protocol as lines
from fidelio.orchestrator.record.model import Usage
from fidelio.providers.local.engine import complete_chat

NOTE = "(Written by a very small model on this machine, for trying things out. It is no useful worker; believe nothing of it.)"
_CONTEXT_TOKENS = 4096


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Input of the process: a turn."""

    model: str
    system: str
    prompt: str
    schema: Mapping[str, Any] | None
    max_tokens: int
    threads: int

    def request(self) -> dict[str, Any]:
        """The request for the engine. Temperature 0, so that the same prompt has the same answer."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        request: dict[str, Any] = {
            "messages": [*system, {"role": "user", "content": self.prompt}],
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.schema is not None:
            schema = {"name": "result", "schema": dict(self.schema)}
            request["response_format"] = {"type": "json_schema", "json_schema": schema}
        return request


class StreamedAnswer:
    """The answer so far. Each paragraph is printed as a message as soon as it is complete."""

    def __init__(self) -> None:
        self.text = ""
        self.error = ""
        self.usage = Usage()
        self._printed = 0

    def add_chunk(self, chunk: Mapping[str, Any]) -> None:
        """Add a chunk of the engine's stream: an error, text, or usage."""
        self.error = (chunk.get("error") or {}).get("message", self.error)
        for choice in chunk.get("choices") or ():
            self.text += choice["delta"].get("content") or ""
        if used := chunk.get("usage"):
            self.usage = Usage(turns=1, input_tokens=used["prompt_tokens"], output_tokens=used["completion_tokens"])
        while (end := self.text.find("\n\n", self._printed)) >= 0:
            self.print_paragraph(end)

    def print_paragraph(self, end: int | None = None) -> None:
        paragraph = self.text[self._printed : end].strip()
        self._printed = len(self.text) if end is None else end + 2
        if paragraph:
            lines.print_line(lines.MessageLine(paragraph))


def main() -> None:
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    answer = StreamedAnswer()
    answer.error = _complete(task, answer) or answer.error
    if answer.error:
        lines.print_line(lines.FailureLine(f"The local model cannot do this: {answer.error}", "model", answer.text))
        return
    answer.print_paragraph()
    lines.print_line(lines.UsageLine(answer.usage))
    lines.print_line(lines.ResultLine(f"{NOTE}\n\n{answer.text.strip()}", _parse_json(task, answer.text)))


def _complete(task: Task, answer: StreamedAnswer) -> str:
    return complete_chat(task.model, task.request(), answer.add_chunk, context=_CONTEXT_TOKENS, threads=task.threads)


def _parse_json(task: Task, text: str) -> Any:
    """Parse the answer to a task with a schema; None without a schema or if the answer was cut off."""
    try:
        return msgspec.json.decode(text) if task.schema is not None else None
    except msgspec.DecodeError:
        return None


if __name__ == "__main__":
    main()
