"""Standard output that is closed, full, or a broken pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import proves
from tests.surfaces.conftest import Fidelio

FULL = Path("/dev/full")


def run(environ: dict[str, str], *arguments: str, output: int) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "fidelio", *arguments],
        env=environ,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@proves("cli.closed-pipe")
@pytest.mark.parametrize("command", [["tour"], ["list", "--help"], ["list"]], ids=" ".join)
def test_a_closed_pipe_ends_a_command_silently_with_141(environ: dict[str, str], command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = run(environ, *command, output=writing)
    finally:
        os.close(writing)

    assert ended == (141, "")


@proves("cli.closed-pipe")
@pytest.mark.parametrize("command", [["tour"], ["demo", "--headless"]], ids=" ".join)
def test_a_pipe_that_closes_during_output_ends_a_command_silently_with_141(environ: dict[str, str], command: list[str]) -> None:
    line = [sys.executable, "-m", "fidelio", *command]
    with subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        said = process.stderr.read()
        ended = process.wait(timeout=60)

    assert (ended, said) == (141, b"")


@proves("cli.closed-pipe")
@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [["tour"], ["--help"]], ids=" ".join)
def test_a_full_disk_is_reported_in_one_sentence(environ: dict[str, str], command: list[str]) -> None:
    with FULL.open("wb") as full:
        code, said = run(environ, *command, output=full.fileno())

    assert code == 1
    assert said == "fidelio: The output cannot be written: No space left on device. Free some space, or write it elsewhere.\n"


@proves("cli.closed-pipe")
@pytest.mark.parametrize("command", ["tour", "sessions"])
def test_a_command_without_standard_output_does_its_work(
    environ: dict[str, str], fidelio: Fidelio, home: Path, command: str
) -> None:
    home.mkdir()
    line = f"{sys.executable} -m fidelio {command} >&-"
    done = subprocess.run(["sh", "-c", line], env=environ, stderr=subprocess.PIPE, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert fidelio("verify", "--all").returncode == 0


@proves("cli.errors")
def test_a_command_whose_complaints_nobody_reads_still_ends_with_its_code(environ: dict[str, str]) -> None:
    line = f"{sys.executable} -m fidelio show nothing 2>&-"
    done = subprocess.run(["sh", "-c", line], env=environ, capture_output=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (4, b"")
