"""Traces one MCP tool call through the code: `python -m scripts.walk next_activity`.

Prints the files of `fidelio` that the call enters, in order, with the first line of each docstring, from the line read on
standard input to the reply written on standard output. The server is the real one, `fidelio mcp` on SQLite in a temporary home,
run in this process with its two standard descriptors replaced by pipes; the client is a thread. The first call of its kind is
not traced, so that lazy imports and cold caches do not count.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import fidelio
from fidelio.__main__ import main as run_fidelio

PACKAGE = Path(fidelio.__file__).parent
SECONDS = 60.0
# The search index is updated in the background and may fall into one walk; the shortest is that of the call alone.
WALKS = 3
REVISION = "2025-11-25"
Json = dict[str, Any]


class Unexpected(Exception):
    """The server ended, or refused a call that has to succeed."""


@dataclass
class Recorder:
    """Collects the files of the package in order of first entry, in every thread, while `active`.

    The first is the one that reads the line: whatever is entered before that belongs to an earlier call.
    """

    active: bool = False
    files: dict[str, None] = field(default_factory=dict)
    walks: list[list[str]] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, called: object) -> None:
        if not self.active or not frame.f_code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
            return
        if event == "call" if self.files else called is os.read:
            self.files.setdefault(frame.f_code.co_filename)

    @contextmanager
    def recording(self) -> Iterator[None]:
        self.files, self.active = {}, True
        yield
        self.active = False
        if not self.files:
            raise Unexpected("Nothing was read with os.read, so it is not known where the call begins.")
        self.walks.append(list(self.files))


class Client:
    """A client at the other end of the pipes; a person there answers every question with its first option."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = os.fdopen(source, "rb")
        self._sink = os.fdopen(sink, "wb", buffering=0)
        self._sent = 0

    def close(self) -> None:
        self._sink.close()
        self._source.close()

    def initialize(self) -> None:
        capabilities: Json = {"elicitation": {"form": {}}}
        client = {"name": "walk", "version": "1"}
        self._request("initialize", protocolVersion=REVISION, capabilities=capabilities, clientInfo=client)
        self._send({"method": "notifications/initialized"})

    def call(self, tool: str, **arguments: Any) -> Json:
        """The result as data; empty where it is a text."""
        result = self._request("tools/call", name=tool, arguments=arguments)
        text = str(result["content"][0]["text"])
        if result.get("isError"):
            raise Unexpected(f"{tool} was refused: {text}")
        data = json.loads(text) if text.startswith("{") else {}
        return dict(data)

    def _request(self, method: str, **params: Any) -> Json:
        self._sent += 1
        self._send({"id": self._sent, "method": method, "params": params})
        while True:
            message = json.loads(self._source.readline() or "null")
            if message is None:
                raise Unexpected("The server has ended.")
            if "method" in message:
                self._answer(message)
            elif "error" in message:
                raise Unexpected(message["error"]["message"])
            else:
                return dict(message["result"])

    def _answer(self, asked: Json) -> None:
        option = asked["params"]["requestedSchema"]["properties"]["answer"]["oneOf"][0]["const"]
        self._send({"id": asked["id"], "result": {"action": "accept", "content": {"answer": option}}})

    def _send(self, message: Json) -> None:
        self._sink.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


# From here on: how a session of the bundled workflow `hello` comes to where a tool can be called. Each gives the arguments.


def _nothing(_: Client) -> Json:
    return {}


def _begun(client: Client) -> Json:
    return {"session_token": client.call("start_session", workflow_id="hello")["session_token"]}


def _entered(client: Client) -> Json:
    moved = client.call("next_activity", activity_id="greet", **_begun(client))
    return {"session_token": moved["session_token"]}


def _yielded(client: Client) -> Json:
    stopped = client.call("yield_checkpoint", checkpoint_id="choose-tone", **_entered(client))
    return {"checkpoint_handle": stopped["checkpoint_handle"]}


def _answered(client: Client) -> Json:
    handle = _yielded(client)
    client.call("respond_checkpoint", option_id="warm", **handle)
    return {"session_token": handle["checkpoint_handle"]}


