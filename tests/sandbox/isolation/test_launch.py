"""What a sandbox is given when it starts: descriptors, environment, file tree, network, limits; and when it ends."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fidelio.errors.runtime import SandboxUnavailable
from fidelio.sandbox.directory import PROXY_SOCKET, host_uid, may_switch_user
from fidelio.sandbox.launch import BASE_ENVIRONMENT, build_launch, python_inside
from fidelio.sandbox.launch import library as launch_library
from fidelio.sandbox.model import Level, LevelReport, SandboxSpec
from tests.sandbox.isolation.conftest import ROOT
from tests.sandbox.isolation.scene import is_running, run_program
from tests.support import proves


def shell(spec: SandboxSpec, level: Level, command: str) -> str:
    done = run_program(spec, level, ["/bin/bash", "-c", command])
    assert done.returncode == 0, done.stderr
    return done.stdout


@proves("sandbox.descriptors")
def test_exactly_the_passed_descriptors_reach_the_first_process(spec: SandboxSpec, level: Level, tmp_path: Path) -> None:
    inherited, passed = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(inherited, True)
    code = (
        "import errno, os\n"
        "def opened(number):\n"
        "    try: return bool(os.fstat(number))\n"
        "    except OSError: return False\n"
        "print([number for number in range(3, 1000) if opened(number)])"
    )
    launch = build_launch(spec, LevelReport(level, ""), [*python_inside(spec), "-c", code], pass_fds=[passed])
    done = subprocess.run(
        launch.argv, pass_fds=launch.pass_fds, env={}, capture_output=True, text=True, timeout=60, check=False
    )
    launch.close()
    os.close(inherited)
    os.close(passed)

    # Without mounts the directories of the session are descriptors too.
    found = set(msgspec.json.decode(done.stdout, type=list[int]))
    assert passed in found, done.stderr
    assert inherited not in found
    assert len(found) == (1 if level != "landlock" else 1 + 5)


@proves("sandbox.descriptors")
def test_nothing_of_the_environment_of_the_host_or_the_session_reaches_process_1(
    spec: SandboxSpec, command_level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIDELIO_TEST_SECRET", "secret")
    changed = msgspec.structs.replace(
        spec, environment={"LD_PRELOAD": "/workspace/planted.so", "BASH_ENV": "/workspace/planted"}
    )

    names = dict(line.split("=", 1) for line in shell(changed, command_level, "tr '\\0' '\\n' </proc/1/environ").splitlines())

    assert {name: names.get(name) for name in BASE_ENVIRONMENT} == BASE_ENVIRONMENT
    assert set(names) - set(BASE_ENVIRONMENT) <= {"PWD", "SHLVL", "_", "OLDPWD"}


@proves("sandbox.tree")
def test_every_level_with_commands_shows_the_same_tree(spec: SandboxSpec, command_level: Level) -> None:
    script = r"""
        set -e
        cd /workspace && pwd
        echo text >file && cat file
        echo x >/dev/null; head -c 3 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c
        ! echo x >/dev/full 2>/dev/null
        echo shared >/dev/shm/file && cat /dev/shm/file
        python3 -c 'import pty, os; a, b = pty.openpty(); print(os.ttyname(b))'
        touch ~/kept /tmp/lost && id -un && hostname
        stat -c '%A' /tmp/lost
        ls -d /proc/[0-9]* | wc -l | xargs -I{} test {} -lt 10
        test ! -e /sys && test ! -e /root && test ! -e /opt
        for path in /workspace/agent /workspace/.openboa-runtime /runtime /memory/learnings /usr /etc /; do
            ! touch $path/planted 2>/dev/null
        done
        python3 -c 'import ssl; ssl.create_default_context(); import socket; print(socket.gethostbyname("localhost"))'
    """

    first = shell(spec, command_level, script).split()
    second = shell(spec, command_level, "ls ~ /tmp").split()

    assert first == ["/workspace", "text", "3", "4", "shared", "/dev/pts/0", "agent", "sandbox", "-rw-r--r--", "127.0.0.1"]
    assert second == ["/home/agent:", "kept", "/tmp:"]


@proves("sandbox.unprivileged")
def test_processes_have_no_capabilities_and_belong_to_the_user_of_the_session(
    spec: SandboxSpec, command_level: Level, directory: Path
) -> None:
    output = shell(spec, command_level, "touch /workspace/file; grep -E '^(Cap|NoNew|Groups|Seccomp:|Uid)' /proc/self/status")
    status = dict(line.split(":", 1) for line in output.splitlines())

    assert {status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("1", "2")
    assert set(status["Uid"].split()) == {"1000"}
    assert (directory / "workspace" / "file").stat().st_uid == host_uid(directory)
    if may_switch_user():
        assert status["Groups"].strip() == ""
        assert host_uid(directory) != 0


@proves("sandbox.tree")
def test_a_toolchain_is_visible_at_its_own_path(spec: SandboxSpec, command_level: Level, tmp_path: Path) -> None:
    # Not below /tmp, which is private in a sandbox.
    toolchain = Path("/usr/local/fidelio-test") if os.access("/usr/local", os.W_OK) else tmp_path
    if toolchain == tmp_path:
        pytest.skip("only root can create a directory that is not below /tmp")
    toolchain.mkdir(exist_ok=True)
    try:
        (toolchain / "tool").write_text("works")
        changed = msgspec.structs.replace(spec, toolchains=(str(toolchain),))
        assert shell(changed, command_level, f"cat {toolchain}/tool; ! touch {toolchain}/planted 2>/dev/null") == "works"
    finally:
        (toolchain / "tool").unlink()
        toolchain.rmdir()


@proves("sandbox.tree")
def test_the_interpreter_of_fidelio_is_mounted_where_the_system_has_none(
    spec: SandboxSpec, command_level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_library, "_SYSTEM_PYTHONS", ())
    launch_library.find_interpreter.cache_clear()
    try:
        program = [*python_inside(spec), "-c", "import sys; print(sys.executable, *sys.version_info[:3])"]
        done = run_program(spec, command_level, program)
    finally:
        launch_library.find_interpreter.cache_clear()

    assert done.stdout.split()[0].startswith("/.fidelio/python/"), done.stderr
    assert done.stdout.split()[1:] == [str(number) for number in sys.version_info[:3]]


@proves("sandbox.network")
def test_network_none_is_a_loopback_interface_of_its_own(spec: SandboxSpec, command_level: Level) -> None:
    code = (
        "import socket\n"
        "with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "    with socket.create_connection(server.getsockname(), 5): print('own')\n"
        "print([name for _, name in socket.if_nameindex()])"
    )

    done = run_program(spec, command_level, ["/usr/bin/python3", "-c", code])

    assert done.stdout.split("\n")[:2] == ["own", "['lo']"], done.stderr


@proves("sandbox.network")
def test_network_host_is_the_network_of_the_machine(spec: SandboxSpec, command_level: Level) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; print(socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5) and 'reached')"
        changed = msgspec.structs.replace(spec, network="host")

        assert run_program(changed, command_level, ["/usr/bin/python3", "-c", code]).stdout == "reached\n"


@proves("sandbox.network")
@pytest.mark.parametrize("network", ["limited", "unrestricted"])
def test_networks_by_proxy_add_its_socket_and_nothing_else(
    spec: SandboxSpec, command_level: Level, directory: Path, network: str
) -> None:
    code = (
        "import socket\n"
        "socket.socket(socket.AF_UNIX).connect('/.fidelio/proxy.sock')\n"
        "print([name for _, name in socket.if_nameindex()])"
    )
    here = os.open(directory, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        # The path of a test may be longer than that of a socket.
        server.bind(f"/proc/self/fd/{here}/{PROXY_SOCKET}")
        server.listen()
        (directory / PROXY_SOCKET).chmod(0o666)
        changed = msgspec.structs.replace(spec, network=network)
        done = run_program(changed, command_level, ["/usr/bin/python3", "-c", code])
    os.close(here)

    assert done.stdout == "['lo']\n", done.stderr


@proves("sandbox.files-only")
def test_level_landlock_refuses_commands_networks_and_a_visible_home(spec: SandboxSpec, directory: Path) -> None:
    report = LevelReport("landlock", "")
    python = [*python_inside(spec), "-c", ""]

    with pytest.raises(SandboxUnavailable, match="runs no programs"):
        build_launch(spec, report, ["/bin/true"])
    with pytest.raises(SandboxUnavailable, match="Network 'host' is not available"):
        build_launch(msgspec.structs.replace(spec, network="host"), report, python)
    project = msgspec.structs.replace(
        spec.mounts[0], path="/workspace/project", source=str(directory.parents[2]), kind="project"
    )
    with pytest.raises(SandboxUnavailable, match="contains the home of Fidelio"):
        build_launch(msgspec.structs.replace(spec, mounts=(*spec.mounts, project)), report, python)
    with pytest.raises(SandboxUnavailable, match=r"No sandbox can be started here: no reason\. Install something\."):
        build_launch(spec, LevelReport("none", "no reason.", "Install something."), python)


@proves("sandbox.ends")
@pytest.mark.parametrize("victim", ["parent", "launcher"])
def test_a_sandbox_ends_with_the_process_that_started_it(spec: SandboxSpec, level: Level, victim: str) -> None:
    name = f"fidelio-orphan-{Path(spec.directory).name}"
    # A daemon inside, or at level c the process itself, holds the pipe open.
    code = "import sys, signal, os; os.write(1, b'ready'); signal.pause()"
    if level != "landlock":
        daemon = f"os.setsid(); os.write(1, b'ready'); os.execv('/bin/sleep', ['{name}', '300'])"
        code = f"import os\nif os.fork() == 0:\n    {daemon}\nos.wait()"
    host = (
        "import msgspec, subprocess, sys\n"
        "from fidelio.sandbox.launch import build_launch, python_inside\n"
        "from fidelio.sandbox.model import LevelReport, SandboxSpec\n"
        "spec = msgspec.json.decode(sys.argv[1], type=SandboxSpec)\n"
        "launch = build_launch(spec, LevelReport(sys.argv[2], ''), [*python_inside(spec), '-c', sys.argv[3]])\n"
        "child = subprocess.Popen(launch.argv, pass_fds=launch.pass_fds, env={}, stdin=subprocess.DEVNULL)\n"
        "print(child.pid, file=sys.stderr, flush=True)\n"
        "child.wait()"
    )
    argv = [sys.executable, "-c", host, msgspec.json.encode(spec).decode(), level, code]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        launcher = int(parent.stderr.readline())
        assert os.read(parent.stdout.fileno(), 5) == b"ready"
        os.kill(parent.pid if victim == "parent" else launcher, signal.SIGKILL)
        # Every process of the sandbox has the pipe; its end is the end of the last one.
        assert select.select([parent.stdout], [], [], 10)[0]
        assert os.read(parent.stdout.fileno(), 5) == b""
    assert not is_running(name)
