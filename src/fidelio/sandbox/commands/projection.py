"""Projection of a shell command to a call of a read-only tool that gives the same result.

Only a command that `parse_command` understands and whose every word is known here is projected; all others return None and ask
a person. A projected command is not run: the tool is. The results are equal, with four exceptions that the tests name: `grep Q`
without a file is taken as `grep -r Q .`; `ls -a` without `.` and `..`; `ls -l` gives names only; and no search enters the files
of the runtime or prints lines of binary files.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from fidelio.errors.runtime import ToolRefused
from fidelio.sandbox.actions import MAX_LINES
from fidelio.sandbox.commands.allow_list import COMMANDS, check_command
from fidelio.sandbox.commands.parse import parse_command
from fidelio.sandbox.commands.patterns import BASIC, RUST, PatternDialect, translate_pattern

# In what the results of command and tool are equal: the text, the number of newlines, the set of names, the set of (path, line,
# text), the same for a recursive search, the whole output, or the output up to variables that a shell sets for itself.
Compared = Literal["content", "newline_count", "names", "matches", "recursive_matches", "output", "variables"]
_NUMBER = re.compile(r"[0-9]{1,9}")
_SED_LINES = re.compile(r"([0-9]{1,9})(?:,([0-9]{1,9}))?p")
_LISTED = 80
_RG_FOUND = 40


class Projection(msgspec.Struct, frozen=True):
    """A call that does the same as a command. `arguments` are valid for the tool."""

    tool: Literal["read", "glob", "grep", "bash"]
    arguments: Mapping[str, Any]
    compared: Compared


class Words(NamedTuple):
    """The words after the program: letters of its flags, and operands."""

    flags: frozenset[str]
    operands: tuple[str, ...]


def project(text: str, cwd: str) -> Projection | None:
    """The read-only call with the same result as the command; None if there is none."""
    argv = parse_command(text) if cwd.startswith("/") else None
    return None if argv is None else (_project_to_tool(argv, cwd) or _project_to_bash(argv, cwd))


def _project_to_tool(argv: tuple[str, ...], cwd: str) -> Projection | None:
    return _PROGRAMS[argv[0]](argv[1:], cwd) if argv[0] in _PROGRAMS else None


def _project_to_bash(argv: tuple[str, ...], cwd: str) -> Projection | None:
    if argv[0] not in COMMANDS:
        return None
    try:
        check_command(argv[0], argv[1:])
    except ToolRefused:
        return None
    arguments = {"command": argv[0], "args": list(argv[1:]), "cwd": cwd}
    return Projection("bash", arguments, "variables" if argv[0] == "env" else "output")


def _join(cwd: str, operand: str) -> str:
    """The absolute path of an operand. `..` stays: it may lead through a link."""
    if operand == ".":
        return cwd
    return operand if operand.startswith("/") else f"{cwd.rstrip('/')}/{operand}"


def _split(args: Sequence[str], known: str) -> Words | None:
    """Flags and operands; None if a flag is not known, or an operand is empty or means standard input."""
    flags: set[str] = set()
    operands: list[str] = []
    rest = iter(args)
    for argument in rest:
        if argument == "--":
            operands += rest
        elif argument.startswith("-"):
            flags.update(argument[1:] or "-")
        else:
            operands.append(argument)
    if not flags <= set(known) or "" in operands or "-" in operands:
        return None
    return Words(frozenset(flags), tuple(operands))


def _cat(args: Sequence[str], cwd: str) -> Projection | None:
    words = _split(args, "")
    if words is None or len(words.operands) != 1:
        return None
    return Projection("read", {"path": _join(cwd, words.operands[0])}, "content")


def _head(args: Sequence[str], cwd: str) -> Projection | None:
    return _window(args, cwd, "lineCount")


def _tail(args: Sequence[str], cwd: str) -> Projection | None:
    return _window(args, cwd, "tailLines")


def _window(args: Sequence[str], cwd: str, key: str) -> Projection | None:
    """`[-n N | -nN] F`."""
    count, rest = "10", list(args)
    if rest and rest[0].startswith("-n"):
        count = rest.pop(0)[2:] or (rest.pop(0) if rest else "")
    words = _split(rest, "")
    if words is None or len(words.operands) != 1 or not _NUMBER.fullmatch(count) or int(count) < 1:
        return None
    return Projection("read", {"path": _join(cwd, words.operands[0]), key: int(count)}, "content")


def _sed(args: Sequence[str], cwd: str) -> Projection | None:
    """`-n A,Bp F`."""
    if len(args) != 3 or args[0] != "-n" or args[2].startswith("-") or not args[2]:
        return None
    found = _SED_LINES.fullmatch(args[1])
    if found is None:
        return None
    first, last = int(found[1]), int(found[2] or found[1])
    if not 1 <= first <= last <= MAX_LINES:
        return None
    arguments = {"path": _join(cwd, args[2]), "startLine": first, "lineCount": last - first + 1}
    return Projection("read", arguments, "content")


def _wc(args: Sequence[str], cwd: str) -> Projection | None:
    words = _split(args, "l")
    if words is None or words.flags != {"l"} or len(words.operands) != 1:
        return None
    return Projection("read", {"path": _join(cwd, words.operands[0]), "lineCount": 1}, "newline_count")


def _ls(args: Sequence[str], cwd: str) -> Projection | None:
    words = _split(args, "Aal1")
    if words is None or len(words.operands) > 1:
        return None
    operand = words.operands[0] if words.operands else ""
    if "l" in words.flags and operand and not operand.endswith("/") and operand not in (".", ".."):
        # With -l a link is listed itself, without it what it leads to.
        return None
    arguments: dict[str, Any] = {"path": _join(cwd, operand) if operand else cwd, "pattern": "*", "limit": _LISTED}
    if words.flags & {"a", "A"}:
        arguments["hidden"] = True
    return Projection("glob", arguments, "names")


def _find(args: Sequence[str], cwd: str) -> Projection | None:
    """`[D] [-type f|d] [-name P]`."""
    rest = list(args)
    start = rest.pop(0) if rest and not rest[0].startswith(("-", "(", ")", "!", ",")) else "."
    tests = dict([*_pairs(rest)])
    if not start or len(rest) != 2 * len(tests) or not tests or not tests.keys() <= {"-type", "-name"}:
        return None
    kinds = {None: None, "f": "file", "d": "directory"}
    kind, name = tests.get("-type"), tests.get("-name", "*")
    if kind not in kinds or not _is_plain_name(name) or _names_start(start, kind, name):
        return None
    arguments: dict[str, Any] = {
        "path": _join(cwd, start),
        "pattern": f"**/{re.sub('[*]+', '*', name)}",
        "limit": _LISTED,
        "hidden": True,
    }
    if kind is not None:
        arguments["kind"] = kinds[kind]
    return Projection("glob", arguments, "names")


def _pairs(rest: list[str]) -> list[tuple[str, str]]:
    return [(rest[position], rest[position + 1]) for position in range(0, len(rest) - 1, 2)]


def _is_plain_name(name: str) -> bool:
    return bool(name) and name not in (".", "..") and not any(character in "/[]\\{}\n" for character in name)


def _names_start(start: str, kind: str | None, name: str) -> bool:
    """Whether `find` would list the directory itself in which it starts; `glob` does not."""
    base = start.rstrip("/").rpartition("/")[2] or "/"
    return kind != "f" and fnmatch.fnmatchcase(base, name)


def _grep(args: Sequence[str], cwd: str) -> Projection | None:
    # -R follows links, which the tool does not.
    words = _split(args, "niFr")
    if words is None or not 1 <= len(words.operands) <= 2:
        return None
    arguments = _search(words, cwd, BASIC)
    if arguments is None:
        return None
    if "r" in words.flags or len(words.operands) == 1:
        arguments["hidden"] = True
        return Projection("grep", arguments, "matches" if "r" in words.flags else "recursive_matches")
    # Without -r a directory is an error.
    arguments["kind"] = "file"
    return Projection("grep", arguments, "matches")


def _rg(args: Sequence[str], cwd: str) -> Projection | None:
    words = _split(args, "niF")
    if words is None or not 1 <= len(words.operands) <= 2:
        return None
    arguments = _search(words, cwd, RUST)
    if arguments is None:
        return None
    return Projection("grep", {**arguments, "limit": _RG_FOUND, "ignoreFiles": True}, "matches")


def _search(words: Words, cwd: str, dialect: PatternDialect) -> dict[str, Any] | None:
    ignores_case = "i" in words.flags
    query = translate_pattern(words.operands[0], None if "F" in words.flags else dialect, ignores_case=ignores_case)
    if query is None:
        return None
    path = _join(cwd, words.operands[1]) if len(words.operands) == 2 else cwd
    return {"path": path, "query": query.text, "regex": query.is_regex, "caseSensitive": not ignores_case}


_PROGRAMS: Mapping[str, Callable[[Sequence[str], str], Projection | None]] = {
    "cat": _cat,
    "head": _head,
    "tail": _tail,
    "sed": _sed,
    "wc": _wc,
    "ls": _ls,
    "find": _find,
    "grep": _grep,
    "rg": _rg,
}