def _resumed(client: Client) -> Json:
    token = _answered(client)
    client.call("resume_checkpoint", **token)
    return token


def _with(prepare: Callable[[Client], Json], **more: Any) -> Callable[[Client], Json]:
    return lambda client: {**prepare(client), **more}


STEPS = [{"step_id": name, "output": "Done."} for name in ("look", "ask")]
CALLS: dict[str, Callable[[Client], Json]] = {
    "discover": _nothing,
    "list_workflows": _nothing,
    "health_check": _nothing,
    "start_session": _with(_nothing, workflow_id="hello"),
    "get_workflow_status": _entered,
    "next_activity": _with(_resumed, activity_id="compose", step_manifest=STEPS, variables={"project_name": "walk"}),
    "get_trace": _entered,
    "yield_checkpoint": _with(_entered, checkpoint_id="choose-tone"),
    "resume_checkpoint": _answered,
    "present_checkpoint": _yielded,
    "respond_checkpoint": _with(_yielded, option_id="warm"),
    "get_workflow": _entered,
    "get_activity": _entered,
    "get_skills": _entered,
    "get_skill": _entered,
    "get_resource": _with(_entered, resource_id="01"),
}


def walk(tool: str) -> list[Path]:
    """The files of the package that a warm call enters, in order, relative to the package."""
    recorder, problems = Recorder(), list[BaseException]()
    with tempfile.TemporaryDirectory() as home, _environment(home), _piped() as (source, sink):

        def visit() -> None:
            client = Client(source, sink)
            try:
                _walk_warm(client, tool, recorder)
            except (Unexpected, OSError, ValueError, LookupError) as problem:
                problems.append(problem)
            finally:
                client.close()

        visitor = threading.Thread(target=visit, daemon=True)
        visitor.start()
        _serve(recorder)
    visitor.join(SECONDS)
    if problems:
        raise problems[0]
    return [Path(file).relative_to(PACKAGE) for file in min(recorder.walks, key=len)]


def _walk_warm(client: Client, tool: str, recorder: Recorder) -> None:
    client.initialize()
    client.call(tool, **CALLS[tool](client))
    for _ in range(WALKS):
        arguments = CALLS[tool](client)
        with recorder.recording():
            client.call(tool, **arguments)


def _serve(recorder: Recorder) -> None:
    """The server in this thread, to the end of its input; whatever threads it starts are recorded too."""
    sys.argv[1:] = ["mcp"]
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        run_fidelio()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@contextmanager
def _environment(home: str) -> Iterator[None]:
    """No setting of this machine counts but the home, and no reply is delayed."""
    for name in [name for name in os.environ if name.startswith("FIDELIO_")]:
        del os.environ[name]
    os.environ |= {"FIDELIO_HOME": home, "FIDELIO_MIN_RESPONSE_SECONDS": "0"}
    yield


@contextmanager
def _piped() -> Iterator[tuple[int, int]]:
    """Pipes in place of standard input and output; gives the client's ends of them."""
    real = os.dup(0), os.dup(1)
    (server_in, client_out), (client_in, server_out) = os.pipe(), os.pipe()
    for ours, standard in ((server_in, 0), (server_out, 1)):
        os.dup2(ours, standard)
        os.close(ours)
    try:
        yield client_in, client_out
    finally:
        for saved, standard in zip(real, (0, 1), strict=True):
            os.dup2(saved, standard)
            os.close(saved)


def describe(file: Path) -> str:
    """The first line of the docstring."""
    docstring = ast.get_docstring(ast.parse((PACKAGE / file).read_text("utf-8"))) or ""
    return docstring.split("\n", 1)[0]


def main(arguments: Sequence[str]) -> int:
    tool = arguments[0] if arguments else "next_activity"
    if tool not in CALLS:
        sys.exit(f"There is no tool {tool!r} to walk; there are {', '.join(CALLS)}.")
    files = walk(tool)
    width = max(len(str(file)) for file in files)
    for number, file in enumerate(files, 1):
        print(f"{number:>3}  {file!s:<{width}}  {describe(file)}")
    print(f"{tool}: {len(files)} files from the line read to the reply written.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
