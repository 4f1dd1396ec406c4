"""The sdist and the wheel, built and installed into a fresh environment, as a user of pipx or uvx gets them."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from tests.support import proves

ROOT = Path(__file__).parents[1]
SECONDS = 400
pytestmark = pytest.mark.timeout(2 * SECONDS)


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("FIDELIO_", "PYTHON", "VIRTUAL_ENV"))
    }
    environ = {**inherited, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    if cwd != ROOT:
        # A user without any files; what builds and installs needs the settings of pip.
        environ["HOME"] = str(cwd)
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it and not from the working tree."""
    directory = tmp_path_factory.mktemp("packages")
    run(sys.executable, "-m", "venv", directory / "build")
    python = directory / "build" / "bin" / "python"
    run(directory / "build" / "bin" / "pip", "install", "--quiet", "hatchling>=1.27,<2")
    name = run(python, "-c", f"import hatchling.build; print(hatchling.build.build_sdist({str(directory)!r}))").split()[-1]
    pip = directory / "build" / "bin" / "pip"
    run(pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", directory, directory / name)
    (wheel,) = directory.glob("*.whl")
    return directory / name, wheel


@pytest.fixture(scope="module")
def installed(packages: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs of a fresh environment with nothing but the wheel and what it depends on."""
    directory = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", directory)
    run(directory / "bin" / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", packages[1])
    return directory / "bin"


@pytest.fixture
def address(installed: Path, tmp_path: Path) -> Iterator[str]:
    """A server of the installed program; the link that signs a browser in."""
    program = [str(installed / "fidelio"), "--home", str(tmp_path / "home")]
    process = subprocess.Popen(
        [*program, "up", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        assert "http://" in process.stdout.readline()
        link = re.search(r"http://\S+/sign-in\?key=\S+", run(*program, "open", cwd=tmp_path))
        assert link
        yield link[0]
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS)


@proves("project.packages")
def test_the_wheel_has_every_file_of_the_package(packages: tuple[Path, Path]) -> None:
    source = ROOT / "src"
    with zipfile.ZipFile(packages[1]) as wheel:
        names = {name for name in wheel.namelist() if name.startswith("fidelio/")}
    tracked = run("git", "ls-files", "src/fidelio").split("\n") if (ROOT / ".git").exists() else []
    files = {str(Path(name).relative_to("src")) for name in tracked if name} or {
        str(path.relative_to(source)) for path in (source / "fidelio").rglob("*") if path.is_file() and path.suffix != ".pyc"
    }

    assert files
    assert files - names == set()


@proves("project.packages")
def test_the_sdist_has_what_a_packager_needs_to_run_the_tests(packages: tuple[Path, Path]) -> None:
    with tarfile.open(packages[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}

    assert {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "tests/conftest.py", "docs/index.md"} <= names


@proves("project.packages")
def test_the_installed_program_works(installed: Path, tmp_path: Path) -> None:
    fidelio = str(installed / "fidelio")

    assert run(fidelio, "--version", cwd=tmp_path).startswith("fidelio, version ")
    assert "work-package" in run(fidelio, "list", cwd=tmp_path)
    assert json.loads(run(fidelio, "--home", "home", "tour", "--json", cwd=tmp_path))["lint"]["errors"] == 0
    assert "mine" in run(fidelio, "new", "mine", cwd=tmp_path)
    assert run(fidelio, "lint", cwd=tmp_path) == "No findings.\n"
    assert "<svg" in run(fidelio, "draw", "hello", "--format", "svg", cwd=tmp_path)
    assert run(fidelio, "schema", cwd=tmp_path)


@proves("project.packages")
def test_the_installed_page_has_its_templates_and_static_files(address: str) -> None:
    browser = build_opener(HTTPCookieProcessor(http.cookiejar.CookieJar()))
    with browser.open(address, timeout=60) as reply:
        page = reply.read().decode()
    base = address.partition("/sign-in")[0]
    static = set(re.findall(r'(?:href|src)="(/[^"]*\.(?:css|js|svg)[^"]*)"', page))

    assert "Fidelio" in page
    assert any(".css" in name for name in static)
    for name in static:
        with browser.open(base + name, timeout=60) as reply:
            assert reply.status == 200
            assert reply.read()
    with browser.open(f"{base}/workflows", timeout=60) as reply:
        assert "hello" in reply.read().decode()
