"""The process of the local model: `python -m fidelio.orchestrator.executors.local_model.process`, with its task on one line.

A process of its own, because the engine is native code that can be stopped only together with its process.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec

from fidelio.orchestrator.executors import line_protocol as lines
from fidelio.orchestrator.record.model import Usage

NOTE = "(Written by a very small model on this machine, for trying things out. It is no useful worker; believe nothing of it.)"
_CONTEXT_TOKENS = 4096


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One turn."""

    model: str
    system: str
    prompt: str
    schema: Mapping[str, Any] | None
    max_tokens: int
    threads: int

    def request(self) -> dict[str, Any]:
        """The same task in the words of the engine. Nothing is left to chance, so the same prompt has the same answer."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        request: dict[str, Any] = {
            "messages": [*system, {"role": "user", "content": self.prompt}],
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.schema is not None:
            shape = {"name": "result", "schema": dict(self.schema)}
            request["response_format"] = {"type": "json_schema", "json_schema": shape}
        return request


class StreamedAnswer:
    """What the model has written so far. Each paragraph is told as soon as it is whole."""

    def __init__(self) -> None:
        self.text = ""
        self.error = ""
        self.usage = Usage()
        self._told = 0

    def add_chunk(self, piece: Mapping[str, Any]) -> None:
        """One piece of the stream of the engine: an error, some text, or what was used."""
        self.error = (piece.get("error") or {}).get("message", self.error)
        for choice in piece.get("choices") or ():
            self.text += choice["delta"].get("content") or ""
        if used := piece.get("usage"):
            self.usage = Usage(turns=1, input_tokens=used["prompt_tokens"], output_tokens=used["completion_tokens"])
        while (end := self.text.find("\n\n", self._told)) >= 0:
            self.print_paragraph(end)

    def print_paragraph(self, end: int | None = None) -> None:
        paragraph = self.text[self._told : end].strip()
        self._told = len(self.text) if end is None else end + 2
        if paragraph:
            lines.print_line(lines.MessageLine(paragraph))


def main() -> None:
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    answer = StreamedAnswer()
    try:
        _load_engine(task).handle_chat_completions(task.request(), answer.add_chunk)
    except (RuntimeError, ValueError) as error:
        answer.error = str(error)
    if answer.error:
        lines.print_line(lines.FailureLine(f"The local model cannot do this: {answer.error}", "model", answer.text))
        return
    answer.print_paragraph()
    lines.print_line(lines.UsageLine(answer.usage))
    lines.print_line(lines.ResultLine(f"{NOTE}\n\n{answer.text.strip()}", _parse_json(task, answer.text)))


def _load_engine(task: Task) -> Any:
    engine: Any = import_module("xllamacpp")
    parameters = engine.CommonParams()
    parameters.model.path = task.model
    parameters.n_ctx = _CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.cpuparams.n_threads = task.threads
    return engine.Server(parameters)


def _parse_json(task: Task, text: str) -> Any:
    """None where no data was asked for, and where the answer was cut before it was whole."""
    try:
        return msgspec.json.decode(text) if task.schema is not None else None
    except msgspec.DecodeError:
        return None


if __name__ == "__main__":
    main()
