"""Check the requirements against the tests: every promise is proved by a test, and every proof is of a promise.

The files below `requirements/` list the promises, one file or folder for each package; each promise names its source, a file of
this repository. Tests name promises with `@proves("area.name")`. The tests are parsed, not imported, so that the check sees
every claim, also in files that are not collected on this machine.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
FIELDS = ("id", "promise", "source")
_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*\.[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Promise:
    """One entry of a requirements file."""

    id: str
    promise: str
    source: str
    file: str


@dataclass(frozen=True, slots=True)
class Claim:
    """One `proves(...)` on one test."""

    id: str
    test: str
    location: str


@dataclass(frozen=True, slots=True)
class Report:
    """All promises, all claims, and one sentence for each problem."""

    promises: tuple[Promise, ...]
    claims: tuple[Claim, ...]
    problems: tuple[str, ...]


def check(promises_in: Path, tests_in: Path) -> Report:
    problems: list[str] = []
    promises = tuple(_read_promises(promises_in, problems))
    claims = tuple(_read_claims(tests_in, problems))
    problems += _find_duplicates(promises)
    problems += _find_missing_sources(promises, promises_in.parent)
    problems += _find_unproved(promises, claims)
    problems += _find_unknown(promises, claims)
    return Report(promises, claims, tuple(problems))


# Promises


def _read_promises(folder: Path, problems: list[str]) -> Iterator[Promise]:
    for file in sorted(folder.rglob("*.yaml")):
        name = str(file.relative_to(folder))
        entries = yaml.safe_load(file.read_text("utf-8")) or []
        if not isinstance(entries, list):
            problems.append(f"{name}: is not a list of entries with {', '.join(FIELDS)}.")
            continue
        for number, entry in enumerate(entries, start=1):
            yield from _read_promise(name, number, entry, problems)


def _read_promise(file: str, number: int, entry: object, problems: list[str]) -> Iterator[Promise]:
    fields: Mapping[str, Any] = entry if isinstance(entry, dict) else {}
    name = fields.get("id") or f"entry {number}"
    missing = [field for field in FIELDS if not (isinstance(fields.get(field), str) and fields[field].strip())]
    if missing:
        problems.append(f"{file}: {name} has no {' and no '.join(missing)}.")
    if unknown := sorted(set(fields) - set(FIELDS)):
        problems.append(f"{file}: {name} has the unknown field {', '.join(unknown)}; there are {', '.join(FIELDS)}.")
    if missing:
        return
    if not _ID.fullmatch(fields["id"]):
        problems.append(f"{file}: the id {name!r} is not of the form area.name, in lower case with hyphens.")
    yield Promise(fields["id"], fields["promise"].strip(), fields["source"].strip(), file)


def _find_duplicates(promises: Iterable[Promise]) -> Iterator[str]:
    files = defaultdict(list)
    for promise in promises:
        files[promise.id].append(promise.file)
    return (f"The id {id_} stands in {' and in '.join(names)}; keep one." for id_, names in files.items() if len(names) > 1)


def _find_missing_sources(promises: Iterable[Promise], root: Path) -> Iterator[str]:
    """A source is a path in the repository; a heading may follow after `#`, any text after a comma."""
    for promise in promises:
        path, _, heading = promise.source.partition(",")[0].strip().partition("#")
        file = root / path
        if not file.is_file():
            yield f"{promise.file}: the source of {promise.id}, {path!r}, is not a file of the repository."
        elif heading and heading not in _headings(file):
            yield f"{promise.file}: the source of {promise.id}, {path!r}, has no heading {heading!r}."


def _headings(file: Path) -> set[str]:
    """The headings of a Markdown page as they appear in links to them."""
    titles = re.findall(r"^#+ +(.+?) *$", file.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# Claims


def _read_claims(folder: Path, problems: list[str]) -> Iterator[Claim]:
    for file in sorted(folder.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"), str(file))
        yield from _claims_in(tree, str(file.relative_to(folder.parent)), problems)


def _claims_in(tree: ast.AST, file: str, problems: list[str]) -> Iterator[Claim]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                yield from _claims_of(decorator, node.name, f"{file}:{decorator.lineno}", problems)


def _claims_of(decorator: ast.expr, test: str, location: str, problems: list[str]) -> Iterator[Claim]:
    if not (isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "proves"):
        return
    if not test.lower().startswith("test"):
        problems.append(f"{location}: {test} is no test, so it proves nothing.")
        return
    if not decorator.args:
        problems.append(f"{location}: {test} says that it proves something, but not what.")
    for argument in decorator.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield Claim(argument.value, f"{location.partition(':')[0]}::{test}", location)
        else:
            problems.append(f"{location}: {test} names its promise by an expression; write the id itself.")


# Both


def _find_unproved(promises: Iterable[Promise], claims: Iterable[Claim]) -> Iterator[str]:
    claimed = {claim.id for claim in claims}
    return (f'{p.file}: no test proves {p.id} ("{p.promise}").' for p in promises if p.id not in claimed)


def _find_unknown(promises: Iterable[Promise], claims: Iterable[Claim]) -> Iterator[str]:
    known = {promise.id for promise in promises}
    strangers = (claim for claim in claims if claim.id not in known)
    return (
        f"{c.location}: {c.test.rpartition('::')[2]} proves {c.id}, which requirements/ does not promise." for c in strangers
    )


def table(report: Report) -> str:
    tests = Counter(claim.id for claim in report.claims)
    width = max((len(promise.id) for promise in report.promises), default=0)
    rows = [f"{p.id:<{width}}  {tests[p.id]:>3}  {p.promise}" for p in sorted(report.promises, key=lambda p: p.id)]
    return "\n".join([*rows, f"{len(report.promises)} promises, {len({c.test for c in report.claims})} tests that prove them"])


def main() -> int:
    report = check(ROOT / "requirements", ROOT / "tests")
    print(table(report))
    for problem in report.problems:
        print(problem, file=sys.stderr)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
