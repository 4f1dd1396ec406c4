"""What clients and the host say to each other, besides the frames that the host forwards unread.

Each operation is a frame with `op`; its reply carries `result` or `error`. After a successful `attach` the connection belongs
to the sandbox. When the sandbox ends, the host sends a frame with id 0 that says why and how many frames it has forwarded, so
that a client knows which of its calls never left the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from fidelio.errors import FidelioError, SandboxesBusy, SandboxLost, SandboxUnavailable
from fidelio.sandbox.model import Ending, SandboxSpec

# The message id of frames that answer no request.
NOTICE = 0
# An operation is a few kilobytes: the largest has the mounts and variables of a sandbox.
MAX_OPERATION = 1 << 20


class EndNotice(msgspec.Struct, frozen=True):
    """Tells a client that its sandbox has ended after `received` frames of this connection were forwarded."""

    ending: Ending
    received: int


class Attach(msgspec.Struct, frozen=True, tag_field="op", tag="attach"):
    """Start the sandbox of a session if it is not live, and use it through this connection."""

    spec: SandboxSpec


class ReadLevel(msgspec.Struct, frozen=True, tag_field="op", tag="level"):
    """Read the level of this host."""


class ReadState(msgspec.Struct, frozen=True, tag_field="op", tag="state"):
    """Read the state of the sandbox of a session."""

    session: str


class Stop(msgspec.Struct, frozen=True, tag_field="op", tag="stop"):
    """End the sandbox of a session."""

    session: str


class ReadConnections(msgspec.Struct, frozen=True, tag_field="op", tag="connections"):
    """Read the connection log of a session after an entry of `log`, which may be that of an earlier host."""

    session: str
    after: int = 0
    log: str = ""


Operation: TypeAlias = Attach | ReadLevel | ReadState | Stop | ReadConnections


class OperationError(msgspec.Struct, frozen=True):
    """An error of the host, for the client to raise."""

    code: str
    sentence: str
    remedy: str = ""


class OperationReply(msgspec.Struct, frozen=True):
    """The reply to an operation."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: OperationError | None = None


_DECODER = msgspec.json.Decoder(Operation)
_ERRORS: Mapping[str, type[FidelioError]] = {kind.code: kind for kind in (SandboxUnavailable, SandboxLost, SandboxesBusy)}


def decode_operation(payload: bytes | bytearray) -> Operation:
    """Raises `SandboxUnavailable` for anything but an operation."""
    if len(payload) > MAX_OPERATION:
        raise SandboxUnavailable(
            f"An operation of {len(payload)} bytes is longer than {MAX_OPERATION}.", remedy="Send fewer mounts and variables."
        )
    try:
        operation: Operation = _DECODER.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SandboxUnavailable(
            f"The host of the sandboxes does not understand the operation: {error}.",
            remedy="Restart Fidelio, so that all its processes have the same version.",
        ) from error
    return operation


def encode_result(result: Any) -> bytes:
    return msgspec.json.encode(OperationReply(result=msgspec.Raw(msgspec.json.encode(result))))


def encode_error(error: FidelioError) -> bytes:
    return msgspec.json.encode(OperationReply(error=OperationError(error.code, error.sentence, str(error.remedy))))


def rebuild_error(error: OperationError) -> FidelioError:
    """The error of the host as an exception of this process."""
    return _ERRORS.get(error.code, SandboxUnavailable)(error.sentence, remedy=error.remedy)
