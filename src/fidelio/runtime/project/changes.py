"""Changes of an agent in the copy of a project: shown as a diff, and brought back into the project by a person.

The copy is read only through the sandbox. A change is brought back only onto the file that was copied: where the host has
another content by now, everything is refused. Links, names that git believes in, and homes of Fidelio are never written.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from fidelio.errors import RuntimeProblem, SandboxUnavailable, UsageProblem
from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.project.copying import CopiedFile, CopyManifest, load_manifest, save_manifest
from fidelio.runtime.project.host_files import HostDirectory, find_name_problem
from fidelio.runtime.resources.compare import compare_texts, render_unified
from fidelio.runtime.resources.versions import decode_text
from fidelio.runtime.specs import build_spec, session_directory
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.sandbox.model import PROJECT, SandboxSpec

MAX_FILE = 64 << 20
# A larger file is named in the diff, but not shown.
MAX_SHOWN_FILE = 1 << 20
MAX_DIFF = 4 << 20
MAX_CHANGES = 10_000
_CHUNK = 1 << 20
# Of at most 5,000 entries each.
_MAX_PAGES = 200

Kind = Literal["added", "modified", "deleted", "refused"]


class ProjectChange(msgspec.Struct, frozen=True):
    """A path whose copy differs from what was copied. `problem` says why it cannot be brought back."""

    path: str
    kind: Kind
    digest: str = ""
    size: int = 0
    executable: bool = False
    problem: str = ""


class ProjectDiff(msgspec.Struct, frozen=True):
    """The changes and their text. `digest` names exactly these changes: `apply` takes it to bring back what was seen."""

    changes: tuple[ProjectChange, ...]
    text: str
    digest: str
    skipped: Mapping[str, str] = msgspec.field(default_factory=dict)


class _Copied(msgspec.Struct, frozen=True):
    """The copy of a session, and access to it through the sandbox."""

    context: RuntimeContext
    loaded: LoadedRuntime
    spec: SandboxSpec
    directory: Path
    manifest: CopyManifest

    async def act(self, action: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        result = await self.context.sandboxes.call(self.spec, action, arguments)
        if result.error is not None:
            raise SandboxUnavailable(f"The copy of the project cannot be read: {result.error.message}")
        return result.output


class ProjectChanges:
    """Shows and brings back the changes of sessions. Only a person applies; the surfaces see to that."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context

    async def diff(self, session: str) -> ProjectDiff:
        copied = await self._open(session)
        changes = await _find_changes(copied)
        text = "".join([part async for part in _render(copied, changes)])
        return ProjectDiff(changes, text, _digest(changes), copied.manifest.skipped)

    async def apply(
        self, session: str, paths: Sequence[str] | None = None, *, expect: str | None = None, by: str
    ) -> tuple[ProjectChange, ...]:
        """Bring changes back: all of them, or those of the paths. `expect` is the digest of the diff that was looked at.

        Everything is checked before anything is written. Raises `RuntimeProblem` with what stands in the way.
        """
        copied = await self._open(session)
        changes = await _find_changes(copied)
        if expect is not None and expect != _digest(changes):
            raise RuntimeProblem("The copy was changed after the diff was made; nothing was written.", remedy="Look again.")
        chosen = _choose(changes, paths)
        contents = {change.path: await _read_copy(copied, change) for change in chosen if change.kind != "deleted"}
        with _open_host(copied) as host:
            await asyncio.to_thread(_check_host, host, copied.manifest, chosen)
            await self._record(copied, chosen, by)
            await asyncio.to_thread(_write_host, host, chosen, contents)
        await asyncio.to_thread(save_manifest, copied.directory, _update_manifest(copied.manifest, chosen))
        return chosen

    async def _open(self, session: str) -> _Copied:
        loaded = await self._context.unit.load(session)
        mode = loaded.record.mount_mode
        if mode != "copy":
            how = f"mounts its project with {mode}" if mode else "has no project"
            raise UsageProblem(
                f"Session {session} {how}, so there is no copy to compare.", remedy="Start one with --mount DIR."
            )
        spec = await build_spec(self._context, loaded)
        directory = session_directory(self._context, loaded.record)
        manifest = await asyncio.to_thread(load_manifest, directory)
        return _Copied(self._context, loaded, spec, directory, manifest)

    async def _record(self, copied: _Copied, chosen: Sequence[ProjectChange], by: str) -> None:
        """Record the changes before they are made. After a crash the same call goes on where it stopped."""
        changes = [{"path": change.path, "kind": change.kind, "digest": change.digest} for change in chosen[:1_000]]
        event = NewEvent(type=e.PROJECT_APPLIED, body={"changes": changes, "count": len(chosen), "by": by}, actor=by)
        await self._context.unit.update(copied.loaded.id, lambda _: SessionDecision(None, events=(event,)))


