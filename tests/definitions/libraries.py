"""Writes values in the three formats, and small libraries to a directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import toon_format
import yaml
from hypothesis import strategies as st

from fidelio.definitions.library import Library, Root

FORMATS = ("toon", "yaml", "json")


class _Quoting(yaml.SafeDumper):
    """Puts all text in quotes: the writer speaks YAML 1.1 and would leave `1e3` bare, which 1.2 reads as a number."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


_Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def written(value: Any, format_: str) -> str:
    if format_ == "toon":
        return toon_format.dumps(value)
    if format_ == "yaml":
        return str(yaml.dump(value, Dumper=_Quoting, sort_keys=False, allow_unicode=True, width=60))
    return json.dumps(value, indent=2, ensure_ascii=False)


_TEXTS = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\x85\u2028\u2029\ufeff"), max_size=12
) | st.sampled_from(
    [
        "no",
        "010",
        "1e3",
        "- a: b",
        "# x",
        "a # b",
        "null",
        "|",
        "[]",
        "{}",
        "a: b",
        '"',
        "\\",
        "x\ny",
        "\t",
        " ",
        "12:30",
        "1_000",
        "<<",
    ]
)
_SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS

values = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)
mappings = st.dictionaries(_TEXTS, values, min_size=1, max_size=5)


def save(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def library(*roots: Path) -> Library:
    return Library([Root(root, root.name) for root in roots])


def manifest(workflow: str, **more: Any) -> str:
    return written({"id": workflow, "version": "1.0.0", "title": workflow.title(), **more}, "yaml")


def activity(name: str, **more: Any) -> str:
    return written({"id": name, "version": "1.0.0", "name": name.title(), **more}, "yaml")


def skill(name: str, **more: Any) -> str:
    return written({"id": name, "version": "1.0.0", "capability": f"Can {name}.", **more}, "yaml")
