"""Finds the skills below a directory and reads what a list shows of them.

The files are other people's: sizes, depth and number are bounded, links lead nowhere outside of the directory, and a file that
cannot be used is reported and hides no other. No result has a path of the host.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from fidelio.definitions.library.memo import Memo, make_signature, read_signature
from fidelio.definitions.reading.document import read_bytes
from fidelio.engine.variables import is_blank
from fidelio.errors import UnreadableDefinition
from fidelio.ledger.long_text import shorten_to_line
from fidelio.runtime.ports import SkillRoot

FILE = "SKILL.md"
# The source of skills that belong to workflows: files in the directory `skills` of each workflow.
LIBRARY = "library"
# The source of those that a program has uploaded.
UPLOADED = "uploaded"
MAX_BYTES = 256 << 10
MAX_DEPTH = 5
MAX_ENTRIES = 5_000
MAX_NAME = 100
DESCRIPTION = 400
PREVIEW = 220
PREVIEW_LINES = 3
_OF_WORKFLOW = re.compile(r"(?:[0-9]+-)?(?P<id>[A-Za-z0-9][A-Za-z0-9_.-]*)\.(?:toon|yaml|yml|json)")
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_MARKUP = re.compile(r"^[\s#>*+\-|=`~_]+")


class AgentSkill(msgspec.Struct, frozen=True):
    """A skill. `source` says whose it is, `digest` is that of its file."""

    name: str
    description: str
    preview: str
    source: str
    digest: str


class SkillProblem(msgspec.Struct, frozen=True):
    """A file that cannot be used as a skill, or that another skill hides."""

    name: str
    source: str
    problem: str


class FoundSkill(msgspec.Struct, frozen=True):
    """A skill and the file that it is read from, which no tool returns."""

    skill: AgentSkill
    path: str


class UnusableSkill(Exception):
    """Why a file is no skill, as a sentence without its path."""


def scan_root(root: SkillRoot, memo: Memo) -> Iterator[FoundSkill | SkillProblem]:
    """Everything in a root that is a skill or is named like a skill, in the order of the paths."""
    top = os.path.realpath(root.path)
    pending, looked_at = [(top, 0)], 0
    while pending:
        directory, depth = pending.pop()
        entries = _list_directory(directory, memo)
        looked_at += len(entries)
        if looked_at > MAX_ENTRIES:
            yield SkillProblem("", root.source, f"The directory has more than {MAX_ENTRIES} entries; the rest is not used.")
            return
        for entry in entries:
            yield from _look_at(root, top, entry, memo)
        inner = [entry.path for entry in entries if _is_directory(entry)]
        if depth < MAX_DEPTH:
            pending += [(path, depth + 1) for path in reversed(inner)]


def _list_directory(directory: str, memo: Memo) -> list[os.DirEntry[str]]:
    memo.touch(directory, read_signature(directory))
    try:
        with os.scandir(directory) as entries:
            return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError:
        # It does not exist, or this user may not read it: there are no skills in it.
        return []


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """Links to directories are not followed: what they lead to inside of the root is found anyway."""
    return entry.is_dir(follow_symlinks=False)


def _look_at(root: SkillRoot, top: str, entry: os.DirEntry[str], memo: Memo) -> Iterator[FoundSkill | SkillProblem]:
    is_skill = _is_skill_file(root, entry)
    if not is_skill and not entry.is_symlink():
        return
    path = os.path.realpath(entry.path)
    folder = os.path.basename(os.path.dirname(entry.path)) if is_skill else entry.name  # noqa: PTH119, PTH120  # as text
    if path != top and not path.startswith(f"{top}{os.sep}"):
        if is_skill or os.path.isdir(path):  # noqa: PTH112  # as text
            yield SkillProblem(_clean(folder), root.source, "A link leads out of the directory of the skills.")
        return
    if is_skill:
        try:
            yield FoundSkill(_read_skill(root, entry.path, path, memo), path)
        except UnusableSkill as problem:
            yield SkillProblem(_clean(folder), root.source, str(problem))


def _is_skill_file(root: SkillRoot, entry: os.DirEntry[str]) -> bool:
    if root.source != LIBRARY:
        return entry.name == FILE
    return Path(entry.path).parent.name == "skills" and _OF_WORKFLOW.fullmatch(entry.name) is not None


def _read_skill(root: SkillRoot, path: str, real: str, memo: Memo) -> AgentSkill:
    raw = read_file(real, memo)
    try:
        # The name decides about the format; the path must not be in an error.
        document = read_bytes(raw, os.path.basename(path))  # noqa: PTH119  # as text
        document.check_front_matter()
    except UnreadableDefinition as error:
        raise UnusableSkill(error.findings[0].sentence) from error
    front, body = _split(document.data)
    if is_blank(body):
        raise UnusableSkill("The file is empty.")
    lines = _find_lines(body)
    name, description = _find_name(root, path, front), _read_text(front, "description") or _read_text(front, "capability")
    return AgentSkill(
        name=name,
        description=shorten_to_line(description or next(iter(lines), name), DESCRIPTION),
        preview=shorten_to_line(" ".join(lines[:PREVIEW_LINES]), PREVIEW),
        source=root.source,
        digest=sha256(raw).hexdigest(),
    )


def read_file(path: str, memo: Memo | None = None) -> bytes:
    """The content of a regular file. Raises `UnusableSkill`."""
    if memo is not None:
        memo.touch(path, read_signature(path))
    try:
        handle = os.open(path, _OPEN)
    except OSError as error:
        raise UnusableSkill(f"The file cannot be read: {error.strerror}.") from error
    try:
        status = os.fstat(handle)
        if memo is not None:
            memo.touch(path, make_signature(status))
        # Before anything is read: a directory can be opened, too.
        if not stat.S_ISREG(status.st_mode):
            raise UnusableSkill("It is not a regular file.")
        with open(handle, "rb", closefd=False) as file:
            raw = file.read(MAX_BYTES + 1)
    finally:
        os.close(handle)
    if len(raw) > MAX_BYTES:
        raise UnusableSkill(f"The file has more than {MAX_BYTES} bytes.")
    return raw


def _split(data: Any) -> tuple[dict[str, Any], str]:
    """The keys and the text of a file: of Markdown its front matter and the rest, of a workflow's skill the whole of it."""
    if not isinstance(data, dict):
        raise UnusableSkill("The file has no keys.")
    if set(data) == {"front", "body"}:
        return data["front"], data["body"]
    return data, "\n".join(str(value) for value in data.values() if isinstance(value, str))


