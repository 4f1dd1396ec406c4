"""The tree without namespaces (level c): virtual paths beneath the descriptors of the mounts.

There are no mounts of the kernel here, so links and `..` are followed in virtual paths, and the result is opened with openat2,
which refuses links and everything above the descriptor. A race can therefore make a call fail, but leads nowhere else.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Sequence

from fidelio.sandbox.inside.tree import WORKSPACE, Entry, MountPoint, Tree, is_below

_OPENAT2 = 437
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08
_MAX_LINKS = 40
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_libc = ctypes.CDLL(None, use_errno=True)


class BeneathTree(Tree):
    """A tree of mounts `(path, descriptor of the directory, whether it may be changed)`."""

    def __init__(self, table: Sequence[tuple[str, int, bool]], base: str = WORKSPACE) -> None:
        super().__init__(base)
        self._table = {path: (descriptor, writable) for path, descriptor, writable in table}

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        needs_directory = path.endswith("/")
        resolved = self._follow(path, follows_last=needs_directory or not flags & os.O_NOFOLLOW)
        if flags & _WRITES and not flags & os.O_PATH:
            self.check_writable(resolved)
        return self._open_resolved(resolved, flags | (os.O_DIRECTORY if needs_directory else 0), mode)

    def resolve(self, path: str) -> str:
        return self._follow(path, follows_last=True)

    def mounts(self) -> list[MountPoint]:
        found = [MountPoint(path, writable) for path, (_, writable) in self._table.items()]
        return sorted(found, key=lambda mount: os.fsencode(mount.path))

    def check_writable(self, path: str) -> None:
        if path in self._table:
            raise OSError(errno.EBUSY, "the top of a mount")
        mount = self._find_mount(path)
        if mount is None or not self._table[mount][1]:
            raise OSError(errno.EROFS, "read-only")

    def child_mounts(self, path: str) -> list[str]:
        """Names of mounts, or of directories that only lead to mounts, in a directory."""
        top = self.resolve(path).rstrip("/") + "/"
        return sorted({mount[len(top) :].partition("/")[0] for mount in self._table if mount.startswith(top)})

    def stat(self, path: str, *, follow: bool = True) -> os.stat_result:
        resolved = self._follow(path, follows_last=follow or path.endswith("/"))
        if self._is_virtual(resolved):
            return os.fstat(next(iter(self._table.values()))[0])
        return super().stat(path, follow=follow)

    def scan(self, path: str, *, follow: bool = True) -> list[Entry]:
        if self._is_virtual(self._follow(path, follows_last=follow)):
            return [Entry(name, "directory") for name in self.child_mounts(path)]
        return super().scan(path, follow=follow)

    def _is_virtual(self, resolved: str) -> bool:
        """Whether a path is above the mounts: there is no directory of the machine behind it."""
        return self._find_mount(resolved) is None and any(is_below(mount, resolved) for mount in self._table)

    def _find_mount(self, resolved: str) -> str | None:
        return max((mount for mount in self._table if is_below(resolved, mount)), key=len, default=None)

    def _open_resolved(self, resolved: str, flags: int, mode: int) -> int:
        mount = self._find_mount(resolved)
        if mount is None:
            raise OSError(errno.ENOENT if not self._is_virtual(resolved) else errno.EACCES, "outside of the mounts")
        relative = resolved[len(mount.rstrip("/")) + 1 :] or "."
        creates = flags & (os.O_CREAT | (os.O_TMPFILE & ~os.O_DIRECTORY))
        return _openat2(self._table[mount][0], relative, flags | os.O_CLOEXEC, mode if creates else 0)

    def _follow(self, path: str, *, follows_last: bool) -> str:
        """Follow links and `..` of a virtual path, as the kernel would if the mounts were real."""
        done: list[str] = []
        pending = [name for name in reversed(path.split("/")) if name not in ("", ".")]
        links = 0
        while pending:
            name = pending.pop()
            if name == "..":
                del done[-1:]
                continue
            target = self._read_link([*done, name]) if pending or follows_last else None
            if target is None:
                done.append(name)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, "too many links")
            done = [] if target.startswith("/") else done
            pending += [each for each in reversed(target.split("/")) if each not in ("", ".")]
        return "/" + "/".join(done)

    def _read_link(self, names: list[str]) -> str | None:
        """The target of a link; None for everything else. All names but the last are resolved."""
        path = "/" + "/".join(names)
        if path in self._table or self._find_mount(path) is None:
            return None
        try:
            descriptor = self._open_resolved(path, os.O_PATH | os.O_NOFOLLOW, 0)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            is_link = stat.S_ISLNK(os.fstat(descriptor).st_mode)
            return os.readlink("", dir_fd=descriptor) if is_link else None
        finally:
            os.close(descriptor)


def _openat2(directory: int, path: str, flags: int, mode: int) -> int:
    how = struct.pack("=QQQ", flags, mode, _NO_MAGIC_LINKS | _NO_LINKS | _BENEATH)
    descriptor: int = _libc.syscall(
        ctypes.c_long(_OPENAT2), ctypes.c_int(directory), os.fsencode(path), how, ctypes.c_size_t(len(how))
    )
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return descriptor
