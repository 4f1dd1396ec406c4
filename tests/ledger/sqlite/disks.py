"""Virtual file systems that simulate a full disk and a power loss.

Both wrap the real file system, so that the tests use the ledger without changes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw

SECTOR = 512
_numbers = itertools.count()


class FullDisk(apsw.VFS):
    """Takes `room` more writes, then none until somebody sets it again (None: there is space)."""

    def __init__(self) -> None:
        self.name = f"full-{next(_numbers)}"
        self.room: int | None = None
        self.refused = 0
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _LimitedFile:  # noqa: N802  # SQLite's name
        return _LimitedFile(self, name, flags)

    def admit(self) -> None:
        if self.room is None:
            return
        if self.room == 0:
            self.refused += 1
            raise apsw.FullError
        self.room -= 1


class _LimitedFile(apsw.VFSFile):
    def __init__(self, disk: FullDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802  # SQLite's name
        self._disk.admit()
        super().xWrite(data, offset)


@dataclass
class Pending:
    """What a file holds for certain, and what was written to it since."""

    synced: bytearray = field(default_factory=bytearray)
    writes: list[tuple[int, bytes]] = field(default_factory=list)

    def after_power_cut(self, chance: random.Random | None) -> bytes:
        """The file when power comes back: sectors that were not synced may or may not have reached the disk."""
        image = bytearray(self.synced)
        for offset, data in self.writes:
            for start in range(0, len(data), SECTOR):
                if chance and chance.random() < 0.5:
                    _put(image, offset + start, data[start : start + SECTOR])
        return bytes(image)

    def sync(self) -> None:
        for offset, data in self.writes:
            _put(self.synced, offset, data)
        self.writes.clear()


@dataclass(frozen=True)
class Cut:
    """The files as a power cut at one sync would leave them, and how much had been acknowledged by then."""

    acknowledged: int
    files: dict[str, bytes]

    def restore(self, where: Path) -> None:
        where.mkdir()
        for name, content in self.files.items():
            (where / name).write_bytes(content)


class WeakPower(apsw.VFS):
    """Remembers, for every sync, what would be left if the power failed just before it and just after it."""

    def __init__(self, seed: int) -> None:
        self.name = f"weak-{next(_numbers)}"
        self.acknowledged = 0
        self.cuts: list[Cut] = []
        self._files: dict[str, Pending] = {}
        self._chance = random.Random(seed)
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _WatchedFile:  # noqa: N802  # SQLite's name
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        return _WatchedFile(self, self._files.setdefault(Path(path).name, Pending()), name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802  # SQLite's name
        self._files.pop(Path(filename).name, None)
        super().xDelete(filename, syncdir)

    def cut(self) -> None:
        for chance in (None, self._chance):
            files = {name: pending.after_power_cut(chance) for name, pending in self._files.items()}
            self.cuts.append(Cut(self.acknowledged, files))


class _WatchedFile(apsw.VFSFile):
    def __init__(self, power: WeakPower, pending: Pending, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._power, self._pending = power, pending
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802  # SQLite's name
        self._pending.writes.append((offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802  # SQLite's name
        self._pending.sync()
        del self._pending.synced[size:]
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802, ARG002  # SQLite's name; nothing real is synced, that is the test
        self._power.cut()
        self._pending.sync()
        self._power.cut()


@contextmanager
def registered(disk: FullDisk | WeakPower) -> Iterator[None]:
    """The disk for as long as something is open on it; afterwards SQLite forgets it."""
    try:
        yield
    finally:
        disk.unregister()


def _put(image: bytearray, offset: int, data: bytes) -> None:
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data
