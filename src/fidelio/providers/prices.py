"""Windows, output limits and prices of models. They are configuration: a file of the user overrides what is bundled.

    claude-opus-4-5:                  # a model id, or PROVIDER/MODEL
      window: 200000
      max_output: 64000
      price: {input: 5, output: 25, cache_read: 0.5, cache_write: 6.25}    # US dollars per million tokens

A dated version of a model, such as `gpt-5-2025-08-07`, has the entry of its name without the date.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from msgspec import Meta
from msgspec.structs import replace

from fidelio.providers.model import ModelInfo, ModelProblem, Price
from fidelio.providers.names import parse_model_id

BUNDLED_PRICES = Path(__file__).resolve().parent / "models.yaml"
_VERSION = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
_REMEDY = "The reference of models describes this file."

_Dollars = Annotated[float, Meta(ge=0, le=1_000_000)]
_Tokens = Annotated[int, Meta(ge=1, le=1_000_000_000)]


class _PriceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: _Dollars
    output: _Dollars
    cache_read: _Dollars | None = None
    cache_write: _Dollars | None = None

    def as_price(self) -> Price:
        """The price; what a cache costs is that of other input where the entry does not say it."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        return Price(self.input, self.output, read, write)


class _ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    window: _Tokens | None = None
    max_output: _Tokens | None = None
    price: _PriceEntry | None = None
    images: bool | None = None


class ModelCatalogue:
    """What is configured of models, read at the first lookup. `file` may be missing; its entries override the bundled ones."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._entries: Mapping[tuple[str, str], tuple[_ModelEntry, ...]] | None = None

    def describe(self, provider: str, model: str, known: ModelInfo = ModelInfo()) -> ModelInfo:  # noqa: B008  # immutable
        """`known`, with everything that is configured."""
        if self._entries is None:
            self._entries = self._load()
        found = self._entries.get((provider, model)) or self._entries.get((provider, _VERSION.sub("", model)))
        for entry in found or ():
            known = _apply(known, entry)
        return known

    def _load(self) -> Mapping[tuple[str, str], tuple[_ModelEntry, ...]]:
        entries = {parse_model_id(key): (entry,) for key, entry in _read_entries(BUNDLED_PRICES).items()}
        if self._file is not None and self._file.is_file():
            for key, entry in _read_entries(self._file).items():
                name = parse_model_id(key)
                entries[name] = (*entries.get(name, ()), entry)
        return entries


def _apply(known: ModelInfo, entry: _ModelEntry) -> ModelInfo:
    return replace(
        known,
        window=entry.window or known.window,
        max_output=entry.max_output or known.max_output,
        price=entry.price.as_price() if entry.price is not None else known.price,
        images=known.images if entry.images is None else entry.images,
    )


def _read_entries(file: Path) -> dict[str, _ModelEntry]:
    try:
        raw = yaml.load(file.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # both are safe
        return msgspec.convert(raw or {}, dict[str, _ModelEntry])
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ModelProblem(f"The file of models {file} cannot be read: {error}.", remedy=_REMEDY) from error
    except msgspec.ValidationError as error:
        raise ModelProblem(f"The file of models {file} is invalid: {error}.", remedy=_REMEDY) from error
