"""pytest plugin of `scripts.mutants`: records which lines each test runs, or runs a given list of tests in its order.

Both are told by environment variables, because the plugin runs in the process of pytest: MUTANTS_SOURCE is the copy of the
package that has to be the imported one, MUTANTS_RECORD the file to write, MUTANTS_PACKAGE what to trace, and MUTANTS_RUN the
file with the ids to run.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import fidelio

SOURCE = os.environ["MUTANTS_SOURCE"]
TRACED = os.path.join(SOURCE, "fidelio", os.environ.get("MUTANTS_PACKAGE", ""), "")  # noqa: PTH118 -- with a separator at the end
RECORD, RUN = os.environ.get("MUTANTS_RECORD"), os.environ.get("MUTANTS_RUN")
# None of pytest's own codes.
WRONG_SOURCE = 99
_records: list[tuple[str, float, dict[str, list[int]]]] = []
_passed: set[str] = set()


def pytest_configure() -> None:
    if not Path(fidelio.__file__).is_relative_to(SOURCE):
        pytest.exit(f"{fidelio.__file__} was imported, not the copy in {SOURCE}.", returncode=WRONG_SOURCE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if RUN:
        order = {name: place for place, name in enumerate(json.loads(Path(RUN).read_text("utf-8")))}
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if not RECORD:
        return (yield)
    tracer, begun = Tracer(), time.monotonic()
    threading.settrace(tracer.enter)
    sys.settrace(tracer.enter)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)
        _records.append((item.nodeid, time.monotonic() - begun, {file: sorted(lines) for file, lines in tracer.lines.items()}))


class Tracer:
    """Collects the lines of the traced package that are run; the first line of an entered function is one of them."""

    def __init__(self) -> None:
        self.lines = defaultdict[str, set[int]](set)

    def enter(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        if not file.startswith(TRACED):
            return None
        lines = self.lines[file.removeprefix(f"{SOURCE}{os.sep}")]
        lines.add(frame.f_code.co_firstlineno)

        def visit(frame: FrameType, _event: str, _argument: object) -> Callable[..., Any]:
            lines.add(frame.f_lineno)
            return visit

        return visit


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _passed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """What fails or is skipped without a mutant says nothing about one."""
    if RECORD:
        Path(RECORD).write_text(json.dumps([record for record in _records if record[0] in _passed]), "utf-8")
