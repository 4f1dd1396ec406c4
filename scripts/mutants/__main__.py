"""Mutation sampling: change the source in small ways and see whether a test notices.

`python -m scripts.mutants tokens --sample 20` never changes the working tree. The package is copied to a temporary directory
that comes first on PYTHONPATH; each mutant replaces one file of the copy and runs the tests that run the changed line or enter
its function. One traced run of the tests in `TESTS` says which these are. A survivor that no test can or should notice is
listed with its reason in `survivors.yaml`, by its source text, so that the entry outlives shifted lines.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

import yaml

from scripts.mutants.finder import Mutant, mutants_of, sample

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
LISTED = Path(__file__).with_name("survivors.yaml")
MAPS = ROOT / ".build" / "mutants"
# Where the tests are that enter a package without starting a process.
TESTS = {
    "engine": ("tests/engine", "tests/workflows", "tests/conductor"),
    "ledger": ("tests/ledger/contract", "tests/ledger/sqlite", "tests/ledger/test_[!k]*.py"),
    "tokens": ("tests/tokens",),
    "workflows": ("tests/workflows", "tests/dialects"),
}
# A test over a transport runs no more lines than the same test without; the long ones run none of their own.
RECORDED = "not stdio and not http and not many_refusals and not benchmark"
# Per mutant: seconds of tests as recorded, and how much longer than that they may take before they count as hanging.
MOST_SECONDS, PATIENCE, GRACE_SECONDS = 60.0, 3, 60
KILLED, TIMED_OUT, KNOWN, SURVIVED, NOT_ENTERED = "killed", "timed out", "listed", "survived", "not tested"
# pytest's codes: passed, failed, and three for what a mutant that breaks an import causes. Not: no tests, or the wrong source.
ENDINGS = range(5)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One test: its duration, and the lines that it ran by file."""

    id: str
    seconds: float
    lines: Mapping[str, Sequence[int]]


def choose_tests(mutant: Mutant, recorded: Iterable[Recorded]) -> list[Recorded]:
    """Those that run the line before those that enter the function, and the quickest first, up to a bound."""
    ran = [(mutant.number in lines, test) for test in recorded if (lines := test.lines.get(mutant.file, ()))]
    # What is no function is run at import, where no test is running.
    entering = [(hit, test) for hit, test in ran if mutant.function is None or mutant.function in test.lines[mutant.file]]
    quickest = [test for _, test in sorted(entering, key=lambda found: (not found[0], found[1].seconds))]
    totals = accumulate(test.seconds for test in quickest)
    return [test for test, total in zip(quickest, totals, strict=True) if total <= MOST_SECONDS] or quickest[:1]


class Workplace:
    """The copy of the package, and pytest runs that import it."""

    def __init__(self, place: Path, source: Path = SOURCE) -> None:
        self._place, self._original, self._copy = place, source, place / "src"
        # The times of the files are kept, so that their compiled forms stay valid and that of a mutant does not.
        shutil.copytree(source, self._copy)

    def record(self, package: str) -> str:
        """The tests that pass, each with its seconds and the lines of the package that it runs."""
        record = self._place / "record.json"
        files = [str(file.relative_to(ROOT)) for pattern in TESTS[package] for file in sorted(ROOT.glob(pattern))]
        self._pytest([*files, "-k", RECORDED], {"MUTANTS_RECORD": str(record), "MUTANTS_PACKAGE": package}, None)
        return record.read_text("utf-8")

    def run(self, mutant: Mutant, tests: Sequence[Recorded]) -> str:
        run = self._place / "run.json"
        run.write_text(json.dumps([test.id for test in tests]), "utf-8")
        files = dict.fromkeys(test.id.partition("::")[0] for test in tests)
        seconds = GRACE_SECONDS + PATIENCE * sum(test.seconds for test in tests)
        with self._mutated(mutant):
            try:
                code = self._pytest([*files, "-x", f"--timeout={GRACE_SECONDS}"], {"MUTANTS_RUN": str(run)}, seconds)
            except subprocess.TimeoutExpired:
                return TIMED_OUT
        return SURVIVED if code == 0 else KILLED

    @contextmanager
    def _mutated(self, mutant: Mutant) -> Iterator[None]:
        file, original = self._copy / mutant.file, self._original / mutant.file
        source = original.read_bytes()
        file.write_bytes(source[: mutant.start] + mutant.text.encode() + source[mutant.end :])
        try:
            yield
        finally:
            shutil.copy2(original, file)

    def _pytest(self, arguments: Sequence[str], environ: dict[str, str], timeout: float | None) -> int:
        """Raises TimeoutExpired after the run and all that it started in its session have been killed."""
        command = [sys.executable, "-m", "pytest", "-p", "scripts.mutants.plugin", "-p", "no:cacheprovider", "-q", *arguments]
        settings = (
            os.environ
            | environ
            | {
                "CI": "1",  # the same generated examples in every run
                "PYTHONPATH": f"{self._copy}{os.pathsep}{ROOT}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "HYPOTHESIS_STORAGE_DIRECTORY": str(self._place / "hypothesis"),
                "MUTANTS_SOURCE": str(self._copy),
            }
        )
        log = self._place / "log.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=ROOT, env=settings, stdout=output, stderr=output, start_new_session=True)
        try:
            code = process.wait(timeout)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code not in ENDINGS:
            sys.exit(f"pytest ended with {code}:\n{log.read_text('utf-8')}")
        return code


@cache
def recorded_tests(workplace: Workplace, package: str) -> list[Recorded]:
    """From an earlier run if neither the source nor the tests have changed since."""
    digest = hashlib.sha256()
    for file in sorted((*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"))):
        digest.update(file.read_bytes())
    kept = MAPS / f"{package}-{digest.hexdigest()[:16]}.json"
    if not kept.exists():
        print(f"recording what the tests of {package} run", flush=True)
        MAPS.mkdir(parents=True, exist_ok=True)
        kept.write_text(workplace.record(package), "utf-8")
    return [Recorded(name, seconds, lines) for name, seconds, lines in json.loads(kept.read_text("utf-8"))]


def read_listed() -> dict[tuple[str, str, str], str]:
    """The reasons of the survivors that are accepted."""
    entries = yaml.safe_load(LISTED.read_text("utf-8")) or []
    return {(entry["file"], entry["line"], entry["mutation"]): entry["reason"] for entry in entries}


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    chosen = sample(mutants_of(SOURCE, options.paths), options.seed, options.sample)
    listed, results = read_listed(), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        workplace = Workplace(Path(place))
        for mutant in sorted(chosen, key=lambda mutant: (mutant.file, mutant.start)):
            tests = choose_tests(mutant, recorded_tests(workplace, mutant.file.split("/")[1]))
            result = workplace.run(mutant, tests) if tests else NOT_ENTERED
            if result in (SURVIVED, NOT_ENTERED) and mutant.key in listed:
                result = KNOWN
            results[result] += 1
            print(f"{result:<10} {mutant.file}:{mutant.number}: {mutant.mutation}    # {mutant.line}", flush=True)
    print(", ".join(f"{count} {result}" for result, count in results.most_common()))
    return 1 if results[SURVIVED] + results[NOT_ENTERED] else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description="Mutation sampling.")
    parser.add_argument("paths", nargs="*", default=list(TESTS), help="files or folders below src/fidelio")
    parser.add_argument("--sample", type=int, default=20, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
