"""pytest plugin of `scripts.mutants`: records which functions each test enters, or runs a given list of tests in its order.

Both are told by environment variables, because the plugin runs in the process of pytest: MUTANTS_SOURCE is the copy of the
package that has to be the imported one, MUTANTS_RECORD the file to write, MUTANTS_RUN the file with the ids to run.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest

import fidelio

SOURCE = os.environ["MUTANTS_SOURCE"]
RECORD, RUN = os.environ.get("MUTANTS_RECORD"), os.environ.get("MUTANTS_RUN")
# None of pytest's own codes.
WRONG_SOURCE = 99
_records: list[tuple[str, float, list[str]]] = []
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
    codes, begun = set[CodeType](), time.monotonic()

    def enter(frame: FrameType, _event: str, _argument: object) -> None:
        codes.add(frame.f_code)

    threading.settrace(enter)
    sys.settrace(enter)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)
        _records.append((item.nodeid, time.monotonic() - begun, sorted(_ours(codes))))


def _ours(codes: set[CodeType]) -> set[str]:
    """`file:first line` of the functions of the package."""
    root = f"{SOURCE}{os.sep}"
    return {
        f"{code.co_filename.removeprefix(root)}:{code.co_firstlineno}" for code in codes if code.co_filename.startswith(root)
    }


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _passed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """What fails or is skipped without a mutant says nothing about one."""
    if RECORD:
        Path(RECORD).write_text(json.dumps([record for record in _records if record[0] in _passed]), "utf-8")
