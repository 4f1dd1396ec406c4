"""The allow-list of the read-only command tool: thirteen programs, and for each the options that it may get.

Every option is checked by its exact name; what is not listed is refused, because an unlisted option may read a list of files
(`--files0-from`, `-f`), wait for ever (`tail -f`) or run a program (`-exec`). A checked command runs by its absolute path and
without a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fidelio.errors.runtime import ToolRefused

_PROGRAMS = "/usr/bin"
_COUNT = re.compile(r"[0-9]{1,12}")
_SIGNED = re.compile(r"[-+]?[0-9]{1,12}")
_ANY = re.compile(r"(?s).+")


class CheckedCommand(msgspec.Struct, frozen=True):
    """A command that may run. `argv` begins with `program`, an absolute path inside of the sandbox."""

    program: str
    argv: tuple[str, ...]


class Options(NamedTuple):
    """The options of a program: short flags, short options with a value, long flags, long options with a value."""

    flags: str = ""
    values: Mapping[str, re.Pattern[str]] = {}
    long_flags: frozenset[str] = frozenset()
    long_values: Mapping[str, re.Pattern[str]] = {}
    # `head -5`
    takes_number: bool = False
    operands: range = range(1, 200)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LS = "all almost-all human-readable recursive reverse directory classify inode size full-time group-directories-first si"
_CAT = "number number-nonblank squeeze-blank show-all show-ends show-tabs show-nonprinting"
_GREP = (
    "line-number ignore-case invert-match count files-with-matches files-without-match with-filename no-filename only-matching"
    " word-regexp line-regexp recursive dereference-recursive extended-regexp fixed-strings basic-regexp perl-regexp quiet"
    " no-messages null text"
)
_GREP_VALUES = {"e": _ANY, "A": _COUNT, "B": _COUNT, "C": _COUNT, "m": _COUNT}
_GREP_LONG_VALUES = {
    **dict.fromkeys(("regexp", "include", "exclude", "exclude-dir"), _ANY),
    **dict.fromkeys(("after-context", "before-context", "context", "max-count"), _COUNT),
}
_LINES_LONG = {"lines": _SIGNED, "bytes": _SIGNED}
_LINES = Options("qvz", {"n": _SIGNED, "c": _SIGNED}, _words("quiet silent verbose zero-terminated"), _LINES_LONG, True)
_NOTHING = Options(operands=range(1))
_SIMPLE = {
    "pwd": _NOTHING,
    "env": _NOTHING,
    "ls": Options("aAlh1RrtSdFpisngoUXvcukLHx", {}, _words(_LS), operands=range(200)),
    "cat": Options("nbsAETvet", {}, _words(_CAT)),
    "head": _LINES,
    "tail": _LINES,
    "wc": Options("lwcmL", {}, _words("lines words bytes chars max-line-length")),
    "basename": Options("az", {"s": _ANY}, _words("multiple zero"), {"suffix": _ANY}),
    "dirname": Options("z", {}, _words("zero")),
    "realpath": Options(
        "emsqzLP",
        {},
        _words("canonicalize-existing canonicalize-missing strip no-symlinks quiet zero logical physical"),
        {"relative-to": _ANY, "relative-base": _ANY},
    ),
    "stat": Options("Lt", {"c": _ANY}, _words("dereference terse"), {"format": _ANY, "printf": _ANY}),
    "grep": Options("nivclLHhowxrREFGPqsZaI", _GREP_VALUES, _words(_GREP), _GREP_LONG_VALUES),
}
# Tests and actions of `find` with the number of their values. None of them writes, deletes or runs anything.
_FIND = {
    **dict.fromkeys(_words("-name -iname -path -ipath -wholename -regex -iregex -type -xtype -size -newer -samefile"), 1),
    **dict.fromkeys(_words("-mtime -mmin -atime -amin -ctime -cmin -maxdepth -mindepth -perm -user -group -links -inum"), 1),
    **dict.fromkeys(_words("-printf -regextype -lname -ilname"), 1),
    **dict.fromkeys(_words("-empty -not ! -a -and -o -or ( ) -print -print0 -prune -depth -xdev -mount -true -false -quit"), 0),
    **dict.fromkeys(_words("-readable -writable -executable -ls -nouser -nogroup"), 0),
}
COMMANDS = frozenset({*_SIMPLE, "find"})


def check_command(command: str, args: Sequence[str]) -> CheckedCommand:
    """Return the command if it and all its options are allowed. Raises ToolRefused."""
    if command not in COMMANDS:
        known = ", ".join(sorted(COMMANDS))
        raise ToolRefused(
            f"{command[:80]!r} is not a read-only command.",
            remedy=f"Use one of: {known}. Anything else runs with shell_run, which asks a person.",
            reason="command_not_allowed",
        )
    if any("\0" in argument for argument in args):
        raise _refuse(command, "an argument contains a NUL byte", "Remove it.")
    (_check_find if command == "find" else _check_simple)(command, args)
    program = f"{_PROGRAMS}/{command}"
    return CheckedCommand(program, (program, *args))


def _check_simple(command: str, args: Sequence[str]) -> None:
    options = _SIMPLE[command]
    operands = _OptionReader(command, options, args).operands()
    if command == "grep":
        return _check_grep(operands, args)
    if len(operands) not in options.operands:
        wanted = "no arguments" if options.operands.stop == 1 else "at least one operand"
        raise _refuse(command, f"it takes {wanted}, and got {len(operands)}", "Name what it is to work on.")
    if "-" in operands and command in ("cat", "head", "tail", "wc"):
        raise _refuse(command, "- means standard input, which is empty here", "Name a file.")
    return None


def _check_grep(operands: list[str], args: Sequence[str]) -> None:
    is_recursive = any(re.match(r"-[a-zA-Z]*[rR]|--(dereference-)?recursive", argument) for argument in args)
    has_pattern = any(re.match(r"-[a-zA-Z]*e|--regexp", argument) for argument in args)
    files = len(operands) - (0 if has_pattern else 1)
    if files < (0 if is_recursive else 1) or "-" in operands[0 if has_pattern else 1 :]:
        raise _refuse("grep", "without a file it reads standard input, which is empty here", "Name a file, or pass -r.")


class _OptionReader:
    """Reads arguments as getopt does: options anywhere up to `--`, clusters of short flags, values attached or separate."""

    def __init__(self, command: str, options: Options, args: Sequence[str]) -> None:
        self._command, self._options = command, options
        self._rest = iter(args)

    def operands(self) -> list[str]:
        return list(self._read())

    def _read(self) -> Iterator[str]:
        for argument in self._rest:
            if argument == "--":
                yield from self._rest
            elif argument.startswith("--"):
                self._long(argument[2:])
            elif argument.startswith("-") and argument != "-":
                self._cluster(argument)
            else:
                yield argument

    def _long(self, text: str) -> None:
        name, equals, value = text.partition("=")
        if not equals and name in self._options.long_flags:
            return
        pattern = self._options.long_values.get(name)
        if pattern is None:
            raise self._unknown(f"--{name}")
        self._check_value(f"--{name}", value if equals else next(self._rest, ""), pattern)

    def _cluster(self, argument: str) -> None:
        if self._options.takes_number and _COUNT.fullmatch(argument[1:]):
            return
        for position, letter in enumerate(argument[1:], 1):
            pattern = self._options.values.get(letter)
            if pattern is not None:
                self._check_value(f"-{letter}", argument[position + 1 :] or next(self._rest, ""), pattern)
                return
            if letter not in self._options.flags:
                raise self._unknown(f"-{letter}")

    def _check_value(self, name: str, value: str, pattern: re.Pattern[str]) -> None:
        if not pattern.fullmatch(value):
            raise _refuse(self._command, f"{name} has the value {value[:60]!r}", "Pass a valid value.")

    def _unknown(self, name: str) -> ToolRefused:
        options = self._options
        known = [f"-{letter}" for letter in sorted({*options.flags, *options.values})]
        long = [f"--{each}" for each in sorted({*options.long_flags, *options.long_values})]
        return _refuse(
            self._command, f"the option {name[:60]} is not allowed", f"Allowed are: {' '.join(known + long) or 'none'}."
        )


def _check_find(command: str, args: Sequence[str]) -> None:
    rest = list(args)
    while rest and rest[0] in ("-H", "-L", "-P"):
        rest.pop(0)
    while rest and not rest[0].startswith("-") and rest[0] not in ("(", ")", "!", ","):
        rest.pop(0)
    expression = iter(rest)
    for token in expression:
        arity = _FIND.get(token)
        if arity is None:
            known = " ".join(sorted(_FIND))
            raise _refuse(command, f"{token[:60]!r} is not allowed", f"Put paths first. Allowed are: {known}.")
        if arity and next(expression, None) is None:
            raise _refuse(command, f"{token} has no value", "Pass it as the next argument.")


def _refuse(command: str, problem: str, remedy: str) -> ToolRefused:
    return ToolRefused(f"{command} was not run: {problem}.", remedy=remedy, reason="option_not_allowed")
