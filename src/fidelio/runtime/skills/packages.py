"""Rules of the files of a skill that a program uploads. Pure.

All files lie in one directory with a `SKILL.md`, whose front matter says what the skill is called and when to use it. They may
also come as one zip archive, which is read within the same limits: what it declares about sizes is not believed.
"""

from __future__ import annotations

import io
import re
import stat
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from fidelio.definitions.reading.document import read_bytes
from fidelio.errors import UnreadableDefinition, UsageProblem
from fidelio.runtime.skills.scanning import FILE, MAX_BYTES

MAX_FILES = 200
MAX_TOTAL = 8 << 20
MAX_PATH, MAX_PART, MAX_DEPTH = 255, 100, 8
MAX_NAME, MAX_DESCRIPTION = 64, 1_024
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TAG = re.compile(r"[<>]")


class SkillPackage(msgspec.Struct, frozen=True):
    """The checked files of a skill by their path below its directory."""

    name: str
    description: str
    files: Mapping[str, bytes]


def check_package(uploaded: Iterable[tuple[str, bytes]]) -> SkillPackage:
    """Check the uploaded files, each with the name that the client has sent. Raises `UsageProblem` with what is wrong."""
    files = list(uploaded)
    if len(files) == 1 and zipfile.is_zipfile(io.BytesIO(files[0][1])):
        files = _unzip(files[0][1])
    _check_amount(files)
    by_path: dict[str, bytes] = {}
    for path, content in files:
        if (checked := check_path(path)) in by_path:
            raise UsageProblem(f"files: {checked!r} was sent twice.")
        by_path[checked] = content
    folder = _find_folder(by_path)
    inside = {path.removeprefix(f"{folder}/"): content for path, content in by_path.items()}
    _check_folders(inside)
    name, description = _read_front(inside, folder)
    return SkillPackage(name, description, inside)


def check_path(path: str) -> str:
    """A relative path that means the same everywhere. Raises `UsageProblem`."""
    names = path.split("/")
    is_plain = path.isprintable() and not {"", ".", ".."} & set(names) and not set(path) & set('\\:*?"<>|')
    if not is_plain:
        raise UsageProblem(f"files: {path!r:.200} is not a plain relative path.", remedy="Use names like my-skill/SKILL.md.")
    if len(path) > MAX_PATH or len(names) > MAX_DEPTH or any(len(part.encode()) > MAX_PART for part in names):
        raise UsageProblem(
            f"files: the path {path!r:.80} is too long.",
            remedy=f"Use up to {MAX_PATH} characters, {MAX_DEPTH} levels and {MAX_PART} bytes for a name.",
        )
    return path


def _check_amount(files: list[tuple[str, bytes]]) -> None:
    if not files or len(files) > MAX_FILES:
        raise UsageProblem(f"files: {len(files)} files were sent.", remedy=f"Send 1 to {MAX_FILES}.")
    total = sum(len(content) for _, content in files)
    if total > MAX_TOTAL:
        raise UsageProblem(
            f"files: they have {total:,} bytes together.", remedy=f"The limit of a skill is {MAX_TOTAL:,} bytes."
        )


def _find_folder(files: Mapping[str, bytes]) -> str:
    """The directory that all files are in."""
    folders = {path.partition("/")[0] if "/" in path else "" for path in files}
    if len(folders) != 1 or "" in folders:
        raise UsageProblem(
            "files: all files must be in the same top-level directory.", remedy=f"Use names like my-skill/{FILE}."
        )
    (folder,) = folders
    return folder


def _check_folders(files: Mapping[str, bytes]) -> None:
    for path in files:
        if above := next((str(parent) for parent in PurePosixPath(path).parents if str(parent) in files), None):
            raise UsageProblem(f"files: {above!r} is both a file and a directory.")


def _read_front(files: Mapping[str, bytes], folder: str) -> tuple[str, str]:
    raw = files.get(FILE)
    if raw is None:
        raise UsageProblem(f"files: there is no {FILE} in the directory {folder!r}.", remedy=f"Send {folder}/{FILE}.")
    if len(raw) > MAX_BYTES:
        raise UsageProblem(f"{FILE} has more than {MAX_BYTES:,} bytes.", remedy="Move names of it into files beside it.")
    try:
        document = read_bytes(raw, FILE)
        document.check_front_matter()
    except UnreadableDefinition as error:
        raise UsageProblem(f"{FILE} cannot be read: {error.findings[0].sentence}") from error
    data = document.data
    front = data.get("front") if isinstance(data, dict) else None
    if not isinstance(front, dict) or not front:
        raise UsageProblem(f"{FILE} has no front matter.", remedy="Begin it with --- and the keys name and description.")
    if not str(data.get("body") or "").strip():
        raise UsageProblem(f"{FILE} has no text below its front matter.", remedy="Write the instructions.")
    return _check_name(front.get("name") or folder), _check_description(front.get("description"))


def _check_name(name: Any) -> str:
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise UsageProblem(
            f"{FILE}: {name!r:.100} is not a name of a skill.",
            remedy=f"Use up to {MAX_NAME} lowercase letters, digits and single dashes, such as read-invoices.",
        )
    return name


def _check_description(description: Any) -> str:
    if not isinstance(description, str) or not description.strip():
        raise UsageProblem(f"{FILE}: description is missing.", remedy="Say what the skill does and when to use it.")
    if len(description) > MAX_DESCRIPTION or _TAG.search(description):
        raise UsageProblem(f"{FILE}: description: use up to {MAX_DESCRIPTION} characters, without < and >.")
    return description.strip()


def _unzip(archive: bytes) -> list[tuple[str, bytes]]:
    """The files of an archive. Sizes are counted while they are read; links, encryption and directories are no files."""
    files: list[tuple[str, bytes]] = []
    left = MAX_TOTAL
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as unpacked:
            entries = [entry for entry in unpacked.infolist() if not entry.is_dir()]
            if len(entries) > MAX_FILES:
                raise UsageProblem(f"files: the archive has {len(entries)} files.", remedy=f"Use up to {MAX_FILES}.")
            for entry in entries:
                files.append((entry.filename, _read_entry(unpacked, entry, left)))
                left -= len(files[-1][1])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, OSError) as error:
        raise UsageProblem("files: the archive cannot be read.", remedy="Send a plain zip archive, or the files.") from error
    return files


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, left: int) -> bytes:
    mode = entry.external_attr >> 16
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise UsageProblem(f"files: {entry.filename!r:.200} in the archive is a link or no regular file.")
    with archive.open(entry) as file:
        content = file.read(left + 1)
    if len(content) > left:
        raise UsageProblem(f"files: the archive unpacks to more than {MAX_TOTAL:,} bytes, the limit of a skill.")
    return content


def pack(name: str, files: Mapping[str, bytes]) -> bytes:
    """Make an archive of the files of a skill, in a directory of its name. The same files make the same bytes."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(f"{name}/{path}")
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, files[path])
    return target.getvalue()
