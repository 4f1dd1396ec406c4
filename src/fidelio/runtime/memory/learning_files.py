"""Files of learnings inside of a sandbox: /memory/learnings, read-only there, with a JSON object per line.

They are projections for an agent that works with files, and are never read back. A file is replaced as a whole, so that a
reader sees either the old or the new content, and only if it has changed. A state file beside the directory says which state of
the store they show.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from fidelio.runtime.memory.learnings import KINDS, Learning, list_learnings, load_network
from fidelio.runtime.specs import session_directory
from fidelio.runtime.stores import find_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

_log = logging.getLogger(__name__)
# As many learnings as the files have together: the newest.
MAX_LEARNINGS = 1_000
_DIRECTORY = "learnings"
_STATE = "learnings.state"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


async def write_learnings(context: RuntimeContext, session: LoadedRuntime) -> bool:
    """Bring the files up to date with what this session may see; False if nothing has changed in the store.

    They can be written again at any time, so a full disk does not fail the wake.
    """
    record, directory = session.record, session_directory(context, session.record)
    store = await find_store(context, "substrate", project=record.project, agent=record.agent)
    network = await load_network(context, record, unknown="host")
    state = f"{store.last_seq if store else 0} {network}"
    if _read_state(directory) == state:
        return False
    found = await list_learnings(context, record.project, record.agent, MAX_LEARNINGS, reader=record)
    try:
        await asyncio.to_thread(_write, directory, _render(found, record.agent), state)
    except OSError as error:
        _log.warning("The learnings of session %s cannot be shown as files: %s.", session.id, error.strerror)
    return True


def _render(learnings: Iterable[Learning], agent: str) -> dict[str, bytes]:
    """The files by name, a file for each kind, oldest learning first."""
    lines: dict[str, list[bytes]] = {kind: [] for kind in KINDS}
    for learning in learnings:
        lines[learning.content.kind].append(msgspec.json.encode(learning.describe(agent)) + b"\n")
    return {f"{kind}s.jsonl": b"".join(found) for kind, found in lines.items()}


def _write(directory: Path, files: Mapping[str, bytes], state: str) -> None:
    for name, content in files.items():
        target = directory / _DIRECTORY / name
        if not target.exists() or target.read_bytes() != content:
            _replace(directory, target, content)
    # Last: after a crash before it, everything is compared again.
    _replace(directory, directory / _STATE, state.encode())


def _replace(directory: Path, target: Path, content: bytes) -> None:
    """Replace a file. The draft lies outside of what the sandbox sees."""
    draft = directory / f".{target.name}.{secrets.token_hex(4)}"
    handle = os.open(draft, _NEW_FILE, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        # The sandbox may run as another user than this process, whatever the umask is.
        os.fchmod(handle, 0o644)
    draft.replace(target)


def _read_state(directory: Path) -> str:
    try:
        return (directory / _STATE).read_text("ascii")
    except (OSError, UnicodeDecodeError):
        # Without a state everything is compared.
        return ""
