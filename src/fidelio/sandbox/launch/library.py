"""What every sandbox of a home mounts of Fidelio: the Python interpreter, the files of `sandbox.inside`, and a small `/etc`.

The files are copied to `<home>/sandbox-lib/<digest>`, so that no path of the installation is bound, and compiled there once by
the interpreter that runs them. A new version of Fidelio has another digest, so the files under a live sandbox never change.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fidelio.errors.runtime import SandboxUnavailable

INSIDE = Path(__file__).parents[1] / "inside"
LIBRARY = "/.fidelio/lib"
# Where the interpreter of Fidelio itself is mounted if the system has none that is new enough.
OWN_PYTHON = "/.fidelio/python"
USER, GROUP_ID, USER_ID = "agent", 1000, 1000
HOME = f"/home/{USER}"
_OPTIONS = ("-I", "-S", "-B")
_SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
_NEWEST_CHECK = "import sys; sys.exit(sys.version_info < (3, 9))"

# The sandbox has users of its own: the machine's names say who works on it.
ETC = {
    "passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\n{USER}:x:{USER_ID}:{GROUP_ID}::{HOME}:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "group": f"root:x:0:\n{USER}:x:{GROUP_ID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "hostname": "sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "host.conf": "multi on\n",
}
# Of /etc only what programs need to start and what holds no name and no secret. Private keys lie beside the certificates.
_SYSTEM_FILES = (
    "alternatives", "crypto-policies", "fonts", "ld.so.cache", "localtime", "pki/ca-trust", "pki/tls/certs",
    "pki/tls/openssl.cnf", "protocols", "services", "ssl/certs", "ssl/openssl.cnf",
)  # fmt: skip
NETWORK_FILES = ("resolv.conf",)


class Interpreter(NamedTuple):
    """A Python interpreter: its program inside of the sandbox, and the directory of the host that is mounted for it, if any."""

    program: str
    source: str = ""
    prefix: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        return (*self.prefix, self.program, *_OPTIONS)

    @property
    def host_argv(self) -> tuple[str, ...]:
        """The same interpreter, on the host."""
        return (sys.executable if self.source else self.program, *_OPTIONS)


@cache
def find_interpreter() -> Interpreter:
    """The system's Python if it is new enough, else the interpreter of Fidelio itself."""
    found = next((program for program in _SYSTEM_PYTHONS if _is_new_enough(program)), None)
    return Interpreter(found) if found else _own_interpreter()


def _is_new_enough(program: str) -> bool:
    try:
        return not subprocess.run([program, *_OPTIONS, "-c", _NEWEST_CHECK], env={}, timeout=30, check=False).returncode  # noqa: S603  # one of our constants
    except (OSError, subprocess.TimeoutExpired):
        return False


def _own_interpreter() -> Interpreter:
    base = Path(sys.base_prefix)
    program = f"{OWN_PYTHON}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    has_shared_library = any(base.glob("lib/libpython*.so*"))
    # The run path of the program names its place on the host.
    prefix = ("/usr/bin/env", f"LD_LIBRARY_PATH={OWN_PYTHON}/lib") if has_shared_library else ()
    return Interpreter(program, str(base), prefix)


def find_system_files() -> list[str]:
    """The files and directories of /etc that every sandbox sees, as far as they exist."""
    names = (*_SYSTEM_FILES, *(path.name for path in Path("/etc").glob("java*")))
    return [name for name in names if os.path.exists(f"/etc/{name}")]  # noqa: PTH110  # Path.exists raises


def prepare_library(home: Path) -> Path:
    """The directory with `lib` and `etc` for the sandboxes of this home; created on first use."""
    files = {f"lib/fidelio/sandbox/inside/{file.name}": file.read_bytes() for file in sorted(INSIDE.glob("*.py"))}
    files |= {f"etc/{name}": text.encode() for name, text in ETC.items()}
    # Mounted on, so they are never read here.
    directories = [f"etc/{name}" for name in find_system_files() if os.path.isdir(f"/etc/{name}")]  # noqa: PTH112  # text
    files |= {f"etc/{name}": b"" for name in (*find_system_files(), *NETWORK_FILES) if f"etc/{name}" not in directories}
    target = home / "sandbox-lib" / _digest(files, directories)
    if not target.is_dir():
        try:
            _install(files, directories, target)
        except (OSError, subprocess.SubprocessError) as error:
            raise SandboxUnavailable(
                f"The files of sandboxes cannot be written to {target.parent}: {error}.",
                remedy="Free some space, and correct owner and mode of the home.",
            ) from error
    return target


def _digest(files: dict[str, bytes], directories: list[str]) -> str:
    whole = hashlib.sha256(repr((find_interpreter().program, directories)).encode())
    for name, content in files.items():
        whole.update(b"%d %s %d " % (len(name), name.encode(), len(content)))
        whole.update(content)
    return whole.hexdigest()[:16]


def _install(files: dict[str, bytes], directories: list[str], target: Path) -> None:
    """Write the files under another name and rename the directory: no sandbox sees half of it."""
    target.parent.mkdir(mode=0o700, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        for name, content in files.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            (draft / name).write_bytes(content)
        for name in directories:
            (draft / name).mkdir(parents=True)
        (draft / "etc/mtab").symlink_to("/proc/self/mounts")
        _compile(draft / "lib")
        _make_readable(draft)
        os.rename(draft, target)  # noqa: PTH104  # the error of an existing directory is looked at
    except OSError:
        # Another process was faster; its files are the same.
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _compile(lib: Path) -> None:
    # By the interpreter that will load it. Unchecked: the files never change. A file that is not compiled is only slower.
    options = ("-q", "--invalidation-mode", "unchecked-hash", "-s", str(lib), "-p", LIBRARY)
    argv = [*find_interpreter().host_argv, "-m", "compileall", *options, str(lib)]
    subprocess.run(argv, env={}, timeout=60, check=False, capture_output=True)  # noqa: S603  # no value of a user


def _make_readable(directory: Path) -> None:
    """Whatever the umask is, the user of a sandbox reads these files."""
    for path in (directory, *directory.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
