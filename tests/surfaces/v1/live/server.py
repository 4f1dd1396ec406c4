"""`fidelio up` in a process of its own, over a home in a directory of the test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from anthropic import AsyncAnthropic

TOKEN = "key-of-a-live-server"
# Starting takes two seconds; a machine that runs other tests needs more.
SECONDS = 60.0


class LiveServer:
    """A server that can be killed and started again at the same address."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.project = directory / "project"
        self.project.mkdir()
        self._port = find_free_port()
        self._errors = directory / "errors.txt"
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def errors(self) -> str:
        """What the server has written to its standard error."""
        return self._errors.read_text("utf-8")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def environ(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FIDELIO_")}
        places = {"FIDELIO_HOME": str(self.home), "XDG_DATA_HOME": str(self.home.parent / "data")}
        return {**inherited, **places, "FIDELIO_TOKEN": TOKEN}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command over the same home."""
        command = [sys.executable, "-m", "fidelio", *arguments]
        return subprocess.run(
            command, cwd=self.project, env=self.environ, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def start(self) -> None:
        command = [sys.executable, "-m", "fidelio", "up", "--port", str(self._port)]
        with self._errors.open("a", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                command, cwd=self.project, env=self.environ, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self._process.stdout is not None
        # Without a server nobody would ever write the line.
        timer = Timer(SECONDS, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        assert self.url in line, f"The server did not start: {line}{self.errors}"

    def kill(self) -> None:
        """End the server without a chance to tidy up."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(SECONDS)
        finally:
            self._process.kill()
            self._process.wait(SECONDS)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def connect(self) -> AsyncAnthropic:
        """The official SDK, without retries of its own: a test sees every error."""
        return AsyncAnthropic(base_url=self.url, api_key=TOKEN, max_retries=0, timeout=SECONDS)


@contextmanager
def run_server(directory: Path) -> Iterator[LiveServer]:
    server = LiveServer(directory)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
