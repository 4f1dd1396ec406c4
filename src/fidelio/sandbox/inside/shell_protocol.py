"""What pid 1 and the persistent shell say to each other.

The shell is an interactive bash without a terminal of its own: only an interactive one gives up a command on SIGINT and goes on
with the next line. It reads lines from its standard input, which commands do not get. Each command is one line that evaluates
one quoted text, so that unfinished syntax is an error of that text and never swallows what follows. Exit status and exported
variables come back through a descriptor of their own. A command can forge them, so nothing may rely on them but the session
itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

BASH_ARGV = ("/bin/bash", "--norc", "--noprofile", "--noediting", "-i", "+m")
# Descriptors of the shell; commands get the last three as 0, 1 and 2 and none of these numbers.
REPORT, STDIN, STDOUT, STDERR = 20, 21, 22, 23
# The name of the function that reports. A signal can make bash lose the beginning of a line and execute the rest; the rest of
# this line is a name that no program has.
_FUNCTION = "________"
# No prompts, no history, no check for mail. Job control would ask for a terminal.
PREPARE = (
    "PS1= PS2= PS0= PROMPT_COMMAND=; \\builtin unset HISTFILE MAILCHECK; \\builtin set +o history +H\n"
    f'{_FUNCTION}() {{ \\builtin printf \'\\0\\0S%s\\0%s\\0\' "$1" "$?" >&{REPORT};'
    f" \\builtin declare -px >&{REPORT}; \\builtin printf '\\0\\0E' >&{REPORT}; }}\n"
).encode()
_REDIRECT = f"<&{STDIN} >&{STDOUT} 2>&{STDERR} {REPORT}>&- {STDIN}<&- {STDOUT}>&- {STDERR}>&-"
_BEGIN, _START, _END = b"\0\0B", b"\0\0S", b"\0\0E"
_MAX_REPORT = 8 << 20
# Variables that the shell itself changes.
_OWN = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})
_DECLARATION = re.compile(rb"declare -([A-Za-z]+) ([A-Za-z_][A-Za-z0-9_]*)(=?)")
_DOUBLE_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ANSI_QUOTED = re.compile(rb"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_DOUBLE_ESCAPE = re.compile(rb'\\(["$`\\])')
_ANSI_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|(.))", re.DOTALL)
_ANSI_NAMES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"v": b"\v", b"f": b"\f", b"E": b"\x1b"}
# A longer value cannot be passed to a program.
_MAX_VALUE = 128 << 10
_MAX_NAMES = 2000


class Begun(NamedTuple):
    """The shell has read a command completely and carries it out now."""

    number: int


class ShellReport(NamedTuple):
    """What the shell says after a command. `declarations` is what `declare -px` printed."""

    number: int
    status: int
    declarations: bytes


class Changes(NamedTuple):
    """What is done before a command."""

    cwd: str | None = None
    environment: Mapping[str, str] = {}
    unset: tuple[str, ...] = ()


def encode_command(number: int, command: str, changes: Changes) -> bytes:
    """The lines that run a command. Its text reaches the shell unchanged."""
    lines = [f"\\builtin unset -v {name}\n" for name in changes.unset]
    lines += [f"\\builtin export {name}={quote(value)}\n" for name, value in changes.environment.items()]
    # In a directory that is missing the command must not run.
    enter = "" if changes.cwd is None else f"\\builtin cd -- {quote(changes.cwd)} && "
    begin = f"\\builtin printf '\\0\\0B%s\\0\\0E' {number} >&{REPORT}"
    # Each line begins with an empty one: of a line that a signal interrupts, only the first character can be lost.
    lines.append(f"\n{{ {begin}; {{ {enter}\\builtin eval {quote(command)}; }} {_REDIRECT}; {_FUNCTION} {number}; }}\n")
    # Some errors make bash give up the whole line, an interrupt as well. Then this one reports.
    return "".join(lines).encode() + encode_report(number)


def encode_report(number: int) -> bytes:
    """The line that makes the shell report once more."""
    return f"\n{_FUNCTION} {number}\n".encode("ascii")


def quote(text: str) -> str:
    """Quote a text for bash on a single line."""
    for character, escape in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("!", "\\x21")):
        text = text.replace(character, escape)
    return f"$'{text}'"


class ReportReader:
    """Finds the messages of the shell in its stream. What an interrupt has cut off is skipped."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[Begun | ShellReport]:
        self._buffer += data
        pieces = self._buffer.split(_END)
        self._buffer = pieces.pop()[-_MAX_REPORT:]
        return [message for part in pieces for message in _parse_message(part)]


def parse_declarations(text: bytes) -> dict[str, str]:
    """The exported variables that `declare -px` has printed. Arrays and variables without a value are not exported."""
    found: dict[str, str] = {}
    position = 0
    while len(found) < _MAX_NAMES:
        declared = _DECLARATION.search(text, position)
        if declared is None:
            break
        position = declared.end()
        if not declared[3]:
            continue
        double = _DOUBLE_QUOTED.match(text, position)
        ansi = None if double else _ANSI_QUOTED.match(text, position)
        value = _unescape(double[1], ansi=False) if double else _unescape(ansi[1], ansi=True) if ansi else None
        position = double.end() if double else ansi.end() if ansi else _end_of_line(text, position)
        if value is not None and len(value) <= _MAX_VALUE:
            found[declared[2].decode("ascii")] = value.decode("utf-8", "replace")
    return found


def compare_environment(start: Mapping[str, str], now: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables that differ from those at the start, and the names of those that were unset."""
    changed = {name: value for name, value in now.items() if start.get(name) != value and name not in _OWN}
    return changed, sorted(name for name in start if name not in now and name not in _OWN)


def _parse_message(part: bytes) -> list[Begun | ShellReport]:
    """The last message that was begun before an end. A report that was cut off before it has seen the status, if any has."""
    number = part.rpartition(_BEGIN)[2] if _BEGIN in part else b""
    try:
        return [Begun(int(number))] if number else _parse_report(part)
    except ValueError:
        return _parse_report(part)


def _parse_report(part: bytes) -> list[Begun | ShellReport]:
    begun = [fields for fields in (text.split(b"\0") for text in part.split(_START)[1:]) if len(fields) >= 3]
    if not begun or len(begun[-1]) != 3:
        return []
    number, _, declarations = begun[-1]
    status = next(fields[1] for fields in begun if fields[0] == number)
    try:
        return [ShellReport(int(number), int(status), declarations)]
    except ValueError:
        return []


def _unescape(value: bytes, *, ansi: bool) -> bytes:
    if not ansi:
        return _DOUBLE_ESCAPE.sub(rb"\1", value)
    return _ANSI_ESCAPE.sub(_replace_ansi, value)


def _replace_ansi(escape: re.Match[bytes]) -> bytes:
    if escape[1] is not None:
        return bytes((int(escape[1], 8) & 0xFF,))
    name: bytes = escape[2]
    return _ANSI_NAMES.get(name, name)


def _end_of_line(text: bytes, position: int) -> int:
    end = text.find(b"\n", position)
    return len(text) if end < 0 else end
