"""Parsing of one simple command: the words are those that bash would pass, and everything else is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.sandbox.commands.parse import parse_command
from tests.support import proves

# Fragments of words; blanks and operators are among them, so that most texts are refused and many are not.
_PLAIN = [
    "a",
    "b",
    "-n",
    "--x=y",
    "1",
    "é",
    "/",
    ".",
    "..",
    ":",
    "@",
    "%",
    "^",
    "]",
    "+",
    ",",
    "=",
    "#",
    "a=b",
    "\u00a0",
    "\u3000",
    "2",
]
_QUOTED = [
    "'a b'",
    '"a b"',
    "''",
    '""',
    "'$x'",
    '"\\$x"',
    '"a\\"b"',
    '"\\\\"',
    "'\\'",
    '"\\a"',
    "'\n'",
    '"\n"',
    "'*'",
    '"~"',
    "'#'",
    '"\'"',
]
_ESCAPED = ["\\ ", "\\a", "\\\\", "\\'", '\\"', "\\$", "\\*", "\\;", "\\é", "\\#", "\\~", "\\{", "\\!"]
_SPECIAL = [
    "$x",
    "$(a)",
    "`a`",
    ";",
    "&",
    "|",
    ">",
    "<",
    "(",
    ")",
    "{a,b}",
    "*",
    "?",
    "[",
    "~",
    "!",
    "\n",
    "\\",
    "\\\n",
    "'",
    '"',
    "$'a'",
]
_fragments = st.one_of(
    st.sampled_from(_PLAIN), st.sampled_from(_QUOTED), st.sampled_from(_ESCAPED), st.sampled_from([" ", "  ", "\t"])
)
_texts = st.lists(_fragments, max_size=9).map(lambda fragments: "show " + "".join(fragments))
_wild_texts = st.lists(st.one_of(_fragments, st.sampled_from(_SPECIAL)), max_size=7).map(
    lambda fragments: "show " + "".join(fragments)
)

_END = "\x01end\x01"
# The shell itself tells which arguments the function gets. A text runs in a directory of its own, with no other programs.
_SHOW = f"""
show() {{ local word; for word in "$@"; do printf '%s\\0' "$word"; done; }}
for text in "$@"; do eval "$text"; printf '%s\\0' '{_END}'; done
"""


def words_by_bash(texts: list[str], cwd: Path) -> list[tuple[str, ...]]:
    done = subprocess.run(
        ["/bin/bash", "--norc", "--noprofile", "-c", _SHOW, "bash", *texts],
        cwd=cwd,
        env={"PATH": "/nonexistent", "LC_ALL": "C.UTF-8", "HOME": "/home/x"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    outputs = done.stdout.decode().split(f"{_END}\0")[:-1]
    assert not done.stderr, done.stderr
    return [tuple(output.split("\0")[:-1]) for output in outputs]


@proves("sandbox.parsing-agrees-with-bash")
def test_the_words_are_those_that_bash_passes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file that a wildcard would find")
    accepted = 0

    @settings(max_examples=100)
    @given(st.lists(st.one_of(_texts, _wild_texts), min_size=20, max_size=20))
    def compare(texts: list[str]) -> None:
        nonlocal accepted
        parsed = [(text, words) for text in texts if (words := parse_command(text)) is not None]
        accepted += len(parsed)
        assert words_by_bash([text for text, _ in parsed], tmp_path) == [words[1:] for _, words in parsed]

    compare()

    assert accepted > 500
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@proves("sandbox.parsing-refuses-the-rest")
@pytest.mark.parametrize(
    "text",
    [
        *("cat a; rm b", "cat a && rm b", "cat a || rm b", "cat a | wc", "cat a &", "cat a\ncat b", "(cat a)", "{ cat a; }"),
        *(
            "ls > out",
            "ls >> out",
            "cat < a",
            "cat <<< a",
            "cat <<E\na\nE",
            "ls 2>&1",
            "ls &> out",
            "cat <(ls)",
            ">out",
            "ls >| f",
        ),
        *(
            "cat $(x)",
            "cat `x`",
            "cat $x",
            "cat ${x}",
            'cat "$x"',
            'cat "$(x)"',
            'cat "`x`"',
            "cat $'a'",
            'cat $"a"',
            "cat $((1))",
        ),
        *("FOO=1 ls", "FOO=1", "FOO+=1 ls", "a[1]=2 ls", "export A=1", "declare -x A=1", "unset A", "local a=1", "readonly a"),
        *(
            "ls *",
            "ls ?",
            "ls [ab]",
            "cat ~",
            "cat ~/x",
            "cat a=~/x",
            "cat {a,b}",
            "cat {1..3}",
            "!!",
            "!ls",
            "ls !$",
            'ls "!x"',
            "^a^b^",
        ),
        *(
            "cat a # b",
            "# a",
            "if a",
            "time ls",
            "! ls",
            "coproc ls",
            "for",
            "while",
            "case",
            "[[ a ]]",
            "function a",
            "select",
            "'time' ls",
        ),
        *(
            "cat 'a",
            'cat "a',
            "cat a\\",
            "cat a\\\nb",
            "",
            "  ",
            "\n",
            "cat a\0b",
            "cat a\x1bb",
            "cat a\rb",
            "cat \x85",
            "cat \ud800",
            "a()",
        ),
        *("cat\u00a0a\u2003b ; ls", "%1", "cat @(a)", "cat a\vb", "cat a\fb"),
    ],
)
def test_what_may_mean_more_than_its_words_is_not_parsed(text: str) -> None:
    assert parse_command(text) is None


@proves("sandbox.parsing-refuses-the-rest")
@given(
    st.lists(st.sampled_from(["a", "'b c'", '"d"', "e\\ f", "-n"]), min_size=1, max_size=4).map(" ".join),
    st.sampled_from(
        [";x", "&x", "|x", ">x", "<x", "$x", "`x`", "*", "?", "[x]", "~", "{x,y}", "(x)", "!x", "\nx", " #x", "&&x", "$(x)"]
    ),
)
def test_no_unquoted_special_character_gets_through_anywhere(words: str, special: str) -> None:
    assert parse_command(f"cat {words}") is not None
    assert parse_command(f"cat {words} {special}") is None
    assert parse_command(f"cat {words}{special}") is None
    assert parse_command(f"cat {special}{words}") is None


@proves("sandbox.parsing-refuses-the-rest")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("  cat a\n", ("cat", "a")),
        ("cat a\\ b", ("cat", "a b")),
        ("cat 'a\nb' \"c;d\"", ("cat", "a\nb", "c;d")),
        ("grep -n '$x|y' -- a#b", ("grep", "-n", "$x|y", "--", "a#b")),
        ("pytest tests/x.py::test_a -k 'a and b'", ("pytest", "tests/x.py::test_a", "-k", "a and b")),
        ("cat \"a\"'b'c", ("cat", "abc")),
        ("cat ''", ("cat", "")),
    ],
)
def test_quotes_and_escapes_are_removed_as_bash_does(text: str, words: tuple[str, ...]) -> None:
    assert parse_command(text) == words


@proves("sandbox.parsing-refuses-the-rest")
def test_a_long_text_is_not_parsed() -> None:
    assert parse_command("cat " + "a" * 9_000) is not None
    assert parse_command("cat " + "a" * 10_000) is None
