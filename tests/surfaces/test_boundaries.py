"""Surfaces use the methods of the application and of its services, never the parts behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import proves

SURFACES = Path(__file__).resolve().parents[2] / "src" / "fidelio" / "surfaces"
# Attributes through which a surface would reach what a service is built from.
INNER_PARTS = frozenset({"unit", "ledger", "queries", "waits"})
# `settings.ledger` and `home.ledger` are addresses, not the ledger.
ADDRESSES = frozenset({"settings", "home"})


def reaches(tree: ast.AST) -> Iterator[str]:
    """Every access to an inner part of a service."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in INNER_PARTS:
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if owner not in ADDRESSES:
                yield ast.unparse(node)
        if isinstance(node, ast.Attribute) and node.attr == "library" and getattr(node.value, "id", "") == "service":
            yield ast.unparse(node)


@proves("app.one-root")
@pytest.mark.parametrize("file", sorted(SURFACES.rglob("*.py")), ids=lambda file: str(file.relative_to(SURFACES)))
def test_no_surface_reaches_through_a_service(file: Path) -> None:
    assert list(reaches(ast.parse(file.read_text("utf-8")))) == []


@proves("app.one-root")
def test_an_access_through_a_service_is_found() -> None:
    code = "service.unit.load(x); (await app.workflows()).ledger; service.library.list(); cli.settings.ledger; app.library()"

    found = set(reaches(ast.parse(f"async def f():\n    {code}")))

    assert found == {"service.library", "service.unit", "(await app.workflows()).ledger"}
