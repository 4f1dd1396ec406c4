"""Files in and out of the workspace of a session, for a person. Every byte goes through its sandbox: a link leads nowhere."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from fidelio.errors import ToolRefused, UsageProblem
from fidelio.runtime.specs import build_spec
from fidelio.runtime.stores import refuse_store
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.sandbox.model import WORKSPACE, SandboxSpec

MAX_BYTES = 256 << 20
UPLOADS = f"{WORKSPACE}/uploads"
_CHUNK = 1 << 20
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


async def upload_file(context: RuntimeContext, session: str, name: str, content: bytes) -> str:
    """Write a file into the workspace, below `uploads`. Returns its path there."""
    if len(content) > MAX_BYTES:
        raise UsageProblem(f"{name!r:.100} has {len(content):,} bytes.", remedy=f"Send files of up to {MAX_BYTES:,} bytes.")
    spec = await _open(context, session)
    path = f"{UPLOADS}/{_UNSAFE.sub('_', name)[-200:].lstrip('.') or 'file'}"
    await _act(context, spec, "mkdir", {"path": UPLOADS})
    for start in range(0, max(len(content), 1), _CHUNK):
        data = base64.b64encode(content[start : start + _CHUNK]).decode()
        await _act(context, spec, "write_bytes", {"path": path, "data": data, "append": start > 0})
    return path


async def download_file(context: RuntimeContext, session: str, path: str) -> bytes:
    """Read a file of the sandbox as a whole; a relative path begins in the workspace."""
    spec, content = await _open(context, session), bytearray()
    whole = path if path.startswith("/") else f"{WORKSPACE}/{path}"
    while len(content) <= MAX_BYTES:
        arguments = {"path": whole, "offset": len(content), "length": _CHUNK}
        output = await _act(context, spec, "read_bytes", arguments)
        data = _decode(output.get("data"))
        content += data
        if output.get("eof") is True or len(data) < _CHUNK:
            return bytes(content)
    raise UsageProblem(f"{path!r:.200} has more than {MAX_BYTES:,} bytes.", remedy="Let the agent split it.")


async def _open(context: RuntimeContext, session: str) -> SandboxSpec:
    loaded = await context.unit.load(session)
    refuse_store(loaded)
    return await build_spec(context, loaded)


async def _act(context: RuntimeContext, spec: SandboxSpec, action: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    result = await context.sandboxes.call(spec, action, arguments)
    if result.error is not None:
        raise ToolRefused(result.error.message, reason=result.error.code, retryable=result.error.retryable)
    return result.output


def _decode(data: object) -> bytes:
    """The bytes of a reply, which is as hostile as the agent inside."""
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) else b""
    except (binascii.Error, ValueError):
        return b""
