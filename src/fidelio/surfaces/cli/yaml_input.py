"""Definitions on the command line: a YAML file, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from fidelio.definitions.reading.document import read_bytes
from fidelio.definitions.reading.positions import MAX_BYTES
from fidelio.errors import UsageProblem


def read_yaml(file: str) -> Any:
    """The content of a YAML file, `-` for standard input. Nothing counts as an empty mapping."""
    try:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1) if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageProblem(f"{file} cannot be read: {error.strerror}.", remedy="Name a YAML file, or - for input.") from error
    found = read_bytes(raw, "input.yaml" if file == "-" else f"{file}.yaml").data
    return {} if found is None else found
