"""Changelog fragments: one small file per change, so that two changes never fight over one list.

    changelog.d/durable-appends.added.md     Appends are durable before they are acknowledged.

`check` holds their form; `assemble VERSION` turns them into a chapter of CHANGELOG.md and removes them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# In the order in which a reader who upgrades wants to know.
KINDS = {
    "breaking": "Changes that need your attention",
    "security": "Security",
    "added": "Added",
    "changed": "Changed",
    "fixed": "Fixed",
    "removed": "Removed",
}
MARK = "<!-- releases -->\n"
_NAME = re.compile(rf"[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(KINDS)})\.md")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def fragments(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.name != "README.md")


def problems(folder: Path) -> Iterator[str]:
    for file in fragments(folder):
        text = file.read_text("utf-8").strip()
        if not _NAME.fullmatch(file.name):
            yield f"{file.name}: call it what-changed.kind.md, with one of the kinds {', '.join(KINDS)}."
        if not text.endswith("."):
            yield f"{file.name}: write at least one whole sentence, for the people who use Fidelio."
        if text.startswith(("#", "-", "*")) or "\n\n" in text:
            yield f"{file.name}: write one paragraph; headings and bullets are added when a release is made."


def chapter(folder: Path, version: str, date: str) -> str:
    parts = [f"## {version} ({date})\n"]
    for kind, title in KINDS.items():
        entries = [file.read_text("utf-8").strip() for file in fragments(folder) if file.name.endswith(f".{kind}.md")]
        if entries:
            parts.append(f"### {title}\n\n" + "".join(f"- {' '.join(entry.split())}\n" for entry in entries))
    return "\n".join(parts)


def assemble(root: Path, version: str, date: str) -> None:
    changelog, folder = root / "CHANGELOG.md", root / "changelog.d"
    before, mark, after = changelog.read_text("utf-8").partition(MARK)
    changelog.write_text(f"{before}{mark}\n{chapter(folder, version, date)}{after}", "utf-8")
    for file in fragments(folder):
        file.unlink()


def main(arguments: Sequence[str]) -> int:
    found = list(problems(ROOT / "changelog.d"))
    for problem in found:
        print(f"changelog.d/{problem}")
    match arguments:
        case ["check"]:
            return 1 if found else 0
        case ["assemble", version] if _VERSION.fullmatch(version) and not found:
            assemble(ROOT, version, datetime.now(UTC).date().isoformat())
            return 0
        case _:
            print("Use: make changelog VERSION=1.2.3, with fragments that are in order.", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
