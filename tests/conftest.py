"""What holds for every test: the same rules for generated examples everywhere, and nothing of the developer's own Fidelio."""

from __future__ import annotations

import os
import random
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# Speed belongs to the benchmarks: a busy machine must not fail a test. CI repeats its examples, a developer meets new ones.
settings.register_profile(
    "fidelio",
    deadline=None,
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fidelio")

# Tests that pass leave nothing behind, so that a run needs less.
_MEMORY, _NEEDED = "/dev/shm", 2**31
_OURS = ("FIDELIO_CACHE", "FIDELIO_REQUIRE_ALL", "FIDELIO_TEST_POSTGRES")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="Run the tests in the random order of this seed.")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)


def pytest_configure(config: pytest.Config) -> None:
    for name in [name for name in os.environ if name.startswith("FIDELIO_") and name not in _OURS]:
        del os.environ[name]
    _handle_signals()
    _use_memory_for_files()
    home = tempfile.TemporaryDirectory(prefix="fidelio-home-")
    config.add_cleanup(home.cleanup)
    # A test that forgets to choose a home must not write into the one of whoever runs it.
    os.environ["FIDELIO_HOME"] = home.name
    # What a test trusts must not be trusted afterwards.
    os.environ["XDG_DATA_HOME"] = f"{home.name}/data"
    # Reading the certificate authorities of the system takes 18 ms of CPU for each HTTP client. No test leaves this machine.
    os.environ["SSL_CERT_DIR"] = home.name


def _use_memory_for_files() -> None:
    """Write the files of tests into memory: every commit to a ledger waits for the disk otherwise."""
    if not os.path.isdir(_MEMORY) or not os.access(_MEMORY, os.W_OK):  # noqa: PTH112  # text
        return
    system = os.statvfs(_MEMORY)
    if not system.f_flag & os.ST_NOEXEC and system.f_bavail * system.f_frsize >= _NEEDED:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


def _handle_signals() -> None:
    """Undo what a shell does to a background job or `nohup`: processes that tests start would ignore Ctrl-C or a hangup too."""
    for number, action in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, action)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
