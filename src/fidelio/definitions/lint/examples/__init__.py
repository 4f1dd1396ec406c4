"""Examples of the lint rules: a text that each rule reports, and a corrected text that it does not report.

The examples are YAML files in this package: a file for each module of rules, and `reading.yaml` for findings of the readers
and the library. Only the reference page and the tests load them; `fidelio lint` does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import yaml

READING = "reading"


class Example(NamedTuple):
    """Two texts, each with several files of a workflow; a line such as `# skills/01-x.yaml` begins a file.

    Examples of rules leave out what every file needs (`id: demo`, versions, names). Examples in `reading.yaml` are complete
    files, of which only the activities may be missing.
    """

    bad: str
    good: str


def load_rule_examples() -> dict[str, Example]:
    """The examples of all rules, by rule id."""
    names = sorted(file.stem for file in Path(__file__).parent.glob("*.yaml") if file.stem != READING)
    return {rule: example for name in names for rule, example in _load(name).items()}


def load_reading_examples() -> dict[str, Example]:
    """The examples of findings of the readers and the library, by rule id."""
    return _load(READING)


def _load(name: str) -> dict[str, Example]:
    entries = yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text("utf-8"))
    return {rule: Example(**texts) for rule, texts in entries.items()}