def _open_host(copied: _Copied) -> HostDirectory:
    try:
        return HostDirectory(copied.manifest.source)
    except OSError as error:
        raise RuntimeProblem(
            f"The project {copied.manifest.source} cannot be opened: {error.strerror}.", remedy="Put it back where it was."
        ) from error


async def _find_changes(copied: _Copied) -> tuple[ProjectChange, ...]:
    files, manifest = await _list_copy(copied), copied.manifest.files
    changes = [change for path, entry in files.items() if (change := _compare(path, entry, manifest.get(path)))]
    deleted = [_describe_missing(path, base) for path, base in manifest.items() if path not in files]
    found = sorted([*changes, *deleted], key=lambda change: change.path)
    if len(found) > MAX_CHANGES:
        raise RuntimeProblem(
            f"The copy has {len(found)} changes, more than {MAX_CHANGES}.", remedy="Let the agent remove what it has generated."
        )
    return tuple(found)


def _describe_missing(path: str, base: CopiedFile) -> ProjectChange:
    return ProjectChange(path, "refused", problem="it was a link") if base.is_link else ProjectChange(path, "deleted")


async def _list_copy(copied: _Copied) -> dict[str, Mapping[str, Any]]:
    """Every file and link of the copy, by its path. What the sandbox says is checked like any other input."""
    found: dict[str, Mapping[str, Any]] = {}
    cursor = ""
    for _ in range(_MAX_PAGES):
        page = await copied.act("list_tree", {"path": PROJECT, "limit": 5_000, "digests": True, "cursor": cursor})
        for entry in _read_entries(page):
            path = str(entry.get("path", "")).removeprefix(f"{PROJECT}/")
            if entry.get("kind") != "directory" and not _is_of_git(path):
                found[path] = entry
        following = page.get("nextCursor")
        if not isinstance(following, str) or not following:
            break
        cursor = following
    if page.get("truncated"):
        # A file that is not in the list would look deleted.
        remedy = "Let the agent remove what it has generated, or try again."
        raise RuntimeProblem("The copy of the project has too many files to be listed.", remedy=remedy)
    return found


def _read_entries(page: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = page.get("entries")
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise RuntimeProblem("The sandbox listed the copy of the project in an unknown form.", remedy="Stop the session.")
    return entries


def _is_of_git(path: str) -> bool:
    """The repository of the copy is its own; only its files are compared."""
    return path == ".git" or path.startswith(".git/")


def _compare(path: str, entry: Mapping[str, Any], base: CopiedFile | None) -> ProjectChange | None:
    size, mode, digest = entry.get("size"), entry.get("mode"), entry.get("digest")
    known_size, executable = size if isinstance(size, int) else 0, isinstance(mode, int) and bool(mode & 0o100)
    if base is not None and base.is_link and entry.get("kind") == "link":
        return None
    if entry.get("kind") != "file" or not isinstance(digest, str) or (base is not None and base.is_link):
        what = "it is a link or a special file" if entry.get("kind") != "file" else "it replaces a link or cannot be read"
        return ProjectChange(path, "refused", problem=what)
    if base is not None and (base.digest, base.executable) == (digest, executable):
        return None
    problem = find_name_problem(path) or (f"it has more than {MAX_FILE >> 20} MiB" if known_size > MAX_FILE else "")
    kind: Kind = "refused" if problem else "added" if base is None else "modified"
    return ProjectChange(path, kind, digest, known_size, executable, problem)


def _choose(changes: tuple[ProjectChange, ...], paths: Sequence[str] | None) -> tuple[ProjectChange, ...]:
    if paths is None:
        return tuple(change for change in changes if change.kind != "refused")
    known = {change.path: change for change in changes}
    for path in paths:
        if path not in known:
            raise UsageProblem(f"{path!r:.200} is not changed.", remedy="Name paths as the diff does, relative to the project.")
        if known[path].kind == "refused":
            raise RuntimeProblem(f"{path!r:.200} cannot be brought back: {known[path].problem}.", remedy="Leave it out.")
    return tuple(known[path] for path in dict.fromkeys(paths))


def _check_host(host: HostDirectory, manifest: CopyManifest, chosen: Sequence[ProjectChange]) -> None:
    """Raise `RuntimeProblem` unless every file of the host still has the copied content or already has the new content."""
    conflicts = [problem for change in chosen if (problem := _find_conflict(host, manifest, change))]
    if conflicts:
        raise RuntimeProblem(
            f"Nothing was written. {' '.join(conflicts[:20])}",
            remedy="Bring back the other paths by name, or take these over by hand.",
        )


def _find_conflict(host: HostDirectory, manifest: CopyManifest, change: ProjectChange) -> str:
    base = manifest.files.get(change.path)
    try:
        current = host.digest(change.path)
    except OSError as error:
        return f"{change.path} is not a plain file on the host, or a link is on the way to it ({error.strerror})."
    if current in (base.digest if base else "", change.digest):
        return ""
    return f"{change.path} was {'changed' if current else 'deleted'} on the host since it was copied."


def _write_host(host: HostDirectory, chosen: Sequence[ProjectChange], contents: Mapping[str, bytes]) -> None:
    try:
        for change in chosen:
            if change.kind != "deleted":
                host.write(change.path, contents[change.path], executable=change.executable)
            elif host.digest(change.path):
                host.remove(change.path)
    except OSError as error:
        raise RuntimeProblem(
            f"{change.path} cannot be written: {error.strerror}. The changes before it are in the project.",
            remedy="Correct that and call again: what is there already is kept.",
        ) from error


def _update_manifest(manifest: CopyManifest, chosen: Sequence[ProjectChange]) -> CopyManifest:
    files = dict(manifest.files)
    for change in chosen:
        if change.kind == "deleted":
            files.pop(change.path, None)
        else:
            files[change.path] = CopiedFile(change.digest, change.executable)
    return replace(manifest, files=files)


async def _read_copy(copied: _Copied, change: ProjectChange) -> bytes:
    """The content that was listed. Raises `RuntimeProblem` if it has changed since."""
    content = bytearray()
    while len(content) <= MAX_FILE:
        arguments = {"path": f"{PROJECT}/{change.path}", "offset": len(content), "length": _CHUNK}
        output = await copied.act("read_bytes", arguments)
        data = _decode(output.get("data"))
        content += data
        if output.get("eof") is True or len(data) < _CHUNK:
            break
    if hashlib.sha256(content).hexdigest() != change.digest:
        raise RuntimeProblem(f"{change.path} is being changed in the copy; nothing was written.", remedy="Try again.")
    return bytes(content)


def _decode(data: object) -> bytes:
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) else b""
    except (binascii.Error, ValueError):
        return b""


