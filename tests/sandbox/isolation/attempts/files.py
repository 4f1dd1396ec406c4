"""Attempts to reach files of the host: links, `..`, `/proc`, `/dev`, descriptors, the home, other sessions."""

# The system calls are what is tried.
# ruff: noqa: PTH101, PTH102, PTH104, PTH108, PTH110, PTH112, PTH114, PTH115, PTH116, PTH120, PTH123, PTH207, PTH208, PTH211
from __future__ import annotations

import ctypes
import glob
import os
import stat
import struct
from functools import partial
from typing import Any

from tests.sandbox.isolation.attempts.harness import (
    attempt,
    call,
    expect_refusal,
    find_canary,
    first_success,
    libc,
    read,
    shell,
)

Context = dict[str, Any]


def _writable(context: Context) -> str:
    """A directory that the attempt may write into. Where there are no mounts it is reached through its descriptor."""
    return str(context["workspace"])


@attempt("a link in the workspace to a file of the host", without_commands=True, outside=True)
def link_to_host_file(context: Context) -> object:
    link = f"{_writable(context)}/link-{os.getpid()}"
    os.symlink(context["secret"], link)
    return find_canary(context, [link])


@attempt("a link in the workspace to the root directory", without_commands=True, outside=True)
def link_to_root(context: Context) -> object:
    link = f"{_writable(context)}/root-{os.getpid()}"
    os.symlink("/", link)
    return find_canary(context, [link + context["secret"]])


@attempt("`..` above the workspace", without_commands=True, outside=True)
def dot_dot(context: Context) -> object:
    return find_canary(context, [_writable(context) + "/.." * depth + context["secret"] for depth in range(1, 20)])


@attempt("the absolute path of a file of the host", without_commands=True, outside=True)
def absolute_path(context: Context) -> object:
    return find_canary(context, [context["secret"]])


@attempt("`/proc/self/root` and `/proc/self/cwd`", without_commands=True, outside=True)
def proc_self_root(context: Context) -> object:
    secret = context["secret"]
    up = "/.." * 20
    return find_canary(context, [f"/proc/self/root{secret}", f"/proc/self/cwd{up}{secret}", f"/proc/thread-self/root{secret}"])


@attempt("`/proc/1/root` and those of all other processes", outside=False, without_commands=True)
def proc_others_root(context: Context) -> object:
    return find_canary(context, [f"{root}{context['secret']}" for root in ["/proc/1/root", *glob.glob("/proc/[0-9]*/root")]])


@attempt("descriptors of process 1 and of all others in `/proc`", without_commands=True)
def proc_descriptors(context: Context) -> object:
    found = [path for path in glob.glob("/proc/[0-9]*/fd/*") if os.path.isdir(path)]
    up = "/.." * 20
    return find_canary(context, [f"{path}{up}{context['secret']}" for path in found])


@attempt("an inherited descriptor of a file or directory")
def inherited_descriptors(context: Context) -> object:
    for name in os.listdir("/proc/self/fd"):
        kind = os.fstat(int(name)).st_mode if os.path.exists(f"/proc/self/fd/{name}") else 0
        target = os.readlink(f"/proc/self/fd/{name}") if os.path.islink(f"/proc/self/fd/{name}") else ""
        if (stat.S_ISREG(kind) or stat.S_ISDIR(kind)) and not target.startswith("/proc/"):
            return f"{name}: {target}"
    return None


@attempt("a file handle of the root directory (open_by_handle_at)", without_commands=True)
def file_handle(context: Context) -> object:
    here = os.open(_writable(context), os.O_RDONLY)
    handle = struct.pack("=IiQ", 8, 1, 2)
    root = call(context["calls"]["open_by_handle_at"], here, handle, os.O_RDONLY)
    return os.listdir(root)


@attempt("a hard link to a file that may only be read", without_commands=True)
def hard_link(context: Context) -> object:
    link = f"{_writable(context)}/hard-{os.getpid()}"
    os.link(context["read_only_file"], link)
    with open(link, "a") as file:
        file.write("changed")
    return link


