"""Names that the source code holds as text: event types, reason codes, states, environment variables, hash domains, keys.

Not every event and not every reason is met by a scenario. But each is a string in the source, wherever it stands and whatever
the constant is called that holds it. So the strings are compared, without the modules and names around them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "fidelio"

_DOTTED = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_{}-]+)+")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
_DOMAIN = re.compile(r"fidelio\.[a-z.]+\.v\d.*")
_WORD = re.compile(r"[A-Za-z_$][\w$]+([-./:][\w$]+)*:?")
# Strings that only say which module to import.
_ONLY_MODULES = frozenset({"__main__", "audit", "local_model_process", "people", "scripted_process", "serve"})

# What the clients of the two reference servers look for in a reply (workflow server, 18.3).
PHRASES = (
    "Active checkpoint",
    "respond_checkpoint",
    "Invalid option",
    "Exactly one",
    "no condition field",
    "missing defaultOption or autoAdvanceMs",
    "does not have an active checkpoint",
    "Either checkpoint_handle or session_token must be provided",
    "No current activity",
    "not a direct transition",
    "Missing steps",
    "order mismatch",
    "No step_manifest",
    "Condition mismatch",
    "unresolved checkpoint",
    "not pending",
    "Workflow mismatch",
    "blocking",
    "no condition",
)


def dotted() -> list[str]:
    """Event types, reason codes, job kinds and file names; `{}` stands for a value that is put in."""
    found = {text for text in _texts() if _DOTTED.fullmatch(text)}
    return sorted(text for text in found if not text.startswith("fidelio."))


def domains() -> list[str]:
    return sorted(text for text in _texts() if _DOMAIN.fullmatch(text))


def variables() -> list[str]:
    """Environment variables, ours and those of others."""
    return sorted(text for text in _texts() if _VARIABLE.fullmatch(text))


def choices() -> list[str]:
    """Every value of a `Literal`: states, kinds, channels, modes."""
    return sorted({text for tree in _trees() for text in _literals(tree)})


def phrases() -> list[str]:
    whole = "\n".join(_texts())
    return [phrase for phrase in PHRASES if phrase in whole]


def words() -> list[str]:
    """Every string that could be a key or a name. Only those that disappear matter."""
    return sorted(text for text in _texts() if _WORD.fullmatch(text) and text not in _ONLY_MODULES)


@cache
def _texts() -> frozenset[str]:
    return frozenset(text for tree in _trees() for text in _strings(tree))


@cache
def _trees() -> tuple[ast.Module, ...]:
    return tuple(ast.parse(file.read_text("utf-8")) for file in sorted(SOURCE.rglob("*.py")))


def _strings(tree: ast.Module) -> Iterator[str]:
    passed_over = {id(node) for node in _unneeded(tree)}
    for node in ast.walk(tree):
        if id(node) in passed_over:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(_part(value) for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            yield node.value if isinstance(node.value, str) else node.value.decode("utf-8", "replace")


def _unneeded(tree: ast.Module) -> Iterator[ast.AST]:
    """Docstrings, what a module exports, and the names of type variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        elif isinstance(node, ast.Assign) and _names(node.targets) & {"__all__", "__slots__"}:
            yield from ast.walk(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "TypeVar":
            yield from ast.walk(node)


def _names(targets: Iterable[ast.expr]) -> set[str]:
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _part(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else "{}"


def _literals(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal":
            for inner in ast.walk(node.slice):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner.value
