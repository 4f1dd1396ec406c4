"""What pid 1 and the shell say to each other, against bash itself."""

from __future__ import annotations

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.sandbox.inside.shell_protocol import (
    Begun,
    ReportReader,
    ShellReport,
    compare_environment,
    parse_declarations,
    quote,
)
from tests.support import proves

_ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
_LINES = st.binary(max_size=20).map(lambda text: text.replace(b"\0", b""))
# Variables that have a meaning for bash or for the library that it uses.
_SPECIAL = {"_", "PWD", "OLDPWD", "SHLVL", "LANG", "LC_ALL", "BASH", "UID", "EUID", "PPID", "IFS", "PATH"}
_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name.upper() not in _SPECIAL)


def run_bash(script: str, environment: dict[str, str], **options: str) -> bytes:
    command = ["bash", "--norc", "--noprofile", "-c", script]
    base = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **options}
    return subprocess.run(command, env={**base, **environment}, capture_output=True, timeout=60, check=True).stdout


@proves("sandbox.shell-state")
@settings(max_examples=60)
@given(st.dictionaries(_NAMES, _ANY_TEXT, max_size=5), st.sampled_from(["C.UTF-8", "C"]))
def test_what_bash_declares_is_read_back(environment: dict[str, str], locale: str) -> None:
    declared = parse_declarations(run_bash("declare -px", environment, LANG=locale))

    assert {name: value for name, value in declared.items() if name not in _SPECIAL} == environment


@proves("sandbox.shell-state")
def test_only_what_a_program_would_get_counts_as_exported() -> None:
    script = """
    declare -x none; declare -ax list=(1 "a
declare -x forged=1"); declare -Ax map=([a]=b); declare -ix number=5; declare -rx constant=c; declare -xu upper=abc
    export after=last; declare -px"""
    declared = parse_declarations(run_bash(script, {}))
    passed = run_bash(f"{script} >&-; exec env -0", {}).decode().split("\0")[:-1]

    assert {name: value for name, value in declared.items() if name not in _SPECIAL} == {
        "after": "last",
        "constant": "c",
        "number": "5",
        "upper": "ABC",
    }
    assert {f"{name}={value}" for name, value in declared.items() if name not in _SPECIAL} <= set(passed)


@proves("sandbox.shell-text")
@settings(max_examples=60)
@given(_ANY_TEXT, st.sampled_from(["C.UTF-8", "C"]))
def test_a_quoted_text_is_one_line_and_reaches_bash_unchanged(text: str, locale: str) -> None:
    line = quote(text)

    assert "\n" not in line
    assert run_bash(f"printf %s {line}", {}, LANG=locale) == text.encode()


@proves("sandbox.shell-state")
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 255), _LINES), max_size=5), st.data())
def test_reports_are_found_in_whatever_pieces_and_a_cut_one_is_skipped(
    reports: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    stream, expected = b"", list[ShellReport]()
    for number, status, text in reports:
        is_cut = data.draw(st.booleans())
        whole = b"\0\0S%d\0%d\0%s\0\0E" % (number + 100 * is_cut, status, text)
        stream += whole[: data.draw(st.integers(0, len(whole) - 1))] if is_cut else whole
        expected += [] if is_cut else [ShellReport(number, status, text)]
    reader, found = ReportReader(), list[Begun | ShellReport]()
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]

    assert found == expected


@proves("sandbox.shell-interrupt")
def test_the_status_is_the_one_that_a_report_saw_before_it_was_cut_off() -> None:
    cut, again = b"\0\0S7\0003\0declare -x A", b"\0\0S7\00099\0declare -x B\0\0E"

    assert ReportReader().feed(cut + again) == [ShellReport(7, 3, b"declare -x B")]
    assert ReportReader().feed(cut[:5] + again) == [ShellReport(7, 99, b"declare -x B")]


@proves("sandbox.shell-state")
def test_nonsense_in_the_place_of_a_report_is_ignored() -> None:
    assert ReportReader().feed(b"\0\0B3\0\0E") == [Begun(3)]
    nonsense = b"\0\0Bx\0\0Ex\0\0E\0\0Sa\0b\0c\0\0E\0\0S1\0\0E\0\0S1\0 2 3\0\0\0E"

    assert ReportReader().feed(nonsense) == []


@proves("sandbox.shell-state")
def test_the_environment_is_compared_without_what_the_shell_sets_itself() -> None:
    start, now = {"A": "1", "B": "2", "C": "3"}, {"A": "1", "B": "x", "D": "4", "PWD": "/", "SHLVL": "2", "_": "y"}

    assert compare_environment(start, now) == ({"B": "x", "D": "4"}, ["C"])