def _digest(changes: Sequence[ProjectChange]) -> str:
    return hashlib.sha256(b"fidelio.project-diff.v1:" + msgspec.json.encode(changes)).hexdigest()


async def _render(copied: _Copied, changes: Sequence[ProjectChange]) -> Any:
    """The diff of each change, until the text is long enough."""
    total = 0
    with _open_host(copied) as host:
        for number, change in enumerate(changes):
            if total > MAX_DIFF:
                yield f"... and {len(changes) - number} more changed paths.\n"
                return
            is_shown = change.kind in ("added", "modified") and change.size <= MAX_SHOWN_FILE
            new = await _read_copy(copied, change) if is_shown else None
            part = await asyncio.to_thread(_render_change, host, copied.manifest, change, new)
            total += len(part)
            yield part


def _render_change(host: HostDirectory, manifest: CopyManifest, change: ProjectChange, new: bytes | None) -> str:
    if change.kind == "refused":
        # The name is the agent's: a line end in it would begin a line of its own.
        return f"# {ascii(change.path)[1:-1]}: not brought back, {change.problem}.\n"
    lines = [f"# {conflict}" for conflict in [_find_conflict(host, manifest, change)] if conflict]
    old = _read_host(host, change)
    lines += _render_content(change, old, new)
    return "".join(f"{line}\n" for line in lines)


def _read_host(host: HostDirectory, change: ProjectChange) -> bytes | None:
    try:
        return host.read(change.path, MAX_SHOWN_FILE + 1)
    except OSError:
        return None


def _render_content(change: ProjectChange, old: bytes | None, new: bytes | None) -> Iterator[str]:
    before = "/dev/null" if change.kind == "added" else f"a/{change.path}"
    after = "/dev/null" if change.kind == "deleted" else f"b/{change.path}"
    new = b"" if change.kind == "deleted" else new
    texts = [
        None if content is None or len(content) > MAX_SHOWN_FILE else decode_text(content) for content in (old or b"", new)
    ]
    if texts[0] is None or texts[1] is None:
        yield f"Binary or large file {change.path}: {change.kind}, {change.size} bytes."
        return
    lines = list(render_unified(compare_texts(texts[0], texts[1]), before, after))
    # An empty file, or one of which only the right to execute it changed.
    yield from lines or [f"# {change.path}: {change.kind}, {change.size} bytes, {_describe_mode(change)}."]


def _describe_mode(change: ProjectChange) -> str:
    return "executable" if change.executable else "not executable"
