"""Random file trees and shell commands for comparisons with the real programs.

They are drawn from a seed that hypothesis chooses: its own strategies prefer small trees, in which most searches find nothing.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from random import Random
from typing import NamedTuple

_DIRECTORIES = ["src", "lib", "build", "deep", "x y", "[id]", ".github", ".hidden", "it's", "é"]
_FILES = [
    "a",
    "b.txt",
    "C.md",
    "a.b",
    "x y",
    "é.txt",
    "[id].tsx",
    "foo.py",
    "-dash",
    ".env",
    "notes",
    "main.py",
    "test_a.py",
    "#x",
]
_LINES = [
    "foo",
    "Foo bar",
    "FOO",
    "import os",
    "  import re",
    "a.b",
    "axb",
    "",
    "f(x)",
    "é",
    "É",
    "foo é",
    "tab\tfoo",
    "foo\r",
    "end",
]
_LINES += ["a+b", "ab", "aab", "$x", "\\", "[a]", "x" * 500 + "foo", "foo|bar", "^foo", "bar$", "{}", "bar"]
_PATTERNS = ["foo", "Foo", "import", "a.b", "^foo", "bar$", "^import os$", "fo*", "f.o", ".*x", "zzz", "f(x)", "a+b", "foo bar"]
_PATTERNS += ["a\\.b", "\\$x", "\\\\", "foo|bar", "a*b", "x", "o", "é", "foo$", "a\\.b|end", "^foo|end$", "fo?", "[a]", "{}"]
_IGNORED = ["*.txt", "build", "build/", "/src", "!b.txt", "lib/*.py", "**/deep", "a*", "# note", "", "x y", "[a-c]*", "src/**"]
_IGNORED += [
    "!.env",
    "*.{py,md}",
    "\\#x",
    "?",
    "deep/",
    "foo.py  ",
    "/lib/",
    "!*.md",
    "lib/**/a",
    "!foo.py",
    "src/a",
    "*.py",
    "[!a]",
]
_IGNORE_FILES = [".gitignore", ".gitignore", ".ignore", ".rgignore", ".git/info/exclude"]
_GLOBS = [
    "*",
    "*.py",
    "*.txt",
    "a*",
    "?",
    "foo.py",
    "*.*",
    ".*",
    "**",
    "x y",
    "*é*",
    "src",
    "lib",
    "zzz",
    "*b*",
    "[ab]",
    "-*",
    "???",
]
_LINKS = {
    "link": ["src", "lib", "foo.py", "missing", "../x", "link"],
    "lib/up": ["../src"],
    "up": ["lib/up"],
    "src/f": ["foo.py"],
}


class Case(NamedTuple):
    """A tree and commands to run in it."""

    files: dict[str, bytes]
    links: dict[str, str]
    commands: list[str]


def draw_case(seed: int, commands: int) -> Case:
    random = Random(seed)
    files = {_draw_path(random): _draw_content(random) for _ in range(random.randint(4, 24))}
    ignored = {
        _draw_directory(random, 1) + random.choice(_IGNORE_FILES): _draw_ignored(random) for _ in range(random.randint(0, 3))
    }
    if random.random() < 0.6:
        ignored[".git/config"] = b""
    links = {name: random.choice(targets) for name, targets in _LINKS.items() if random.random() < 0.6}
    operands = _spell_operands(random, sorted(files))
    return Case({**files, **ignored}, links, [_draw_command(random, sorted(files), operands) for _ in range(commands)])


def build(case: Case, top: Path) -> None:
    """Create the tree; what is in the way of something else is left out."""
    for name, content in case.files.items():
        path = top / name
        if not any(parent.is_file() for parent in path.parents) and not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    for name, target in case.links.items():
        path = top / name
        if path.parent.is_dir() and not os.path.lexists(path):
            path.symlink_to(target)
    os.mkfifo(top / "fifo")


def _draw_directory(random: Random, deepest: int) -> str:
    return "".join(f"{random.choice(_DIRECTORIES[: 4 + 3 * deepest])}/" for _ in range(random.randint(0, deepest)))


def _draw_path(random: Random) -> str:
    return _draw_directory(random, random.choice([1, 2, 3])) + random.choice(_FILES)


def _draw_content(random: Random) -> bytes:
    text = "\n".join(random.choices(_LINES, k=random.choice([0, 1, 3, 9, 15, 30]))) + random.choice(["", "\n", "\n"])
    return text.encode() + (b"\0foo\n" if random.random() < 0.08 else b"")


def _draw_ignored(random: Random) -> bytes:
    return "\n".join(random.choices(_IGNORED, k=random.randint(1, 4))).encode()


def _spell_operands(random: Random, files: list[str]) -> list[str]:
    """Existing files, their directories in several spellings, links, and missing names."""
    directories = sorted({str(Path(name).parent) for name in files} | {"."})
    spelled = [name + random.choice(["", "/", "/.", "/../", "//"]) for name in directories]
    return [*files, *(f"./{name}" for name in files[:4]), *directories, *spelled, "missing", "link", "up", "lib/up/", "src/f"]


def _draw_command(random: Random, files: list[str], operands: list[str]) -> str:
    program = random.choice(["cat", "head", "tail", "sed", "wc", "ls", "find", "find", "grep", "grep", "rg", "rg"])
    reads_file = program in ("cat", "head", "tail", "sed", "wc")
    operand = random.choice(files if reads_file and random.random() < 0.8 else operands)
    words = _draw_options(random, program)
    if program == "find":
        words = [operand, *words] if random.random() < 0.6 else words
    elif program not in ("ls", "grep", "rg") or random.random() < 0.6:
        words = [*words, *(["--"] if operand.startswith("-") and program != "sed" else []), operand]
    quote = random.choice([shlex.quote, _double_quote])
    return " ".join([program, *map(quote, words)])


def _draw_options(random: Random, program: str) -> list[str]:
    number, line = str(random.randint(1, 30)), random.randint(1, 12)
    if program in ("head", "tail"):
        return random.choice([[], ["-n", number], [f"-n{number}"]])
    if program == "sed":
        return ["-n", random.choice([f"{line},{line + random.randint(0, 9)}p", f"{line}p"])]
    if program == "find":
        tests = [random.choice([[], ["-type", "f"], ["-type", "d"]]), random.choice([[], ["-name", random.choice(_GLOBS)]])]
        random.shuffle(tests)
        return [*tests[0], *tests[1]]
    if program in ("grep", "rg"):
        flags = [[], ["-n"], ["-i"], ["-F"], ["-ni"]] + (
            [["-r"], ["-rn"], ["-rF"], ["-r", "-i"], ["-rni"]] if program == "grep" else []
        )
        return [*random.choice(flags), random.choice(_PATTERNS)]
    fixed: dict[str, list[list[str]]] = {
        "cat": [[]],
        "wc": [["-l"]],
        "ls": [[], ["-a"], ["-A"], ["-1"], ["-l"], ["-la"], ["-1", "-A"]],
    }
    return random.choice(fixed[program])


def _double_quote(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'
