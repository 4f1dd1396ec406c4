"""The read-only command tool runs thirteen programs, and only with options that are known."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors.runtime import ToolRefused
from fidelio.sandbox.commands.allow_list import COMMANDS, check_command
from tests.support import proves


@proves("sandbox.command-allow-list")
@pytest.mark.parametrize(
    "text",
    [
        *(
            "pwd",
            "env",
            "ls",
            "ls -la src",
            "ls -lahR --reverse",
            "cat a b",
            "cat -n a",
            "head -5 a",
            "head -n 2 a",
            "head -n2 a",
        ),
        *(
            "head --lines=2 a",
            "head --lines 2 a",
            "head -c 10 a",
            "tail -n +5 a",
            "tail -20 a",
            "tail -c5 a",
            "wc -l a",
            "wc --words a",
        ),
        *("basename a/b", "basename -s .py a.py", "dirname a/b", "realpath .", "realpath --relative-to=/workspace a", "stat a"),
        *("stat -c %s a", "find", "find . -name '*.py' -not -path './.git/*'", "find -L a b -type f -size +1k -printf '%p\\n'"),
        *(
            "grep -rn foo .",
            "grep -E 'a|b' a",
            "grep -A 3 -B3 foo a",
            "grep -e a -e b f",
            "grep --include='*.py' -r foo",
            "cat -- -n",
        ),
        *("find . '(' -name a -o -name b ')' -prune -o -print", "grep -c '' a", "ls --all", "grep -r foo"),
    ],
)
def test_a_known_command_with_known_options_is_allowed_by_its_absolute_path(text: str) -> None:
    command, *args = shlex.split(text)

    checked = check_command(command, args)

    assert checked.program == f"/usr/bin/{command}"
    assert checked.argv == (checked.program, *args)


@proves("sandbox.command-allow-list")
@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("rm a", "'rm'"),
        ("/usr/bin/cat a", "'/usr/bin/cat'"),
        ("rg foo", "'rg'"),
        ("wc --files0-from=/etc/passwd", "--files0-from"),
        ("wc --files0-from /etc/passwd", "--files0-from"),
        ("wc --files0=/etc/passwd", "--files0"),
        ("tail -f a", "-f"),
        ("tail -n5f a", "-n"),
        ("tail -qf a", "-f"),
        ("tail --follow a", "--follow"),
        ("tail -F a", "-F"),
        ("tail --pid=1 a", "--pid"),
        ("head -n x a", "'x'"),
        ("head -n", "''"),
        ("grep -f patterns a", "-f"),
        ("grep --file=patterns a", "--file"),
        ("grep -rf patterns a", "-f"),
        ("grep --exclude-from=x -r foo .", "--exclude-from"),
        ("find . -exec rm {} +", "'-exec'"),
        ("find . -execdir rm {} +", "'-execdir'"),
        ("find . -ok rm {} +", "'-ok'"),
        ("find . -delete", "'-delete'"),
        ("find . -fprint out", "'-fprint'"),
        ("find . -fprintf out x", "'-fprintf'"),
        ("find . -fls out", "'-fls'"),
        ("find -files0-from x", "'-files0-from'"),
        ("find . -name", "-name has no value"),
        ("find . -print a", "'a'"),
        ("find -D exec .", "'-D'"),
        ("env rm a", "no arguments"),
        ("env -i sh", "-i"),
        ("env A=1", "no arguments"),
        ("pwd a", "no arguments"),
        ("cat", "at least one operand"),
        ("cat -", "standard input"),
        ("cat -z a", "-z"),
        ("grep foo", "standard input"),
        ("grep foo -", "standard input"),
        ("ls --hyperlink=x", "--hyperlink"),
        ("ls --al", "--al"),
        ("stat -f a", "-f"),
        ("realpath --files a", "--files"),
        ("cat a\0b", "NUL"),
    ],
)
def test_an_unknown_command_or_option_is_refused_by_name(text: str, word: str) -> None:
    command, *args = text.split(" ") if "\0" in text else shlex.split(text)

    with pytest.raises(ToolRefused) as caught:
        check_command(command, args)

    assert word in str(caught.value)
    assert caught.value.remedy
    assert caught.value.reason in ("command_not_allowed", "option_not_allowed")


@proves("sandbox.command-allow-list")
def test_every_command_of_the_list_is_a_program() -> None:
    assert len(COMMANDS) == 13
    assert [name for name in COMMANDS if shutil.which(name, path="/usr/bin") is None] == []


_words = st.sampled_from(
    [
        "-f",
        "-F",
        "--follow",
        "-n",
        "5",
        "-exec",
        "-delete",
        "--files0-from=x",
        "-la",
        "--",
        "a",
        "-e",
        "-c",
        "x",
        "-name",
        "-r",
        "-fprint",
    ]
)


@proves("sandbox.command-allow-list")
@given(st.sampled_from(sorted(COMMANDS)), st.lists(_words, max_size=5))
def test_whatever_is_allowed_changes_nothing_and_ends(
    tmp_path_factory: pytest.TempPathFactory, command: str, args: list[str]
) -> None:
    try:
        checked = check_command(command, args)
    except ToolRefused:
        return
    top = tmp_path_factory.mktemp("tree")
    (top / "a").write_text("a\n")

    subprocess.run(checked.argv, cwd=top, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)

    assert [path.name for path in Path(top).iterdir()] == ["a"]
    assert (top / "a").read_text() == "a\n"
