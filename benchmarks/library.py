"""Benchmark of the library of definitions: listing cold and warm, repeated reads, and memory.

The library has twelve workflows and two hundred files of realistic length, half TOON and half YAML. Cold figures are measured
in a new process, from the first import of the product on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import toon_format
import yaml

from benchmarks.figures import Figure
from fidelio.definitions.library import Library, Root, files

WORKFLOWS, ACTIVITIES, SKILLS, RESOURCES = 12, 6, 5, 4
FILES = 200
SENTENCE = "Read what is there before you change it, say what you found, and ask when two readings are possible."

COLD = """
import time
start = time.perf_counter()
import sys
from pathlib import Path
from fidelio.definitions.library import Library, Root
count = len(Library([Root(Path(sys.argv[1]), "bench")]).list())
taken = (time.perf_counter() - start) * 1000
print('{"ms": %f, "count": %d}' % (taken, count))
"""

MEMORY = """
import json, sys, tracemalloc
from pathlib import Path
from benchmarks.library import load_everything
from fidelio.definitions.library import Library, Root
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 if Path("/proc/self/statm").exists() else 0
load_everything(Library([Root(Path(sys.argv[2]), "warm-up")]))
before = resident()
if sys.argv[3] == "traced":
    tracemalloc.start()
kept = Library([Root(Path(sys.argv[1]), "bench")])
load_everything(kept)
traced = tracemalloc.get_traced_memory()[0] if sys.argv[3] == "traced" else 0
print(json.dumps({"traced": traced / 1e6, "rss": (resident() - before) / 1e6}))
"""


def main() -> list[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        root, small = Path(directory) / "library", Path(directory) / "small"
        count = make_library(root, WORKFLOWS)
        make_library(small, 2)
        return [*_listing(root, count), *_serving(root), *_memory(root, small)]


def _listing(root: Path, count: int) -> Iterator[Figure]:
    cold = [_run(COLD, str(root)) for _ in range(7)]
    assert {result["count"] for result in cold} == {WORKFLOWS}
    yield Figure(name="files in the library", value=count, unit="files", at_least=FILES, at_most=FILES)
    yield Figure(name="list, cold, imports included", value=median(result["ms"] for result in cold), unit="ms", at_most=150)
    library = Library([Root(root, "bench")])
    library.list()
    yield Figure(name="list, warm", value=_median_ms(library.list, 50), unit="ms", at_most=5)


def _serving(root: Path) -> Iterator[Figure]:
    library = Library([Root(root, "bench")])
    start = time.perf_counter()
    load_everything(library)
    yield Figure(name="load everything once", value=(time.perf_counter() - start) * 1000, unit="ms")
    parsed = _count_parsing(library)
    yield Figure(name="files parsed when all is served again", value=parsed, unit="files", at_most=0)
    yield Figure(name="workflow, served again", value=_median_ms(lambda: library.workflow("workflow-00"), 50), unit="ms")
    skill = _median_ms(lambda: library.skill("skill-1", workflow="workflow-00"), 50)
    yield Figure(name="skill, served again", value=skill, unit="ms")
    yield Figure(name="content hash, again", value=_median_ms(lambda: library.content_hash("workflow-00"), 50), unit="ms")


def _count_parsing(library: Library) -> int:
    parsed: list[str] = []
    read = files.read_bytes  # type: ignore[attr-defined]  # the one place where the library parses

    def counting(raw: bytes, name: str) -> Any:
        parsed.append(name)
        return read(raw, name)

    files.read_bytes = counting  # type: ignore[attr-defined]  # the one place where the library parses
    try:
        load_everything(library)
    finally:
        files.read_bytes = read  # type: ignore[attr-defined]  # the one place where the library parses
    return len(parsed)


def _memory(root: Path, small: Path) -> Iterator[Figure]:
    traced = _run(MEMORY, str(root), str(small), "traced")["traced"]
    yield Figure(name="memory of the whole library", value=traced, unit="MB", at_most=20)
    rss = median(_run(MEMORY, str(root), str(small), "plain")["rss"] for _ in range(3))
    yield Figure(name="growth of the process", value=rss, unit="MB", at_most=20)


def load_everything(library: Library) -> None:
    for entry in library.list():
        library.workflow(entry.id)
        for part in library.components("skills", entry.id):
            library.skill(part.id, workflow=entry.id)
        for part in library.components("resources", entry.id):
            library.resource(part.index, workflow=entry.id)


def _run(program: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-c", program, *arguments]
    here = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, cwd=here)
    return dict(json.loads(done.stdout))


def _median_ms(action: Any, rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        taken.append((time.perf_counter() - start) * 1000)
    return median(taken)


def make_library(root: Path, workflows: int) -> int:
    """Writes the library and says how many files it has."""
    for number in range(workflows):
        name, suffix = f"workflow-{number:02}", "toon" if number % 2 else "yaml"
        place = root / name
        _write(place / f"workflow.{suffix}", _manifest(name))
        for index in range(1, ACTIVITIES + 1):
            _write(place / "activities" / f"{index:02}-activity-{index}.{suffix}", _activity(index))
        for index in range(1, SKILLS + 1):
            _write(place / "skills" / f"{index:02}-skill-{index}.{suffix}", _skill(index))
        for index in range(RESOURCES + (number < FILES - WORKFLOWS * (1 + ACTIVITIES + SKILLS + RESOURCES))):
            page = place / "resources" / f"{index:02}-page-{index}.md"
            page.parent.mkdir(exist_ok=True)
            page.write_text(
                f"---\nid: page-{index}\nversion: 1.0.0\n---\n\n# Page {index}\n\n" + f"- {SENTENCE}\n" * 45, "utf-8"
            )
    return sum(1 for file in root.rglob("*") if file.is_file())


def _write(place: Path, data: dict[str, Any]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    text = toon_format.dumps(data) if place.suffix == ".toon" else yaml.safe_dump(data, sort_keys=False, width=120)
    place.write_text(text, "utf-8")


def _manifest(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "version": "1.0.0",
        "title": name.title(),
        "description": SENTENCE,
        "tags": ["bench", "generated"],
        "rules": [f"{number}. {SENTENCE}" for number in range(8)],
        "skills": {"primary": "skill-1"},
        "variables": [
            {"name": f"variable_{number}", "type": "boolean", "description": SENTENCE, "defaultValue": False}
            for number in range(30)
        ],
        "initialActivity": "activity-1",
    }


def _condition(number: int) -> dict[str, Any]:
    return {"type": "simple", "variable": f"variable_{number}", "operator": "==", "value": True}


def _activity(index: int) -> dict[str, Any]:
    return {
        "id": f"activity-{index}",
        "version": "1.0.0",
        "name": f"Activity {index}",
        "description": SENTENCE,
        "steps": [
            {"id": f"step-{n}", "name": f"Step {n}", "description": SENTENCE, "skill": "skill-1", "condition": _condition(n)}
            for n in range(14)
        ],
        "checkpoints": [
            {"id": f"checkpoint-{n}", "name": f"Checkpoint {n}", "message": SENTENCE, "options": [_option(o) for o in range(3)]}
            for n in range(3)
        ],
        "transitions": [
            {
                "to": f"activity-{index % ACTIVITIES + 1}",
                "condition": {"type": "and", "conditions": [_condition(1), _condition(2)]},
            },
            {"to": "activity-1", "isDefault": True},
        ],
        "outcome": [SENTENCE] * 4,
    }


def _option(number: int) -> dict[str, Any]:
    effect = {"setVariable": {f"variable_{number}": True}}
    return {"id": f"option-{number}", "label": f"Option {number}", "description": SENTENCE, "effect": effect}


def _skill(index: int) -> dict[str, Any]:
    return {
        "id": f"skill-{index}",
        "version": "1.0.0",
        "capability": SENTENCE,
        "protocol": {f"phase-{n}": [SENTENCE] * 4 for n in range(5)},
        "rules": {f"rule-{n}": SENTENCE for n in range(6)},
        "inputs": [{"id": f"input-{n}", "description": SENTENCE} for n in range(3)],
        "resources": ["00", "01"],
        "errors": {f"error-{n}": {"cause": SENTENCE, "recovery": SENTENCE} for n in range(3)},
    }
