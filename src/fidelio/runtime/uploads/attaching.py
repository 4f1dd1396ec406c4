"""Rules of the files that a session has: where they may be, how many, and how they are added and removed.

A session keeps the content of its files by itself: deleting the uploaded file, or its expiry, takes nothing from sessions that
have it already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from fidelio.errors import SessionNotFound, UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.attachments import SessionResource
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.stores import refuse_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.uploads.files import StoredFile, StoredFiles
from fidelio.sandbox.model import PROJECT, RUNTIME_LINK, SUBSTRATE, UPLOADS, WORKSPACE

FILE = "file"
MAX_RESOURCES = 500
MAX_TOTAL = 256 << 20
MAX_PATH, MAX_PART, MAX_DEPTH = 1_000, 255, 16
_OURS = (SUBSTRATE, PROJECT, RUNTIME_LINK)


def plan_file(file: StoredFile, mount_path: str) -> dict[str, Any]:
    """The resource that a file becomes: `id`, `type` and `content`. Raises `UsageProblem` for a path that cannot be used."""
    content = {
        "file": file.id,
        "mount_path": check_mount_path(mount_path),
        "size": file.content.size,
        "chunks": list(file.content.chunks),
    }
    return {"id": new_id("sesrsc_"), "type": FILE, "content": content}


def check_mount_path(path: str) -> str:
    """The path at which a file may be: below the directory of uploads, or in the workspace outside of what Fidelio mounts."""
    names = PurePosixPath(path).parts
    if not path.startswith("/") or str(PurePosixPath(path)) != path or ".." in names or not path.isprintable():
        raise _refuse(path, "is not a plain absolute path")
    if len(path) > MAX_PATH or len(names) > MAX_DEPTH or any(len(part.encode(errors="replace")) > MAX_PART for part in names):
        raise _refuse(path, f"has more than {MAX_PATH} characters, {MAX_DEPTH} levels or {MAX_PART} bytes in a name")

    if not path.startswith((f"{UPLOADS}/", f"{WORKSPACE}/")):
        raise _refuse(path, "is outside of the directories for files")
    if any(path == ours or path.startswith(f"{ours}/") for ours in _OURS):
        raise _refuse(path, "is in a directory that Fidelio mounts")
    return path


def find_target(mount_path: str) -> str:
    """The relative path of a file in the directory of uploads. A file of the workspace is linked to it."""
    return mount_path.removeprefix(f"{UPLOADS}/") if mount_path.startswith(f"{UPLOADS}/") else mount_path[1:]


def check_together(resources: Iterable[Mapping[str, Any]]) -> None:
    """Refuse files that cannot be in a session together: too many, too large, or at the same path."""
    everything = list(resources)
    files = [resource["content"] for resource in everything if resource["type"] == FILE]
    if len(everything) > MAX_RESOURCES:
        raise UsageProblem(f"resources: {len(everything)} are too many.", remedy=f"Use up to {MAX_RESOURCES}.")
    total = sum(file["size"] for file in files)
    if total > MAX_TOTAL:
        raise UsageProblem(
            f"resources: the files have {total:,} bytes together.", remedy=f"The limit of a session is {MAX_TOTAL:,} bytes."
        )
    taken: dict[str, str] = {}
    for file in sorted(files, key=lambda file: str(file["mount_path"])):
        target = find_target(file["mount_path"])
        above = [target, *(str(parent) for parent in PurePosixPath(target).parents)]
        if other := next((taken[name] for name in above if name in taken), None):
            raise UsageProblem(
                f"mount_path: {file['mount_path']!r:.200} and {other!r:.200} are in each other's place.",
                remedy="Choose another path for one of them.",
            )
        taken[target] = file["mount_path"]


async def refresh_resource(context: RuntimeContext, project: str, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Plan a resource again, for a new session. Raises `SessionNotFound` if its file was deleted or has expired."""
    files = StoredFiles(context, project)
    file = await files.load(planned["content"]["file"])
    files.require_unexpired(file)
    return plan_file(file, planned["content"]["mount_path"])


def list_chunks(resources: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The digests of the blobs that the events of these resources refer to."""
    found = (digest for resource in resources for digest in resource.get("content", {}).get("chunks", ()))
    return tuple(dict.fromkeys(found))


async def add_resource(context: RuntimeContext, session: str, planned: Mapping[str, Any], *, by: str) -> SessionResource:
    """Attach a resource to a session. It is there for the next tool call."""
    event = NewEvent(type=e.RESOURCE_SET, body=planned, actor=by, blobs=list_chunks([planned]))

    def add(current: LoadedRuntime) -> SessionDecision[None]:
        check_together([*describe_resources(_require_open(current)), planned])
        return SessionDecision(None, events=(event,))

    await context.unit.update(session, add)
    return find_resource((await context.unit.load(session)).record, planned["id"])


async def remove_resource(context: RuntimeContext, session: str, resource: str, *, by: str) -> None:
    """Remove a resource from a session. The next tool call does not find it any more."""

    def remove(current: LoadedRuntime) -> SessionDecision[None]:
        find_resource(_require_open(current), resource)
        return SessionDecision(None, events=(NewEvent(type=e.RESOURCE_REMOVED, body={"id": resource}, actor=by),))

    await context.unit.update(session, remove)


def find_resource(record: RuntimeRecord, id_: str) -> SessionResource:
    found = next((resource for resource in record.resources if resource.id == id_), None)
    if found is None:
        raise SessionNotFound(f"The session has no resource {id_!r:.100}.")
    return found


def describe_resources(record: RuntimeRecord) -> list[dict[str, Any]]:
    return [{"id": each.id, "type": each.type, "content": each.content} for each in record.resources]


def _require_open(current: LoadedRuntime) -> RuntimeRecord:
    refuse_store(current)
    record = current.record
    if record.status == "terminated" or record.is_archived:
        raise UsageProblem("The session has ended or is archived, so its resources stay as they are.")
    return record


def _refuse(path: str, why: str) -> UsageProblem:
    return UsageProblem(
        f"mount_path: {path!r:.200} {why}.", remedy=f"Use a path below {UPLOADS} or {WORKSPACE}, such as {UPLOADS}/data.csv."
    )
