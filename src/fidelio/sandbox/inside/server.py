"""The inside server: pid 1 of a sandbox. Carries out the actions of the host and reaps processes.

It reads requests from one descriptor and writes replies to it, in any order. Commands have the same user, so it protects
itself: it is not dumpable, no command inherits its descriptors, and as pid 1 it gets no signal that it has no handler for. It
trusts the host and nothing else. When the host closes the connection it ends, and the kernel ends all that is left.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from fidelio.sandbox.inside import proxy_forwarder
from fidelio.sandbox.inside.beneath import BeneathTree
from fidelio.sandbox.inside.commands import SingleCommands, Surroundings
from fidelio.sandbox.inside.failures import Failure
from fidelio.sandbox.inside.files import ACTIONS, SCANS, Action
from fidelio.sandbox.inside.frames import MAX_PAYLOAD, FrameReader, FrameTooLarge, encode_frame
from fidelio.sandbox.inside.launch_system import PR_SET_DUMPABLE, close_other_descriptors, prctl
from fidelio.sandbox.inside.loop import READ, EventLoop, QueuedWriter, Reader, close_readers, read_available
from fidelio.sandbox.inside.records import (
    ActionRequest,
    CommandLog,
    Output,
    encode_failure,
    encode_reply,
    environment_argument,
)
from fidelio.sandbox.inside.shell_actions import NO_SHELL, ShellActions
from fidelio.sandbox.inside.supervision import Supervisors
from fidelio.sandbox.inside.supervisor import PR_SET_CHILD_SUBREAPER
from fidelio.sandbox.inside.tree import PlainTree, Tree

# Beyond so many bytes of replies that the host has not read, no further request is read.
_MAX_UNSENT = 64 << 20
_SCAN_SECONDS = 10.0
# Variables of the sandbox that commands get besides those of their caller.
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "USER", "SHELL")
_NO_COMMANDS = (
    "This sandbox carries out file actions only, because the machine cannot isolate commands. "
    "The doctor of Fidelio says what it lacks."
)

_decode = json.JSONDecoder().decode
Handler = Callable[[ActionRequest], None]


class InsideServer:
    """Dispatches requests to actions. `tree_descriptors` are those that the tree needs."""

    def __init__(
        self, descriptor: int, tree: Tree, *, tree_descriptors: Sequence[int] = (), runs_commands: bool = True
    ) -> None:
        self._tree, self._tree_descriptors, self._runs_commands = tree, tree_descriptors, runs_commands
        self._loop = EventLoop()
        self._frames = FrameReader()
        self._descriptor = descriptor
        # A descriptor of its own: the loop has one callback for each.
        self._replies = QueuedWriter(self._loop, os.dup(descriptor), self._loop.stop, self._watch)
        os.set_blocking(descriptor, False)
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._shared = Surroundings(self._loop, Supervisors(self._loop), environment, tree.base)
        self._handlers: dict[str, Handler] = {"configure": self._configure, **self._command_handlers()}

    def run(self) -> None:
        self._watch()
        self._loop.run()

    def _command_handlers(self) -> dict[str, Handler]:
        log = CommandLog()
        single, shell = SingleCommands(self._shared, log), ShellActions(self._shared, log)
        handlers: dict[str, Handler] = {
            "run_command": single.run_command,
            "run_shell": single.run_shell,
            "open_persistent_shell": shell.open,
            "inspect_persistent_shell": shell.inspect,
            "close_persistent_shell": shell.close,
            "exec_persistent_shell": shell.execute,
            "wait_persistent_shell": shell.wait,
            "interrupt_persistent_shell": shell.interrupt,
            "send_input": shell.send_input,
            "read_output": lambda request: request.reply(log.read_output(request.arguments)),
        }
        return handlers if self._runs_commands else {**dict.fromkeys(handlers, _refuse), **_WITHOUT_COMMANDS}

    def _configure(self, request: ActionRequest) -> None:
        """The first request: variables that every command gets."""
        self._shared.environment.update(environment_argument(request.arguments, "environment"))
        if self._runs_commands and proxy_forwarder.is_wanted():
            self._shared.environment.update(proxy_forwarder.VARIABLES)
            proxy_forwarder.keep_running(self._loop)
        request.reply({"pid": os.getpid(), "commands": self._runs_commands})

    def _watch(self) -> None:
        self._loop.watch(self._descriptor, READ, self._receive)

    def _receive(self) -> None:
        try:
            data = read_available(self._descriptor)
            frames = self._frames.feed(data) if data else []
        except (OSError, FrameTooLarge):
            data, frames = b"", []
        if data == b"":
            # The host has ended or has closed the sandbox.
            self._loop.stop()
        for number, payload in frames:
            self._dispatch(number, payload)

    def _dispatch(self, number: int, payload: bytes) -> None:
        request = ActionRequest({}, partial(self._send, number))
        try:
            self._carry_out(request, payload)
        except (Failure, OSError) as error:
            request.fail_with(error)
        except Exception as error:  # noqa: BLE001  # an outermost boundary: an action must not end the sandbox
            sys.excepthook(*sys.exc_info())
            request.fail(Failure("internal_error", f"The action failed: {type(error).__name__}. This is a defect of Fidelio."))

    def _carry_out(self, request: ActionRequest, payload: bytes) -> None:
        action, request.arguments = _parse_request(payload)
        if action in ACTIONS:
            request.reply(ACTIONS[action](self._tree, request.arguments))
        elif action in SCANS:
            self._scan(request, SCANS[action])
        elif action in self._handlers:
            self._handlers[action](request)
        else:
            raise Failure("unknown_action", f"{action[:60]!r} is not an action of the sandbox.")

    def _scan(self, request: ActionRequest, action: Action) -> None:
        """Run an action that may be slow in a child, which is killed when its time is up."""
        read_end, write_end = os.pipe()
        received = bytearray()
        reader = Reader(self._loop, read_end, received.extend, _do_nothing)

        def end(status: int) -> None:
            close_readers([reader])
            request.answer(bytes(received)) if status == 0 else request.fail(_explain_scan(status, deadline.has_run))
            deadline.cancel()

        def run() -> None:
            close_other_descriptors((write_end, *self._tree_descriptors))
            _run_scan(self._tree, action, request.arguments, write_end)

        try:
            pid = self._loop.fork(run, end)
        except OSError:
            reader.close()
            raise
        finally:
            os.close(write_end)
        deadline = self._loop.call_later(_SCAN_SECONDS, lambda: self._loop.kill(pid, signal.SIGKILL))

    def _send(self, number: int, message: bytes) -> None:
        if len(message) > MAX_PAYLOAD:
            message = encode_failure(Failure("too_large", "The result is larger than a reply may be. Ask for less."))
        self._replies.write(encode_frame(number, message))
        if self._replies.pending > _MAX_UNSENT:
            self._loop.unwatch(self._descriptor)


def main() -> NoReturn:
    """Serve the descriptor in the first argument until the host closes it."""
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # As pid 1 this process gets no signal from inside that has no handler, and Python has one for this.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    table = json.loads(sys.argv[3]) if sys.argv[2:3] == ["--beneath"] else None
    tree = PlainTree() if table is None else BeneathTree(table)
    descriptors = [descriptor for _, descriptor, _ in table or ()]
    server = InsideServer(int(sys.argv[1]), tree, tree_descriptors=descriptors, runs_commands=table is None)
    # Objects that live for ever are not copied by a collection in a child.
    gc.freeze()
    server.run()
    os._exit(0)


def _run_scan(tree: Tree, action: Action, arguments: Output, descriptor: int) -> None:
    try:
        message = encode_reply(action(tree, arguments))
    except Failure as failure:
        message = encode_failure(failure)
    with open(descriptor, "wb") as file:
        file.write(message)


def _explain_scan(status: int, was_too_slow: bool) -> Failure:
    if was_too_slow:
        return Failure("search_too_slow", f"The search took longer than {_SCAN_SECONDS:.0f} s. Search a smaller directory.")
    if os.WIFSIGNALED(status):
        return Failure("search_lost", "A command has ended the search, or memory ran out. Try again.", retryable=True)
    return Failure("internal_error", "The search failed. This is a defect of Fidelio.")


def _parse_request(payload: bytes) -> tuple[str, Output]:
    try:
        # `json.loads` looks for the encoding of bytes first, which takes longer than a small request.
        message = _decode(payload.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Failure("invalid_request", "The request is not JSON.") from None
    action = message.get("action") if isinstance(message, dict) else None
    arguments = message.get("arguments", {}) if isinstance(message, dict) else None
    if not isinstance(action, str) or not isinstance(arguments, dict):
        raise Failure("invalid_request", "The request has no action and arguments.")
    return action, arguments


def _refuse(_request: ActionRequest) -> NoReturn:
    raise Failure("not_offered", _NO_COMMANDS)


def _inspect_none(request: ActionRequest) -> None:
    request.reply(dict(NO_SHELL))


def _do_nothing() -> None:
    """The end of the child is what counts."""


# A sandbox without commands has no shell either, and says so.
_WITHOUT_COMMANDS: dict[str, Handler] = {"inspect_persistent_shell": _inspect_none}
