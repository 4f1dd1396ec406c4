"""The snapshots of a session on disk: a manifest for each, and contents by digest, so that equal files are stored once.

They are in the private directory of the session, which no sandbox mounts as a whole, and are deleted with it. They count for
its use of the disk, so they are bounded together. A content is checked against its digest when it is read: a power failure may
have lost it, because snapshots are not synced.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fidelio.errors import UsageProblem
from fidelio.runtime.project.copying import COPY
from fidelio.runtime.project.host_files import CHUNK
from fidelio.runtime.snapshots.tree import FileTree, TreeEntry, TreeLimits, TreeTooLarge, list_tree, read_contents
from fidelio.sandbox.directory import empty_directory
from fidelio.sandbox.model import PROJECT, RUNTIME_LINK, SUBSTRATE, WORKSPACE

STORE = "snapshots"
AREA = "workspace"
# The directories of a session that a snapshot has, and what is passed over in each: other directories are mounted there.
AREAS: dict[str, frozenset[str]] = {
    AREA: frozenset(path.removeprefix(f"{WORKSPACE}/") for path in (SUBSTRATE, PROJECT, RUNTIME_LINK)),
    COPY: frozenset(),
}
_BLOBS, _CLOCK = "blobs", ".clock"
_ID = re.compile(r"snap_[0-9a-z]{1,40}")
_SUFFIX = ".snapshot"


class SnapshotManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot. `trees` by area; an area that was too large is in `without`, with the reason."""

    id: str
    trees: dict[str, FileTree]
    without: dict[str, str] = {}

    @property
    def files(self) -> int:
        return sum(tree.files for tree in self.trees.values())

    @property
    def size(self) -> int:
        return sum(tree.size for tree in self.trees.values())

    @property
    def unreadable(self) -> int:
        return sum(tree.unreadable for tree in self.trees.values())

    def is_same(self, other: SnapshotManifest) -> bool:
        """Whether both have the same files, whatever their times are."""
        return self.without == other.without and _list_contents(self) == _list_contents(other)


