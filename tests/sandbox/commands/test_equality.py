"""A projected command and the command itself give the same result, compared with the real programs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fidelio.sandbox.actions import ACTIONS
from fidelio.sandbox.commands.projection import Projection, project
from fidelio.sandbox.inside.failures import Failure
from fidelio.sandbox.inside.files import ACTIONS as INLINE
from fidelio.sandbox.inside.files import SCANS
from fidelio.sandbox.inside.tree import PlainTree
from tests.sandbox.commands.trees import build, draw_case
from tests.support import proves
from tests.support.parts import require_part

PROGRAMS = ("bash", "cat", "find", "grep", "head", "ls", "rg", "sed", "tail", "wc")
TOOLS = {"read": "read_text", "glob": "glob_entries", "grep": "grep_text"}
COMMANDS_PER_TREE = 40
# Show paths and line numbers in a form that can be parsed; they change nothing else.
FORMATS = {"grep": ["-nHZ"], "rg": ["--no-config", "--no-heading", "--color=never", "-H0"]}


def flags_of(text: str) -> set[str]:
    """The letters of all short options."""
    words = shlex.split(text)
    return {
        letter for word in words[1 : words.index("--") if "--" in words else None] if word[:1] == "-" for letter in word[1:]
    }


class Result:
    """What the real command printed. A file that is not there makes it fail."""

    def __init__(self, text: str, cwd: Path) -> None:
        program, _, rest = text.partition(" ")
        # rg refuses an option that is repeated.
        number = ["-n"] if program == "rg" and "n" not in flags_of(text) else []
        command = " ".join([program, *FORMATS.get(program, []), *number, rest])
        environ = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": "/nonexistent", "TZ": "UTC"}
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )
        self.output, self.code, self.errors = done.stdout, done.returncode, done.stderr


def run_tool(projection: Projection, top: Path) -> dict[str, Any] | None:
    """The output of the tool; None if it failed."""
    action = TOOLS[projection.tool]
    arguments = msgspec.to_builtins(msgspec.convert(projection.arguments, ACTIONS[action].parameters))
    # Everything is compared, so nothing may be left off.
    arguments["limit" if projection.tool != "read" else "maxChars"] = 1000 if projection.tool != "read" else 200_000
    try:
        return {**INLINE, **SCANS}[action](PlainTree(str(top)), arguments)
    except Failure:
        return None


def clean(path: str, top: Path) -> str:
    return PlainTree(str(top)).absolute(path).rstrip("/")


def printed_names(text: str, projection: Projection, output: bytes, top: Path) -> set[str]:
    lines = output.decode().split("\n")[:-1]
    if text.startswith("find"):
        return {clean(line, top) for line in lines}
    start = projection.arguments["path"]
    if not os.path.isdir(start):  # noqa: PTH112  # `Path` would drop the final slash, which demands a directory
        return {clean(line.split(" -> ")[0], top) for line in lines}
    if "l" in flags_of(text):
        lines = [line.split(" -> ")[0].split(None, 8)[8] for line in lines if not line.startswith("total ")]
    return {clean(f"{start}/{line}", top) for line in lines if line not in (".", "..")}


def printed_matches(output: bytes, top: Path, *, binary: set[str]) -> set[tuple[str, int, str]]:
    found = set()
    for record in output.split(b"\n")[:-1]:
        if b"\0" in record:
            path, _, rest = record.partition(b"\0")
            line, _, text = rest.partition(b":")
            found.add((clean(path.decode(), top), int(line), text.decode()))
    return {match for match in found if str(Path(match[0]).resolve()) not in binary}


def compare(text: str, projection: Projection, top: Path) -> None:
    real = Result(text, top)
    output = run_tool(projection, top)
    if output is None:
        assert real.code != 0, (text, projection)
        assert not real.output or text.startswith("wc"), (text, projection, real.output)
        return
    if projection.compared == "content":
        assert output.get("binary") or real.output.decode() == output["content"], (text, projection)
    elif projection.compared == "newline_count":
        assert int(real.output.split()[0]) == output["newlineCount"], (text, projection)
    elif projection.compared == "names":
        ours = {clean(entry["path"], top) for entry in output["entries"]}
        theirs = printed_names(text, projection, real.output, top)
        assert theirs == ours, (
            text,
            projection,
            "only theirs",
            sorted(theirs - ours)[:5],
            "only ours",
            sorted(ours - theirs)[:5],
        )
    else:
        compare_matches(text, projection, real, output, top)


def compare_matches(text: str, projection: Projection, real: Result, output: dict[str, Any], top: Path) -> None:
    if projection.compared == "recursive_matches":
        real = Result(f"{text.replace('grep', 'grep -r', 1)} .", top)
    binary = {str(path) for path in top.rglob("*") if path.is_file() and b"\0" in path.read_bytes()}
    theirs = printed_matches(real.output, top, binary=binary)
    ours = {(clean(match["path"], top), match["line"], match["text"]) for match in output["matches"] if not match.get("cut")}
    cut = {(clean(match["path"], top), match["line"]) for match in output["matches"] if match.get("cut")}
    assert {match for match in theirs if match[:2] not in cut} == ours, (
        text,
        projection,
        "only theirs",
        sorted(theirs - ours)[:5],
        "only ours",
        sorted(ours - theirs)[:5],
    )
    assert cut <= {match[:2] for match in theirs}, (text, projection)


def compare_all(tmp_path_factory: pytest.TempPathFactory, examples: int) -> Counter[str]:
    for program in PROGRAMS:
        if shutil.which(program) is None:
            require_part(program, "Install it with the package manager; ripgrep has `rg`.")
    compared: Counter[str] = Counter()

    # A smaller seed is no simpler tree.
    @settings(max_examples=examples, phases=[Phase.explicit, Phase.reuse, Phase.generate])
    @given(seed=st.integers(0, 1 << 64))
    def compare_case(seed: int) -> None:
        # `..` leads into a directory that belongs to the case.
        top = tmp_path_factory.mktemp("case").resolve() / "tree"
        top.mkdir()
        case = draw_case(seed, COMMANDS_PER_TREE)
        build(case, top)
        for text in case.commands:
            projection = project(text, str(top))
            if projection is not None and projection.tool != "bash":
                compare(text, projection, top)
                compared[text.split()[0]] += 1
        shutil.rmtree(top.parent)

    compare_case()
    return compared


@proves("sandbox.projection-equality")
def test_a_projected_command_gives_what_the_command_gives(tmp_path_factory: pytest.TempPathFactory) -> None:
    compared = compare_all(tmp_path_factory, examples=32)

    assert sum(compared.values()) >= 1_000
    assert set(compared) == set(PROGRAMS) - {"bash"}


@pytest.mark.soak
@pytest.mark.timeout(1800)
@proves("sandbox.projection-equality")
def test_ten_thousand_projected_commands_give_what_the_commands_give(tmp_path_factory: pytest.TempPathFactory) -> None:
    compared = compare_all(tmp_path_factory, examples=320)

    assert sum(compared.values()) >= 10_000
