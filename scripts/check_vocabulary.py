"""Refuse words that the glossary replaces: in names, in the first lines of docstrings, and two public classes with one name.

The words come from the last column of both tables in `docs/concepts/glossary.md`. Names that are stored or that another library
dictates are exempt; each exemption has its reason here.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "concepts" / "glossary.md"
# A name that must stay, and why.
EXEMPT_NAMES: dict[str, str] = {
    "turns": "key of a blueprint's limits, of a script of the executor scripted, and of the stored usage of a run",
    "opened_at": "column of the table requests, and key in the JSON of a request",
    "pass_fds": "parameter of `subprocess.Popen`, and of what builds its arguments",
    "requireOutcomePass": "parameter of the tools for shared files",
    "pass_context": "field of the stored record, key of events, and `passContext` of definition files",
}
# Public classes of one name in several packages that implement one contract, and that contract.
SHARED_CONTRACTS: dict[str, str] = {}

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Problem(NamedTuple):
    """One refused word."""

    file: Path
    line: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.sentence}"


def replaced_words(glossary: str) -> frozenset[tuple[str, ...]]:
    """The words in the last column of every table row, each as a tuple because some consist of two."""
    rows = (line for line in glossary.splitlines() if line.startswith("|") and not set(line) <= set("|-: "))
    cells = (row.rstrip("|").rpartition("|")[2] for row in rows)
    words = (word.strip() for cell in cells for word in cell.split(","))
    return frozenset(tuple(word.split()) for word in words if word and word not in ("not", "instead of"))


def words_of(name: str) -> tuple[str, ...]:
    """`HouseRules` and `house_rules` are both ("house", "rules")."""
    return tuple(word.lower() for word in _WORD.findall(name))


def find_replaced(words: tuple[str, ...], replaced: frozenset[tuple[str, ...]]) -> str | None:
    runs = (words[start:end] for start in range(len(words)) for end in range(start + 1, len(words) + 1))
    return next((" ".join(run) for run in runs if run in replaced), None)


def defined_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that this module itself chooses, with its line: not those it only uses."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name, node.lineno


def first_lines(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring.splitlines()[0], node.body[0].lineno


def check_names(file: Path, tree: ast.AST, replaced: frozenset[tuple[str, ...]]) -> Iterator[Problem]:
    for name, line in [*((part, 1) for part in file.with_suffix("").parts), *defined_names(tree)]:
        word = find_replaced(words_of(name), replaced)
        if word is not None and name not in EXEMPT_NAMES:
            yield Problem(file, line, f"the name {name!r} uses {word!r}; docs/concepts/glossary.md says what to use instead")


def check_docstrings(file: Path, tree: ast.AST, replaced: frozenset[tuple[str, ...]]) -> Iterator[Problem]:
    for text, line in first_lines(tree):
        # What stands in backticks is a name that is checked where it is defined, or one that is stored.
        word = find_replaced(words_of(re.sub(r"`[^`]*`", "", text)), replaced)
        if word is not None:
            yield Problem(file, line, f"the first line of a docstring uses {word!r}; see docs/concepts/glossary.md")


def check_classes(trees: Iterable[tuple[Path, ast.Module]]) -> Iterator[Problem]:
    defined: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for file, tree in trees:
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append((file, node.lineno))
    for name, found in sorted(defined.items()):
        # src/fidelio/PACKAGE/...
        if len({file.parts[2] for file, _ in found}) > 1 and name not in SHARED_CONTRACTS:
            others = ", ".join(str(file) for file, _ in found[1:])
            yield Problem(*found[0], f"the public class {name} is also defined in {others}")


def check(root: Path, glossary: str) -> Iterator[Problem]:
    replaced = replaced_words(glossary)
    source = root / "src" / "fidelio"
    trees = [(file.relative_to(root), ast.parse(file.read_text("utf-8"))) for file in sorted(source.rglob("*.py"))]
    for file, tree in trees:
        yield from check_names(file, tree, replaced)
        yield from check_docstrings(file, tree, replaced)
    yield from check_classes(trees)


def main() -> int:
    problems = list(check(ROOT, GLOSSARY.read_text("utf-8")))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
