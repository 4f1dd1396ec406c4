"""Attempts against the kernel: mounts, namespaces, privileged calls, settings of the machine, other networks."""

# The system calls are what is tried.
# ruff: noqa: PTH208
from __future__ import annotations

import array
import ctypes
import fcntl
import os
import platform
import pty
import socket
import struct
from collections.abc import Callable
from typing import Any

from tests.sandbox.isolation.attempts.harness import attempt, call, check, first_success, libc, shell

Context = dict[str, Any]
_NEW_USER, _NEW_MOUNT, _NEW_NETWORK, _NEW_PROCESSES = 0x10000000, 0x20000, 0x40000000, 0x20000000


def _mount(source: str, target: str, kind: str, flags: int) -> int:
    return check(libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None))


@attempt("remounting a read-only directory", without_commands=True)
def remount(context: Context) -> object:
    remount_bind, bind = 32 | 4096, 4096
    target = context["read_only_directories"][0]
    return first_success(
        lambda: _mount("none", target, "", remount_bind),
        lambda: _mount(target, target, "", bind),
        lambda: check(libc.umount2(target.encode(), 2)),
    )


@attempt("a new mount of any kind", without_commands=True)
def new_mount(context: Context) -> object:
    target = context["workspace"]
    kinds = ("proc", "tmpfs", "sysfs", "devtmpfs", "overlay", "cgroup2", "debugfs", "fuse")
    return first_success(*(lambda kind=kind: _mount("none", target, kind, 0) for kind in kinds))


@attempt("the newer calls for mounts (open_tree, fsopen, move_mount, mount_setattr)", without_commands=True)
def newer_mount_calls(context: Context) -> object:
    calls = context["calls"]
    return first_success(
        lambda: call(calls["open_tree"], -100, b"/", 1),
        lambda: call(calls["fsopen"], b"tmpfs", 0),
        lambda: call(calls["move_mount"], -100, b"/usr", -100, b"/tmp", 0),
        lambda: call(calls["mount_setattr"], -100, b"/", 0, struct.pack("=QQQQ", 0, 1, 0, 0), ctypes.c_size_t(32)),
    )


@attempt("pivot_root", without_commands=True)
def change_root_mount(context: Context) -> object:
    return call(context["calls"]["pivot_root"], b".", b".") == 0 and "pivoted"


@attempt("a nested user namespace by unshare", without_commands=True)
def nested_unshare(_: Context) -> object:
    return first_success(
        *(
            lambda flags=flags: check(libc.unshare(flags))
            for flags in (_NEW_USER, _NEW_USER | _NEW_MOUNT, _NEW_MOUNT, _NEW_NETWORK, _NEW_PROCESSES)
        )
    )


@attempt("a nested user namespace by clone and clone3", without_commands=True)
def nested_clone(context: Context) -> object:
    calls = context["calls"]
    exit_signal = 17

    def by_clone() -> int:
        child = call(calls["clone"], ctypes.c_ulong(_NEW_USER | exit_signal), None, None, None, None)
        if child == 0:
            os._exit(0)
        return child

    def by_clone3() -> int:
        arguments = struct.pack("=QQQQQQQQ", _NEW_USER, 0, 0, 0, exit_signal, 0, 0, 0)
        child = call(calls["clone3"], arguments, ctypes.c_size_t(len(arguments)))
        if child == 0:
            os._exit(0)
        return child

    return first_success(by_clone, by_clone3)


@attempt("nested namespaces by programs (unshare, bwrap)")
def nested_programs(_: Context) -> object:
    output = shell("unshare -Ur id -u; unshare -m id -u; bwrap --unshare-user --ro-bind / / --uid 0 id -u")
    return any(line == "0" for line in output.splitlines())


@attempt("joining the namespaces of other processes (setns)", without_commands=True)
def join_namespaces(context: Context) -> object:
    calls = context["calls"]
    kinds = ("user", "mnt", "net", "pid", "ipc")
    processes = (1, os.getppid())
    return first_success(
        *(
            lambda path=f"/proc/{number}/ns/{kind}": call(calls["setns"], os.open(path, os.O_RDONLY), 0)
            for number in processes
            for kind in kinds
        )
    )


@attempt("capabilities by capset or a file", without_commands=True)
def capabilities(context: Context) -> object:
    header, everything = struct.pack("=Ii", 0x20080522, 0), struct.pack("=IIIIII", *[0xFFFFFFFF] * 6)
    path = f"{context['workspace']}/capable-{os.getpid()}"

    def by_attribute() -> None:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0))

    return first_success(lambda: check(libc.capset(header, everything)), by_attribute)


@attempt("another user by setuid, setgid or setgroups", without_commands=True)
def other_user(_: Context) -> object:
    tries: tuple[Callable[[], object], ...] = (
        lambda: os.setuid(0),
        lambda: os.setgid(0),
        lambda: os.setgroups([0]),
        lambda: os.setuid(1),
    )
    for change in tries:
        try:
            change()
        except OSError:
            # EINVAL: the user namespace has no such user.
            continue
        return f"{os.getresuid()} {os.getresgid()}"
    return None


@attempt("settings of the kernel in `/proc/sys`", without_commands=True)
def kernel_settings(_: Context) -> object:
    names = ("kernel/core_pattern", "kernel/hostname", "kernel/modprobe", "vm/drop_caches", "net/ipv4/ip_forward",
             "user/max_user_namespaces", "kernel/unprivileged_bpf_disabled", "fs/suid_dumpable")  # fmt: skip
    return first_success(*(lambda path=f"/proc/sys/{name}": os.write(os.open(path, os.O_WRONLY), b"1") for name in names))


