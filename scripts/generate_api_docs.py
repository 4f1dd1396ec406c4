"""Writes docs/reference/api-compatibility.md from the methods of the official SDK and what the tests demand of each."""

from __future__ import annotations

from pathlib import Path

from tests.surfaces.v1.live.table import render_compatibility

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "api-compatibility.md"


def render() -> str:
    return render_compatibility()


def main() -> None:
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
