"""What the process of the local model is given to do, and what it says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

NOTE = "(Written by a very small model on this machine, for trying things out. It is no useful worker; believe nothing of it.)"


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
