"""Command line and MCP server of Fidelio as separate processes.

The compatibility suite must survive every move and rename of Python modules. So it uses only what is public and never renamed:
`python -m fidelio`, its commands, and JSON-RPC over standard input and output.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SECONDS = 60
REVISION = "2025-11-25"
# A line such as `session_token: ...`, or `workflows[3]{id,title}:` in TOON.
_HEADER = re.compile(r"^([A-Za-z_]\w*)(?:\[|:)")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Program:
    """The command `fidelio` with one home. `directory` is the working directory, `ledger` another address of the ledger.

    `seen` keeps every JSON value that a command or a tool has answered, by its call, for the snapshot of their keys.
    """

    home: Path
    directory: Path = Path("/tmp")
    python: str = sys.executable
    ledger: str = ""
    seen: dict[str, list[Any]] = field(default_factory=dict, compare=False, repr=False)

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run one command to its end and return its standard output."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.directory,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == code, f"fidelio {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        answer = json.loads(self(*arguments, "--json", code=code))
        self.seen.setdefault(_named("fidelio", *arguments), []).append(answer)
        return answer

    def lines(self, *arguments: str, code: int = 0) -> list[Json]:
        """The output of a command that prints one JSON object a line."""
        answers = [json.loads(line) for line in self(*arguments, "--json", code=code).splitlines()]
        self.seen.setdefault(_named("fidelio", *arguments), []).extend(answers)
        return answers

    def serve(self, *arguments: str) -> ServerProcess:
        """Start `fidelio mcp`; use it in a `with` block."""
        return ServerProcess(self.start("mcp", *arguments), self.seen, arguments[-1] if arguments else "sessions")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.command(*arguments), cwd=self.directory, env=self.environ(), stdin=pipe, stdout=pipe, text=True
        )

    def command(self, *arguments: str) -> list[str]:
        return [self.python, "-m", "fidelio", *arguments]

    def environ(self) -> dict[str, str]:
        """The environment without settings of the developer. The user's own library is empty."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FIDELIO_")}
        ours = {"FIDELIO_HOME": str(self.home), "FIDELIO_MIN_RESPONSE_SECONDS": "0", "XDG_DATA_HOME": str(self.home / "none")}
        return kept | ours | ({"FIDELIO_LEDGER": self.ledger} if self.ledger else {})


@dataclass(frozen=True, slots=True)
class ToolReply:
    """The result of one tool call."""

    text: str
    meta: Json
    is_error: bool
    structured: Json | None

    @property
    def token(self) -> str:
        return str(self.meta["session_token"])

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class ServerProcess:
    """A client of `fidelio mcp`. Every wait ends when the process ends; the test runner bounds the rest."""

    def __init__(self, process: subprocess.Popen[str], seen: dict[str, list[Any]], dialect: str) -> None:
        self.process = process
        self._seen, self._dialect = seen, dialect
        self._last = 0

    def __enter__(self) -> Self:
        client = {"name": "compatibility", "version": "1"}
        self.ask("initialize", protocolVersion=REVISION, capabilities={}, clientInfo=client)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(SECONDS)
        self.process.stdout.close()

    def __call__(self, tool: str, /, **arguments: Any) -> ToolReply:
        """Call a tool that is expected to succeed."""
        reply = self.attempt(tool, **arguments)
        assert not reply.is_error, f"{tool}: {reply.text}"
        return reply

    def attempt(self, tool: str, /, **arguments: Any) -> ToolReply:
        result = self.ask("tools/call", name=tool, arguments=arguments)
        text = "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
        self._seen.setdefault(f"{self._dialect} {tool}", []).append(_without_text(result, text))
        return ToolReply(text, result.get("_meta", {}), result.get("isError", False), result.get("structuredContent"))

    def tools(self) -> list[Json]:
        return list(self.ask("tools/list")["tools"])

    def ask(self, method: str, /, **params: Any) -> Json:
        self._last += 1
        self._write({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._answer()

    def kill(self) -> None:
        """End the process as a crash would: nothing is handed over."""
        self.process.kill()

    def _write(self, message: Json) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def _answer(self) -> Json:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: Json = json.loads(line)
            if message.get("id") == self._last and "method" not in message:
                assert "error" not in message, message
                return dict(message["result"])
        raise AssertionError("The server has ended without an answer.")


def _named(*words: str) -> str:
    """A command without its arguments: at most two words, of which no session and no option is one."""
    return " ".join(word for word in words[:3] if word.isalpha())


def _without_text(result: Json, text: str) -> Json:
    """A result as the snapshot wants it: JSON in the text is parsed, and of any other text the keys of its header are kept."""
    rest = {key: value for key, value in result.items() if key != "content"}
    try:
        return rest | {"text": json.loads(text)}
    except ValueError:
        header = text.partition("\n\n")[0].splitlines()
        return rest | {"header": {found[0]: None for line in header if (found := _HEADER.findall(line))}}