class SnapshotStore:
    """The snapshots in the directory of a session."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / STORE

    def create(self, snapshot: str, limits: TreeLimits, previous: SnapshotManifest | None) -> SnapshotManifest:
        """Store a snapshot of the present state. Raises `TreeTooLarge` if the workspace itself is too large, and OSError."""
        (self._path / _BLOBS).mkdir(mode=0o700, parents=True, exist_ok=True)
        at = self._read_time()
        trees: dict[str, FileTree] = {}
        without: dict[str, str] = {}
        for area in self._find_areas():
            known = previous.trees[area].find_settled() if previous and area in previous.trees else {}
            try:
                listed = list_tree(self._directory / area, limits, without=AREAS[area], at=at)
                trees[area] = read_contents(self._directory / area, listed, known, limits, self._store)
            except TreeTooLarge as problem:
                # The copy of a project may be large; the workspace beside it is worth a snapshot of its own.
                if area == AREA:
                    raise
                without[area] = str(problem)
        manifest = SnapshotManifest(id=snapshot, trees=trees, without=without)
        self._save(manifest)
        return manifest

    def rename(self, manifest: SnapshotManifest, snapshot: str) -> SnapshotManifest:
        """Store a snapshot under the id of another with the same files. Its times are newer, so fewer files are read."""
        renamed = replace(manifest, id=snapshot)
        self._save(renamed)
        self._manifest(manifest.id).unlink()
        return renamed

    def load(self, snapshot: str) -> SnapshotManifest:
        """Raises `UsageProblem` if it is not stored, or cannot be read."""
        if not _ID.fullmatch(snapshot):
            raise UsageProblem(f"{snapshot!r:.80} is not a snapshot.", remedy="List the snapshots of the session.")
        try:
            return _DECODER.decode(self._manifest(snapshot).read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            remedy = "Choose another snapshot of the session."
            raise UsageProblem(f"The snapshot {snapshot} is not on this machine, or damaged.", remedy=remedy) from error

    def find(self, snapshot: str) -> SnapshotManifest | None:
        """The snapshot, None if it cannot be used."""
        try:
            return self.load(snapshot)
        except UsageProblem:
            return None

    def read_blob(self, entry: TreeEntry) -> Iterator[bytes]:
        """The content of a file, chunk by chunk. Raises `UsageProblem` if it is missing or damaged."""
        digest = hashlib.sha256()
        try:
            with self._blob(entry.content).open("rb") as file:
                while data := file.read(CHUNK):
                    digest.update(data)
                    yield data
        except FileNotFoundError:
            digest = hashlib.sha256(b"missing")
        if digest.digest() != entry.content:
            name = os.fsdecode(entry.path).encode(errors="replace").decode()
            raise UsageProblem(f"The content of {name!r:.200} is damaged.", remedy="Choose another snapshot.")

    def prune(self, wanted: Iterable[str], max_bytes: int, protected: frozenset[str]) -> frozenset[str]:
        """Of the snapshots `wanted`, newest first, keep what fits, and all `protected`. Return the ids that remain."""
        manifests = [manifest for manifest in map(self.find, wanted) if manifest is not None]
        contents: dict[bytes, int] = {}
        remaining: set[str] = set()
        for manifest in sorted(manifests, key=lambda each: each.id not in protected):
            new = {entry.content: entry.size for entry in _list_files(manifest)}
            if manifest.id in protected or sum({**contents, **new}.values()) <= max_bytes:
                contents |= new
                remaining.add(manifest.id)
        self._remove_others(remaining, contents.keys())
        return frozenset(remaining)

    def create_staging(self) -> Path:
        """An empty directory for a state that is about to be restored, or was replaced."""
        staging = self._path / f"staging-{secrets.token_hex(8)}"
        staging.mkdir(mode=0o700, parents=True)
        return staging

    def remove_staging(self, staging: Path) -> None:
        empty_directory(staging)
        staging.rmdir()

    def _find_areas(self) -> list[str]:
        return [area for area in AREAS if area == AREA or (self._directory / area).is_dir()]

    def _store(self, chunks: Iterator[bytes]) -> bytes:
        """Store a content under its digest, unless it is known."""
        draft = self._path / _BLOBS / f".{secrets.token_hex(8)}"
        digest = hashlib.sha256()
        try:
            with draft.open("xb") as file:
                for data in chunks:
                    digest.update(data)
                    file.write(data)
            blob = self._blob(digest.digest())
            if not blob.exists():
                blob.parent.mkdir(mode=0o700, exist_ok=True)
                draft.replace(blob)
        finally:
            draft.unlink(missing_ok=True)
        return digest.digest()

    def _save(self, manifest: SnapshotManifest) -> None:
        draft = self._path / f".{manifest.id}"
        draft.write_bytes(_ENCODER.encode(manifest))
        draft.replace(self._manifest(manifest.id))

    def _remove_others(self, remaining: AbstractSet[str], contents: AbstractSet[bytes]) -> None:
        """Remove the manifests, contents and drafts of other snapshots, and what an interrupted restore has left."""
        names = {f"{snapshot}{_SUFFIX}" for snapshot in remaining}
        for entry in list(self._path.iterdir()):
            if entry.name in (_BLOBS, _CLOCK) or entry.name in names:
                continue
            if entry.is_dir():
                self.remove_staging(entry)
            else:
                entry.unlink()
        digests = {digest.hex() for digest in contents}
        for blob in [*(self._path / _BLOBS).glob("*/*"), *(self._path / _BLOBS).glob(".*")]:
            if blob.name not in digests:
                blob.unlink(missing_ok=True)

    def _manifest(self, snapshot: str) -> Path:
        return self._path / f"{snapshot}{_SUFFIX}"

    def _blob(self, digest: bytes) -> Path:
        name = digest.hex()
        return self._path / _BLOBS / name[:2] / name

    def _read_time(self) -> int:
        """The present time of the file system, which the times of files are compared with."""
        clock = self._path / _CLOCK
        clock.unlink(missing_ok=True)
        clock.touch(mode=0o600)
        return clock.lstat().st_ctime_ns


def _list_files(manifest: SnapshotManifest) -> Iterator[TreeEntry]:
    return (entry for tree in manifest.trees.values() for entry in tree.entries if entry.kind == "file")


def _list_contents(manifest: SnapshotManifest) -> dict[tuple[str, bytes], tuple[str, int, bytes]]:
    return {
        (area, entry.path): (entry.kind, entry.mode, entry.content)
        for area, tree in manifest.trees.items()
        for entry in tree.entries
    }


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(SnapshotManifest)
