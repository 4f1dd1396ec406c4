"""Files turned into models, each once per content.

With `assembly` the only module of the library that needs the models; both are imported when a definition
is asked for, and not for a list.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

from fidelio.definitions.findings import Finding
from fidelio.definitions.library.files import Kept
from fidelio.definitions.library.names import PartName
from fidelio.definitions.library.source import Source
from fidelio.definitions.models import Definition, Manifest, Resource, StructuredResource, Template
from fidelio.definitions.reading.document import Document
from fidelio.definitions.validation import validate
from fidelio.errors import UnreadableDefinition

Model = TypeVar("Model", bound=Definition)
Text = TypeVar("Text", Resource, Template)


class Loaded(NamedTuple, Generic[Model]):
    """A definition, the workflow that owns it, and the text it was read from."""

    definition: Model
    source: Source

    @property
    def owner(self) -> str:
        return self.source.owner


def load(model: type[Model], kept: Kept) -> Model:
    return _once(kept, model, lambda document: validate(model, document))


def load_manifest(kept: Kept) -> Manifest:
    """The manifest without the activities that are not names of files: one broken activity must not take the rest with it."""
    return _once(kept, Manifest, lambda document: validate(Manifest, document, _without_activities(document.data)))


def _without_activities(data: Any) -> Any:
    if not isinstance(data, dict) or not isinstance(data.get("activities"), list):
        return data
    # A placeholder keeps the places of the others in the list.
    return data | {"activities": [entry if isinstance(entry, str) else "inline" for entry in data["activities"]]}


def load_text(model: type[Text], kept: Kept, name: PartName) -> Text:
    return _once(kept, model, lambda document: _text(model, document, name))


def _text(model: type[Text], document: Document, name: PartName) -> Text:
    from fidelio.definitions.reading.markdown import first_heading  # noqa: PLC0415  brings YAML, which workflows may do without

    front, content = _front_and_content(document)
    return model.model_validate(
        {
            "index": name.index,
            "name": name.id,
            "id": _word(front.get("id")),
            "version": _word(front.get("version")),
            "title": _word(front.get("title")) or first_heading(content),
            "frontMatter": front,
            "content": content,
        }
    )


def _front_and_content(document: Document) -> tuple[dict[str, Any], str]:
    if document.format == "markdown":
        return document.data["front"], document.data["body"]
    about = validate(StructuredResource, document)
    return {"id": about.id, "version": about.version, "title": about.title}, document.text


def _word(value: object) -> str | None:
    return None if value is None or isinstance(value, (dict, list)) else str(value)


def _once(kept: Kept, model: type[Model], make: Any) -> Model:
    result = kept.models.get(model)
    if result is None:
        try:
            result = make(kept.document())
        except UnreadableDefinition as problem:
            result = problem.findings
        kept.models[model] = result
    if isinstance(result, tuple):
        raise UnreadableDefinition(result)
    return result  # type: ignore[no-any-return]  # the table holds for each model its own instances


def findings_of(problem: UnreadableDefinition) -> tuple[Finding, ...]:
    return tuple(finding for finding in problem.findings if isinstance(finding, Finding))
