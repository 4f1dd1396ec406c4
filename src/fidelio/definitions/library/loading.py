"""Files turned into models, each once per content.

With `assembly` and `parts` the only module of the library that needs the models; they are imported when a definition is asked
for, and not for a list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from fidelio.definitions.findings import Finding
from fidelio.definitions.library.files import Kept, Source
from fidelio.definitions.models import Definition, Manifest
from fidelio.definitions.parsing import validate
from fidelio.definitions.reading.document import Document
from fidelio.errors import UnreadableDefinition

Model = TypeVar("Model", bound=Definition)


class Loaded(NamedTuple, Generic[Model]):
    """A definition, the workflow that owns it, and the text it was read from."""

    definition: Model
    source: Source

    @property
    def owner(self) -> str:
        return self.source.owner


def load(model: type[Model], kept: Kept) -> Model:
    return once(kept, model, lambda document: validate(model, document))


def load_manifest(kept: Kept) -> Manifest:
    """The manifest without the activities that are not names of files: one broken activity must not take the rest with it."""
    return once(kept, Manifest, lambda document: validate(Manifest, document, _without_activities(document.data)))


def _without_activities(data: Any) -> Any:
    if not isinstance(data, dict) or not isinstance(data.get("activities"), list):
        return data
    # A placeholder keeps the places of the others in the list.
    return data | {"activities": [entry if isinstance(entry, str) else "inline" for entry in data["activities"]]}


def once(kept: Kept, model: type[Model], make: Callable[[Document], Model]) -> Model:
    result = kept.models.get(model)
    if result is None:
        try:
            result = make(kept.document())
        except UnreadableDefinition as problem:
            result = problem.findings
        kept.models[model] = result
    if isinstance(result, tuple):
        raise UnreadableDefinition(result)
    return result


def findings_of(problem: UnreadableDefinition) -> tuple[Finding, ...]:
    return tuple(finding for finding in problem.findings if isinstance(finding, Finding))