@attempt("writing into a directory that may only be read", without_commands=True)
def write_read_only(context: Context) -> object:
    names = [f"{path}/planted" for path in context["read_only_directories"]]
    return first_success(*(partial(os.open, name, os.O_CREAT | os.O_WRONLY) for name in names))


@attempt("emptying, renaming or removing a file that may only be read", without_commands=True)
def change_read_only(context: Context) -> object:
    path = context["read_only_file"]
    return first_success(
        lambda: os.truncate(path, 0),
        lambda: os.rename(path, path + "2"),
        lambda: os.unlink(path),
        lambda: os.chmod(path, 0o777),
        lambda: os.close(os.open(path, os.O_RDONLY | os.O_TRUNC)),
        lambda: os.setxattr(path, "user.planted", b"x"),
    )


@attempt("writing into `/usr`, `/etc`, `/` and the library of the sandbox")
def write_system(_: Context) -> object:
    names = ("/usr/bin/planted", "/etc/ld.so.preload", "/planted", "/.fidelio/lib/json.py", "/.fidelio/planted", "/dev/planted")
    return first_success(*(partial(os.open, name, os.O_CREAT | os.O_WRONLY) for name in names))


@attempt("the ledger of the home", without_commands=True, outside=True)
def read_ledger(context: Context) -> object:
    return find_canary(context, [f"{context['home']}/ledger.db"])


@attempt("the key ring of the home", without_commands=True, outside=True)
def read_key_ring(context: Context) -> object:
    return find_canary(context, [f"{context['home']}/keys.json", f"{context['home']}/anchor-keys.json"])


@attempt("the HTTP token of the home", without_commands=True, outside=True)
def read_http_token(context: Context) -> object:
    return find_canary(context, [f"{context['home']}/http-token"])


@attempt("the workspace of another session", without_commands=True, outside=True)
def other_session(context: Context) -> object:
    others = glob.glob(f"{context['home']}/sandboxes/*/workspace/secret")
    return find_canary(context, [context["other_session"], *others])


@attempt("the home inside of a project that is mounted", without_commands=True)
def home_in_project(context: Context) -> object:
    inside = f"{context['project']}/.fidelio"
    return find_canary(context, [f"{inside}/ledger.db", f"{inside}/keys.json", f"{inside}/http-token"])


@attempt("the parent of a project that is mounted", without_commands=True)
def beside_project(context: Context) -> object:
    return find_canary(context, [f"{context['project']}/../secret", f"{context['project']}/../../secret"])


@attempt("files of the host's users: `/root`, `/home`, `/var`, `/etc/shadow`, SSH keys", without_commands=True)
def user_files(_: Context) -> object:
    foreign = [name for name in os.listdir("/home") if name != "agent"] if os.path.isdir("/home") else []
    seen = [
        path
        for path in ("/root", "/var/lib", "/var/log", "/etc/shadow", "/etc/ssh", "/opt", "/srv", "/mnt")
        if os.path.exists(path)
    ]
    opened = [path for path in seen if not os.path.isdir(path) or os.listdir(path)]
    return foreign or opened or None


@attempt("a device file of the disk (mknod)", without_commands=True)
def device_file(context: Context) -> object:
    path = f"{_writable(context)}/disk-{os.getpid()}"
    os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(254, 0))
    return read(path, 512) and path


@attempt("devices of the host: memory, disks, kernel log, KVM, FUSE", without_commands=True)
def host_devices(_: Context) -> object:
    for path in (
        "/dev/mem",
        "/dev/kmem",
        "/dev/port",
        "/dev/kmsg",
        "/dev/kvm",
        "/dev/fuse",
        "/dev/vda",
        "/dev/sda",
        "/dev/loop0",
    ):
        try:
            return os.open(path, os.O_RDONLY | os.O_NONBLOCK) and path
        except OSError as error:
            expect_refusal(error)
    return None


@attempt("`/sys` and the release agent of a control group", without_commands=True)
def control_groups(_: Context) -> object:
    return os.path.exists("/sys/fs/cgroup") and os.listdir("/sys/fs/cgroup")