@attempt("`/proc/sysrq-trigger`, `/proc/kcore`, `/proc/kmsg`, `/proc/keys`", without_commands=True)
def kernel_files(_: Context) -> object:
    def try_read(path: str) -> object:
        found = os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 10)
        return found or _refuse()

    return first_success(
        lambda: os.open("/proc/sysrq-trigger", os.O_WRONLY),
        *(lambda path=path: try_read(path) for path in ("/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/timer_list")),
    )


def _refuse() -> object:
    raise PermissionError


@attempt("keys of the host's user in the kernel's key ring", without_commands=True)
def kernel_keys(context: Context) -> object:
    calls = context["calls"]
    search, read_key, user_session = 10, 11, -5
    return first_success(
        lambda: call(calls["keyctl"], search, user_session, b"user", b"fidelio-canary", 0),
        lambda: call(calls["keyctl"], read_key, -3, None, 0),
        lambda: call(calls["request_key"], b"user", b"fidelio-canary", None, 0),
        lambda: call(calls["add_key"], b"user", b"x", b"y", ctypes.c_size_t(1), user_session),
    )


@attempt("programs in the kernel (bpf)", without_commands=True)
def kernel_programs(context: Context) -> object:
    return call(context["calls"]["bpf"], 0, struct.pack("=IIIIII", 2, 4, 4, 1, 0, 0), 24)


@attempt("performance events (perf_event_open)", without_commands=True)
def performance_events(context: Context) -> object:
    return call(context["calls"]["perf_event_open"], struct.pack("=IIQ", 1, 112, 0) + bytes(96), 0, -1, -1, 0)


@attempt("userfaultfd", without_commands=True)
def fault_handler(context: Context) -> object:
    return call(context["calls"]["userfaultfd"], 1)


@attempt("io_uring, which no filter of system calls sees", without_commands=True)
def asynchronous_ring(context: Context) -> object:
    return call(context["calls"]["io_uring_setup"], 1, bytes(120))


@attempt("kernel modules and a new kernel", without_commands=True)
def kernel_modules(context: Context) -> object:
    calls = context["calls"]
    return first_success(
        lambda: call(calls["init_module"], b"", 0, b""),
        lambda: call(calls["finit_module"], 0, b"", 0),
        lambda: call(calls["kexec_load"], 0, 0, None, 0),
    )


@attempt("clock, host name, swap and quota of the machine", without_commands=True)
def machine_settings(context: Context) -> object:
    calls = context["calls"]
    return first_success(
        lambda: call(calls["settimeofday"], None, bytes(8)),
        lambda: call(calls["sethostname"], b"planted", 7),
        lambda: call(calls["swapoff"], b"/nothing"),
        lambda: call(calls["syslog"], 10, None, 0),
    )


@attempt("system calls of another instruction set (x32)", without_commands=True)
def other_instruction_set(context: Context) -> object:
    if platform.machine() != "x86_64":
        return None
    return call(0x40000000 | context["calls"]["ptrace"], 0, 0, 0, 0) == 0 and "traced"


@attempt("typing into a terminal (TIOCSTI, TIOCLINUX)")
def terminal_input(_context: Context) -> object:
    _, terminal = pty.openpty()
    text = array.array("b", b"x")
    return first_success(*(lambda number=number: fcntl.ioctl(terminal, number, text) for number in (0x5412, 0x541C, 0x5423)))


@attempt("a terminal of the host by `/dev/tty`, `/dev/console` and `/dev/pts`")
def host_terminal(_: Context) -> object:
    others = [name for name in os.listdir("/dev/pts") if name != "ptmx"]
    opened = first_success(lambda: os.open("/dev/tty", os.O_RDWR), lambda: os.open("/dev/console", os.O_RDWR))
    return others or opened


@attempt("a TCP server on the loopback interface of the host", outside=True)
def host_loopback(context: Context) -> object:
    with socket.create_connection(("127.0.0.1", context["port"]), timeout=5) as connection:
        return connection.getpeername()


@attempt("an abstract socket of the host", outside=True)
def abstract_socket(context: Context) -> object:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect("\0" + context["abstract"])
        return context["abstract"]


@attempt("a socket of the host in the file system", outside=True)
def path_socket(context: Context) -> object:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(context["socket"])
        return context["socket"]


@attempt("the socket of the process that owns the sandboxes", outside=True)
def host_socket(context: Context) -> object:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(f"{context['home']}/sandboxes.sock")
        return "connected"


@attempt("a socket to the hypervisor (vsock)", outside=False)
def hypervisor_socket(_: Context) -> object:
    with socket.socket(40, socket.SOCK_STREAM) as connection:
        return f"vsock {connection.fileno()}"


@attempt("raw, packet and other families of sockets")
def raw_sockets(_: Context) -> object:
    packet, bluetooth, crypto, can = 17, 31, 38, 29
    return first_success(
        lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        *(lambda family=family: socket.socket(family, socket.SOCK_RAW) for family in (packet, bluetooth, crypto, can)),
    )


@attempt("an address outside of the machine", outside=False)
def outside_address(_: Context) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        datagram.connect(("192.0.2.1", 53))
        return datagram.getsockname()


@attempt("interfaces other than loopback")
def host_interfaces(_: Context) -> object:
    return [name for _, name in socket.if_nameindex() if name != "lo"] or None
