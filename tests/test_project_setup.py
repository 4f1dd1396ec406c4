"""What happens before there is anything to run: the script behind `make run` and `make test`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support import proves
from tests.support.fake_machine import ROOT, FakeMachine, fake_machine


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return fake_machine(tmp_path)


@proves("project.python-version")
def test_an_old_python_stops_with_one_line(machine: FakeMachine) -> None:
    done = machine.setup(OLD="1")

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert "is Python 3.9.18" in done.stderr


@proves("project.python-version")
def test_a_missing_python_stops_with_one_line(machine: FakeMachine) -> None:
    done = machine.setup(PYTHON="python-that-is-not-there")

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "There is no python-that-is-not-there." in done.stderr


@proves("project.venv-module")
def test_without_the_venv_module_a_user_reads_the_command_that_installs_it(tmp_path: Path) -> None:
    done = fake_machine(tmp_path, has_venv=False).setup()

    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f"Install it with: sudo apt-get install {package}")
    assert len(done.stderr.splitlines()) == 1


@proves("project.venv-module")
def test_without_the_venv_module_root_installs_it_and_goes_on(tmp_path: Path) -> None:
    machine = fake_machine(tmp_path, has_venv=False)

    assert machine.setup(USER_ID="0").returncode == 0
    calls = machine.calls()
    assert [call.split()[1] for call in calls if call.startswith("apt-get")] == ["update", "install"]
    assert "(noninteractive)" in calls[1]
    assert "venv" in calls


@proves("project.install-once")
def test_a_second_run_installs_nothing(machine: FakeMachine) -> None:
    machine.setup()
    machine.calls()

    again = machine.setup()

    assert again.returncode == 0
    assert machine.calls() == []
    assert again.stdout + again.stderr == ""


@proves("project.install-once")
def test_a_larger_set_holds_the_smaller_ones(machine: FakeMachine) -> None:
    machine.setup("run")
    machine.calls()

    machine.setup("lint")
    assert machine.installs() == 1

    machine.setup("test")
    machine.setup("run")
    assert machine.installs() == 0


@proves("project.install-once")
@pytest.mark.parametrize("file", ["pyproject.toml", "constraints.txt"])
def test_changed_dependencies_are_installed_into_the_same_environment(machine: FakeMachine, file: str) -> None:
    machine.setup()
    machine.calls()

    with (machine.clone / file).open("a", encoding="utf-8") as text:
        text.write("# changed\n")
    machine.setup()

    calls = machine.calls()
    assert any("--editable" in call for call in calls)
    assert "venv" not in calls


@proves("project.install-once")
def test_another_python_gets_an_environment_of_its_own(machine: FakeMachine) -> None:
    machine.setup()
    machine.calls()

    machine.setup(FAKE_VERSION="3.12")

    assert "venv" in machine.calls()


@proves("project.install-once")
def test_a_clone_that_was_moved_gets_an_environment_of_its_own(machine: FakeMachine) -> None:
    machine.setup()
    machine.calls()
    moved = FakeMachine(machine.place.rename(machine.place.with_name("moved")))

    assert moved.setup().returncode == 0
    assert "venv" in moved.calls()


@proves("project.install-repair")
def test_an_interrupted_installation_is_made_anew(machine: FakeMachine) -> None:
    assert machine.setup(KILL_DURING_INSTALL="1").returncode != 0
    machine.calls()

    assert machine.setup().returncode == 0
    assert "venv" in machine.calls()


@proves("project.install-repair")
def test_a_failed_installation_says_why_and_is_repeated(machine: FakeMachine) -> None:
    failed = machine.setup(FAIL_INSTALL="1")
    machine.calls()

    assert failed.returncode == 1
    assert "No matching distribution" in failed.stderr
    assert machine.setup().returncode == 0
    assert machine.installs() == 1


@proves("project.install-repair")
def test_an_environment_without_its_interpreter_is_made_anew(machine: FakeMachine) -> None:
    machine.setup()
    machine.calls()
    (machine.clone / ".venv" / "bin" / "python").unlink()

    assert machine.setup().returncode == 0
    assert "venv" in machine.calls()


@proves("project.bytecode")
def test_bytecode_is_written_although_the_environment_forbids_it_and_follows_edits(machine: FakeMachine) -> None:
    machine.setup()
    (compiled,) = (machine.clone / "src" / "__pycache__").iterdir()
    before = compiled.read_bytes()

    source = machine.clone / "src" / "product.py"
    source.write_text("answer = 'another one'\n", "utf-8")
    # Bytecode knows the age of its source in whole seconds.
    os.utime(source, (source.stat().st_atime, source.stat().st_mtime + 2))
    machine.setup()

    assert compiled.read_bytes() != before


@proves("project.pins")
def test_every_install_is_held_to_the_pins(machine: FakeMachine) -> None:
    machine.setup("lint")

    installs = [call for call in machine.calls() if call.startswith("pip")]
    assert installs
    assert all("--constraint constraints.txt" in call for call in installs)
    assert "--build-constraint constraints.txt" in installs[-1]


@proves("project.pins")
def test_the_pins_are_exact_and_name_no_address() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]

    assert {"apsw", "pytest", "hatchling", "pip", "mypy"} <= {pin.partition("==")[0] for pin in pins}
    assert all(pin.count("==") == 1 and "/" not in pin and " " not in pin for pin in pins)