@attempt("`--files0-from` with a file of the host", outside=True)
def files_from(context: Context) -> object:
    output = shell(
        f"wc --files0-from={context['secret']}; sort --files0-from={context['secret']}; du --files0-from={context['secret']}"
    )
    return context["canary"] in output


@attempt("`-f` and `@FILE` arguments of commands with a file of the host", outside=True)
def file_arguments(context: Context) -> object:
    secret = context["secret"]
    return context["canary"] in shell(f"grep -f {secret} -v {secret}; file -f {secret}; sed -f {secret}; date -f {secret}")


@attempt("`GIT_DIR`, `GIT_CONFIG` and other variables of git", outside=True)
def git_variables(context: Context) -> object:
    secret = context["secret"]
    output = shell(f"git config --file {secret} --list; git --git-dir={os.path.dirname(secret)} status; git config --list",
                   GIT_CONFIG_GLOBAL=secret, GIT_DIR=os.path.dirname(secret), GIT_CONFIG_SYSTEM=secret)  # fmt: skip
    return context["canary"] in output or None if "not found" not in output else None


@attempt("`LD_PRELOAD` and `LD_LIBRARY_PATH` for process 1 and for setuid programs")
def loader_variables(context: Context) -> object:
    output = shell(
        "umount /proc; su -c id; mount --bind / /tmp; id -u", LD_PRELOAD="/workspace/planted.so", LD_LIBRARY_PATH="/workspace"
    )
    return "\n0" in output or "uid=0" in output


@attempt("a module of the standard library planted in the workspace")
def planted_module(_: Context) -> object:
    directory = "/workspace" if os.path.isdir("/workspace") else "/tmp"
    for name in ("json", "os", "encodings", "sitecustomize"):
        with open(f"{directory}/{name}.py", "w") as file:
            file.write("print('planted')\n")
    output = shell(f"cd {directory} && /usr/bin/python3 -I -S -B -c 'import json, os'")
    return "planted" in output


@attempt("a set-user-id file in a mount of the host")
def set_user_id_file(context: Context) -> object:
    path = f"{_writable(context)}/setuid-{os.getpid()}"
    calls = context["calls"]
    how = struct.pack("=QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    tries = (
        lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755)),
        lambda: os.chmod(path, 0o4755),
        lambda: os.fchmod(os.open(path, os.O_CREAT | os.O_WRONLY), 0o2755),
        lambda: call(calls["fchmodat2"], -100, path.encode(), 0o6755, 0),
        lambda: call(calls["openat2"], -100, path.encode() + b"2", how, ctypes.c_size_t(24)),
        lambda: os.mknod(path + "3", stat.S_IFREG | 0o4755),
    )
    for change in tries:
        first_success(change)
    made = [name for name in glob.glob(path + "*") if os.stat(name).st_mode & 0o6000]
    return made or None


@attempt(
    "the name of the session or a path of the host in `/proc`; `mountinfo` shows the path of the home", without_commands=True
)
def names_in_proc(context: Context) -> object:
    hidden = {"/proc/self/mountinfo": context["private_names"]}
    everything = [*context["private_names"], context["home"]]
    for path in ("/proc/self/mountinfo", "/proc/1/cmdline", "/proc/1/environ", "/proc/self/environ", "/proc/self/cgroup"):
        try:
            text = read(path)
        except OSError:
            continue
        if any(name in text for name in hidden.get(path, everything)):
            return path
    return None


@attempt("the environment of the host process", without_commands=True)
def host_environment(context: Context) -> object:
    return find_canary(context, ["/proc/self/environ", *glob.glob("/proc/[0-9]*/environ")])


@attempt("leaving a changed root directory (chroot)", without_commands=True)
def change_root(context: Context) -> object:
    inner = f"{_writable(context)}/root-{os.getpid()}"
    os.mkdir(inner)
    above = os.open("/", os.O_RDONLY)
    if libc.chroot(inner.encode()) < 0:
        raise PermissionError
    os.fchdir(above)
    return os.listdir("..")
