"""Checks the Markdown pages as a reader would: every link leads somewhere, and every page can be reached from the first one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START = Path("docs/index.md")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^\]\n]*\]\(\s*([^)\s]+)[^)\n]*\)")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")


def pages(root: Path) -> list[Path]:
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")])


def links(text: str) -> Iterator[str]:
    """The targets inside the project; an address elsewhere is not ours to check."""
    prose = _CODE.sub("", _FENCE.sub("", text))
    return (target for target in _LINK.findall(prose) if not _ELSEWHERE.match(target))


def anchors(text: str) -> set[str]:
    """What the headings of a page are called in an address, as the usual Markdown renderers spell it."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(root: Path, page: Path) -> Iterator[str]:
    for target in links(page.read_text("utf-8")):
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists():
            yield f"{page.relative_to(root)}: the link to {target} leads nowhere."
        elif anchor and place.suffix == ".md" and anchor not in anchors(place.read_text("utf-8")):
            yield f"{page.relative_to(root)}: {target} names a heading that is not there."


def unreachable(root: Path) -> Iterator[str]:
    waiting, seen = [root / START], set[Path]()
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        waiting += [(page.parent / target.partition("#")[0]).resolve() for target in links(page.read_text("utf-8"))]
    lost = (page for page in pages(root) if page.is_relative_to(root / "docs") and page not in seen)
    return (f"{page.relative_to(root)}: no link leads here from {START}." for page in lost)


def problems(root: Path) -> list[str]:
    return [*(problem for page in pages(root) for problem in broken(root, page)), *unreachable(root)]


def main() -> int:
    found = problems(ROOT)
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
