"""Parse files into models, once for each content of a file.

Only this module, `assembly` and `components` need the models. They are imported when a definition is requested, and not for a
list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from fidelio.definitions.findings import Finding
from fidelio.definitions.library.files import DefinitionSource, FileContent
from fidelio.definitions.models import Definition, WorkflowManifest
from fidelio.definitions.parsing import validate
from fidelio.definitions.reading.document import ParsedDocument
from fidelio.errors import UnreadableDefinition

Model = TypeVar("Model", bound=Definition)


class LoadedDefinition(NamedTuple, Generic[Model]):
    """A definition, its owner workflow, and its file."""

    definition: Model
    source: DefinitionSource

    @property
    def owner(self) -> str:
        return self.source.owner


def load_model(model: type[Model], content: FileContent) -> Model:
    return load_once(content, model, lambda document: validate(model, document))


def load_manifest(content: FileContent) -> WorkflowManifest:
    """The manifest without inline activities, so that a broken activity does not make the manifest unreadable."""
    return load_once(
        content, WorkflowManifest, lambda document: validate(WorkflowManifest, document, _without_activities(document.data))
    )


def _without_activities(data: Any) -> Any:
    if not isinstance(data, dict) or not isinstance(data.get("activities"), list):
        return data
    # A placeholder keeps the indexes of the other entries.
    return data | {"activities": [entry if isinstance(entry, str) else "inline" for entry in data["activities"]]}


def load_once(content: FileContent, model: type[Model], make: Callable[[ParsedDocument], Model]) -> Model:
    result = content.models.get(model)
    if result is None:
        try:
            result = make(content.document())
        except UnreadableDefinition as problem:
            result = problem.findings
        content.models[model] = result
    if isinstance(result, tuple):
        raise UnreadableDefinition(result)
    return result


def get_findings(problem: UnreadableDefinition) -> tuple[Finding, ...]:
    return tuple(finding for finding in problem.findings if isinstance(finding, Finding))
