"""Writes docs/reference/escapes.md from the escape attempts that the tests carry out, so that the page lists all of them."""

from __future__ import annotations

from pathlib import Path

from tests.sandbox.isolation.table import render_escapes

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "escapes.md"


def render() -> str:
    return render_escapes()


def main() -> None:
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