def _find_name(root: SkillRoot, path: str, front: dict[str, Any]) -> str:
    """The name: of the front matter, else of the directory; a workflow's skill has the name of the workflow before it."""
    file = Path(path)
    if root.source == LIBRARY:
        found = _OF_WORKFLOW.fullmatch(file.name)
        name = f"{file.parent.parent.name}/{_read_text(front, 'id') or (found['id'] if found else file.stem)}"
    else:
        name = _read_text(front, "name") or file.parent.name
    if len(name) > MAX_NAME or not name.isprintable() or is_blank(name):
        raise UnusableSkill(f"Its name {name!r:.40} cannot be used: use up to {MAX_NAME} printable characters.")
    return name


def _read_text(front: dict[str, Any], key: str) -> str:
    value = front.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnusableSkill(f"The value of {key} is not a text.")
    return "" if is_blank(value) else value.strip()


def _find_lines(body: str) -> list[str]:
    """The first lines of a text that say something, without their markup."""
    found: list[str] = []
    for line in body.splitlines():
        text = _MARKUP.sub("", line).strip()
        if text and not is_blank(text) and not text.startswith("<!--"):
            found.append(text)
            if len(found) == PREVIEW_LINES:
                break
    return found


def _clean(name: str) -> str:
    """The name of a directory for a report."""
    return shorten_to_line(name.encode(errors="replace").decode(), MAX_NAME)
