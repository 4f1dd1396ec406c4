"""The filter of system calls, run by a small interpreter of classic BPF: both architectures on any machine."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors.runtime import SandboxUnavailable
from fidelio.sandbox import seccomp
from fidelio.sandbox.seccomp import REFUSED, build_filter
from tests.support import proves

ALLOWED, REFUSED_ANSWER, MISSING, KILLED = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x80000000
MACHINES = ("x86_64", "aarch64")
NEW_USER = 0x10000000


def run_filter(machine: str, name: str | int, *arguments: int, audit: int | None = None, files_only: bool = False) -> int:
    """What the kernel would do with this call."""
    architecture = seccomp._ARCHITECTURES[machine]
    number = architecture.numbers[name] if isinstance(name, str) else name
    values = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, architecture.audit if audit is None else audit, 0, *values)
    program = list(struct.iter_unpack("=HBBI", build_filter(machine, files_only=files_only)))
    position, register = 0, 0
    while True:
        code, when_true, when_false, value = program[position]
        position += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            (register,) = struct.unpack_from("=I", data, value)
            continue
        holds = {0x15: register == value, 0x35: register >= value, 0x45: bool(register & value)}[code]
        position += when_true if holds else when_false


@proves("sandbox.filter")
@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_of_the_list_is_refused_and_ordinary_ones_are_not(machine: str) -> None:
    numbers = seccomp._ARCHITECTURES[machine].numbers
    ordinary = {"x86_64": (0, 1, 9, 39, 57, 59, 231), "aarch64": (63, 64, 222, 172, 221, 94)}[machine]

    assert {run_filter(machine, name) for name in REFUSED if name in numbers} == {REFUSED_ANSWER}
    assert {run_filter(machine, number) for number in ordinary} == {ALLOWED}
    # The names that an architecture lacks are old ones.
    assert {name for name in REFUSED if name not in numbers} <= {
        "_sysctl",
        "ioperm",
        "iopl",
        "modify_ldt",
        "sysfs",
        "uselib",
        "ustat",
    }


@proves("sandbox.filter")
@pytest.mark.parametrize("machine", MACHINES)
def test_namespaces_set_id_bits_terminals_and_families_are_checked_by_argument(machine: str) -> None:
    refused: list[tuple[str, list[int]]] = [
        ("clone", [NEW_USER | 17]), ("unshare", [NEW_USER]), ("unshare", [0x20000]), ("fchmod", [3, 0o4755]),
        ("fchmodat", [3, 0, 0o2755]), ("openat", [3, 0, 0o101, 0o4755]), ("ioctl", [0, 0x5412]), ("ioctl", [0, 0x541C]),
        ("socket", [40]), ("socket", [17]), ("socketpair", [38]),
    ]  # fmt: skip
    allowed: list[tuple[str, list[int]]] = [
        ("clone", [17]), ("clone", [0x3D0F00]), ("unshare", [0x400]), ("fchmod", [3, 0o755]), ("fchmodat", [3, 0, 0o1777]),
        ("openat", [3, 0, 0o101, 0o644]), ("openat", [3, 0, 0, 0o4755]), ("ioctl", [0, 0x5413]), ("socket", [1]),
        ("socket", [2]), ("socket", [10]), ("socket", [16]), ("socketpair", [1]),
    ]  # fmt: skip

    assert {run_filter(machine, name, *arguments) for name, arguments in refused} == {REFUSED_ANSWER}
    assert {run_filter(machine, name, *arguments) for name, arguments in allowed} == {ALLOWED}
    assert {run_filter(machine, name) for name in ("clone3", "openat2")} == {MISSING}


@proves("sandbox.filter")
def test_other_instruction_sets_are_killed_or_missing() -> None:
    i386, arm = 0x40000003, 0x40000028

    assert run_filter("x86_64", 20, audit=i386) == KILLED
    assert run_filter("aarch64", 20, audit=arm) == KILLED
    assert run_filter("x86_64", 0x40000000 + 1) == MISSING


@proves("sandbox.filter", "sandbox.files-only")
@pytest.mark.parametrize("machine", MACHINES)
def test_a_sandbox_for_files_executes_nothing_and_opens_no_socket(machine: str) -> None:
    calls: list[tuple[str, list[int]]] = [
        ("execve", []), ("execveat", []), ("socket", [2]), ("fchmodat", [3, 0, 0o755]), ("fsetxattr", []),
    ]  # fmt: skip

    assert {run_filter(machine, name, *arguments, files_only=True) for name, arguments in calls} == {REFUSED_ANSWER}
    assert run_filter(machine, "openat2", files_only=True) == ALLOWED


@proves("sandbox.filter")
@given(
    number=st.integers(0, 0xFFFFFFFF),
    arguments=st.lists(st.integers(0, 2**64 - 1), max_size=6),
    machine=st.sampled_from(MACHINES),
)
def test_every_call_gets_an_answer(number: int, arguments: list[int], machine: str) -> None:
    assert run_filter(machine, number, *arguments) in (ALLOWED, REFUSED_ANSWER, MISSING)


@proves("sandbox.filter")
def test_a_machine_without_a_filter_starts_no_sandbox() -> None:
    with pytest.raises(SandboxUnavailable, match=r"no filter of system calls for 'riscv64'\. Use a machine with x86_64"):
        build_filter("riscv64")
