"""What the files that describe a session are: their names, what they are rendered from, and how they are rendered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from fidelio.runtime.record import RuntimeRecord


class SandboxFacts(msgspec.Struct, frozen=True):
    """What is known of a sandbox without its directories of the host. `variables` are names."""

    network: str
    hosts: tuple[str, ...]
    limits: dict[str, int]
    variables: tuple[str, ...]
    mounts: list[dict[str, str]]


class Subject(msgspec.Struct, frozen=True):
    """What the files are rendered from."""

    session: str
    record: RuntimeRecord
    sandbox: SandboxFacts
    tools: frozenset[str]
    now: int
    # The last command with its whole output and the attached vaults, which the record does not hold.
    last_output: Mapping[str, Any] | None
    vaults: tuple[Mapping[str, Any], ...]
    # The window of the model in tokens, None for a session without a model or a file that does not show it.
    window: int | None = None


Render = Callable[[Subject], Mapping[str, Any]]
Lines = Callable[[Mapping[str, Any]], list[str]]


class RuntimeFile(msgspec.Struct, frozen=True):
    """A file: the part of the record it shows, its JSON, and its lines for people if it has a Markdown twin."""

    name: str
    part: Callable[[RuntimeRecord], object]
    render: Render
    lines: Lines | None = None


def render_files(files: Iterable[RuntimeFile], subject: Subject) -> dict[str, str]:
    """The texts of files by their names."""
    return {name: text for file in files for name, text in render_body(file.name, file.render(subject), file.lines)}


def render_body(name: str, body: Mapping[str, Any], lines: Lines | None) -> Iterator[tuple[str, str]]:
    """The text of a file, and of its Markdown twin. A name that ends with `md` has only that."""
    stem, _, kind = name.rpartition(".")
    if kind == "json":
        yield name, msgspec.json.format(msgspec.json.encode(body), indent=2).decode() + "\n"
    if lines is not None:
        yield f"{stem}.md", "\n".join(lines(body)) + "\n"
