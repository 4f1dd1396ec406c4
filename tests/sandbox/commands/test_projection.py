"""The table of projections: which command becomes which call, and which becomes none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.sandbox.actions import ACTIONS
from fidelio.sandbox.commands.parse import parse_command
from fidelio.sandbox.commands.projection import project
from tests.support import proves

CWD = "/workspace/src"
PARAMETERS = {"read": "read_text", "glob": "glob_entries", "grep": "grep_text", "bash": "run_command"}


def read(path: str, **window: int) -> tuple[str, dict[str, Any]]:
    return "read", {"path": path, **window}


def glob(path: str, pattern: str = "*", **more: Any) -> tuple[str, dict[str, Any]]:
    return "glob", {"path": path, "pattern": pattern, "limit": 80, **more}


def grep(path: str, query: str, *, regex: bool = False, case: bool = True, **more: Any) -> tuple[str, dict[str, Any]]:
    return "grep", {"path": path, "query": query, "regex": regex, "caseSensitive": case, **more}


def bash(command: str, *args: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command, "args": list(args), "cwd": CWD}


TABLE = {
    "cat f": read(f"{CWD}/f"),
    "cat /runtime/x.md": read("/runtime/x.md"),
    'cat "my file.md"': read(f"{CWD}/my file.md"),
    "cat a\\ b": read(f"{CWD}/a b"),
    "cat ../link/../f": read(f"{CWD}/../link/../f"),
    "cat -- -n": read(f"{CWD}/-n"),
    "head f": read(f"{CWD}/f", lineCount=10),
    "tail f": read(f"{CWD}/f", tailLines=10),
    "head -n 3 f": read(f"{CWD}/f", lineCount=3),
    "tail -n7 f": read(f"{CWD}/f", tailLines=7),
    "sed -n 5,9p f": read(f"{CWD}/f", startLine=5, lineCount=5),
    "sed -n '5,9p' f": read(f"{CWD}/f", startLine=5, lineCount=5),
    "sed -n 4p f": read(f"{CWD}/f", startLine=4, lineCount=1),
    "wc -l f": read(f"{CWD}/f", lineCount=1),
    "ls": glob(CWD),
    "ls .": glob(CWD),
    "ls d": glob(f"{CWD}/d"),
    "ls -1A d": glob(f"{CWD}/d", hidden=True),
    "ls -la": glob(CWD, hidden=True),
    "ls -l d/": glob(f"{CWD}/d/"),
    "find -name '*.py'": glob(CWD, "**/*.py", hidden=True),
    "find d -name x": glob(f"{CWD}/d", "**/x", hidden=True),
    "find . -type f -name 'a*'": glob(CWD, "**/a*", hidden=True, kind="file"),
    "find . -name 'a**' -type d": glob(CWD, "**/a*", hidden=True, kind="directory"),
    "find . -type f": glob(CWD, "**/*", hidden=True, kind="file"),
    "grep foo": grep(CWD, "foo", hidden=True),
    "grep -rn Foo .": grep(CWD, "Foo", hidden=True),
    "grep -ri foo d": grep(f"{CWD}/d", "foo", case=False, hidden=True),
    "grep foo f": grep(f"{CWD}/f", "foo", kind="file"),
    "grep 'f(x)' f": grep(f"{CWD}/f", "f(x)", kind="file"),
    "grep -F 'a.*' f": grep(f"{CWD}/f", "a.*", kind="file"),
    "grep 'a\\.b' f": grep(f"{CWD}/f", "a.b", kind="file"),
    "grep '^def .*(x)$' f": grep(f"{CWD}/f", "^def .*\\(x\\)$", regex=True, kind="file"),
    "rg foo": grep(CWD, "foo", limit=40, ignoreFiles=True),
    "rg -ni foo d": grep(f"{CWD}/d", "foo", case=False, limit=40, ignoreFiles=True),
    "rg 'foo|a.c' d": grep(f"{CWD}/d", "foo|a.c", regex=True, limit=40, ignoreFiles=True),
    "cat -n f": bash("cat", "-n", "f"),
    "cat a b": bash("cat", "a", "b"),
    "head -5 f": bash("head", "-5", "f"),
    "head -n 0 f": bash("head", "-n", "0", "f"),
    "tail -n +5 f": bash("tail", "-n", "+5", "f"),
    "ls -lah": bash("ls", "-lah"),
    "ls a b": bash("ls", "a", "b"),
    "ls -l link": bash("ls", "-l", "link"),
    "wc f": bash("wc", "f"),
    "find . -name src": glob(CWD, "**/src", hidden=True),
    "find src -name src": bash("find", "src", "-name", "src"),
    "find . -name '*'": bash("find", ".", "-name", "*"),
    "find . -name '[ab]'": bash("find", ".", "-name", "[ab]"),
    "find . -type l -name x": bash("find", ".", "-type", "l", "-name", "x"),
    "grep -R foo .": bash("grep", "-R", "foo", "."),
    "grep -E 'a|b' f": bash("grep", "-E", "a|b", "f"),
    "grep '[ab]' f": bash("grep", "[ab]", "f"),
    "grep -i é f": bash("grep", "-i", "é", "f"),
    "pwd": bash("pwd"),
    "env": bash("env"),
    "stat f": bash("stat", "f"),
}


@proves("sandbox.projection-table")
@pytest.mark.parametrize("text", TABLE)
def test_a_known_command_becomes_this_call(text: str) -> None:
    found = project(text, CWD)

    assert found is not None
    assert (found.tool, found.arguments) == TABLE[text]


@proves("sandbox.projection-fails-closed")
@pytest.mark.parametrize(
    "text",
    [
        *(
            "cat a; rm -rf b",
            "ls > out",
            "cat a | wc",
            "cat $(x)",
            "FOO=1 ls",
            "cat a &",
            "cat <a",
            "ls *",
            "cat ~/a",
            "cat `x`",
            "cat {a,b}",
        ),
        *(
            "cat",
            "cat -",
            "head",
            "sed -n 20,10p f",
            "sed -n 0,3p f",
            "sed 1,2p f",
            "sed -n 1,2p",
            "sed -n '1,2p;w out' f",
            "sed -i s/a/b/ f",
        ),
        *(
            "sed -n 1,2p -i f",
            "sed -n 1e f",
            "sed -n --in-place f",
            "sed -n 1,2p f g",
            "tail -f f",
            "wc --files0-from=f",
            "wc -l",
        ),
        *(
            "find . -delete",
            "find . -name x -exec rm '{}' +",
            "find . -name",
            "rg -g G x",
            "rg --pre cat x",
            "rg",
            "rg 'a(b)'",
            "rg x y z",
        ),
        *(
            "rg '[a]' d",
            "grep -i foo -",
            "grep ''",
            "grep",
            "grep -f f",
            "echo hi",
            "git status",
            "python x.py",
            "ls --x",
            "rg -i é",
        ),
        *("env ls", "pwd a", "time ls", "command cat a", "builtin pwd", "exec ls", "\\cat a;", "sudo cat a", "rg -- ''"),
    ],
)
def test_whatever_else_becomes_no_call(text: str) -> None:
    assert project(text, CWD) is None


@proves("sandbox.projection-fails-closed")
def test_a_relative_directory_gives_no_call() -> None:
    assert project("ls", "src") is None
    assert project("ls -lah", "src") is None


_PROGRAMS = ["cat", "ls", "grep", "rg", "find", "sed", "head", "tail", "wc"]
_PLAIN = ["-n", "-r", "-i", "-la", "-name", "-type", "f", "'*.py'", "a", "b c", "'x y'", "5", "1,2p", "--", "-", "''"]
_DANGEROUS = ["-exec", "-f", "-w", "--pre=x", "-delete", "; rm a", "> b", "$(c)", "&", "| d", "A=1", "*"]
_words = st.lists(st.sampled_from([*_PROGRAMS, *_PLAIN, *_DANGEROUS]), min_size=1, max_size=6).map(" ".join)


@proves("sandbox.projection-fails-closed", "sandbox.projection-valid")
@given(_words)
def test_every_projection_is_valid_and_comes_from_one_plain_command(text: str) -> None:
    found = project(text, CWD)
    if found is None:
        return

    msgspec.convert(found.arguments, ACTIONS[PARAMETERS[found.tool]].parameters)
    words = parse_command(text)
    assert words is not None
    assert not {"-exec", "-delete", "-f", "--pre=x"} & (set(words) - set(words[words.index("--") :] if "--" in words else ()))


@proves("sandbox.projection-valid")
def test_every_call_of_the_table_is_valid_for_its_tool() -> None:
    for tool, arguments in TABLE.values():
        msgspec.convert(arguments, ACTIONS[PARAMETERS[tool]].parameters)
