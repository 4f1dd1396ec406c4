"""What a workflow brings along besides its activities: skills, resources, templates and the rules for all workflows.

Imported when somebody asks for one of them: their models cost half as much as those of workflows, and a session starts without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from fidelio.definitions import META
from fidelio.definitions.findings import Finding, error
from fidelio.definitions.library.assembly import OWN_PARTS, Assembled, Loader
from fidelio.definitions.library.files import Kept, Source
from fidelio.definitions.library.identifiers import PartName
from fidelio.definitions.library.loading import Loaded, findings_of, load, once
from fidelio.definitions.library.locations import Folder, Place
from fidelio.definitions.library.lookup import read_part
from fidelio.definitions.models.resource import Resource, Rules, StructuredResource, Template
from fidelio.definitions.models.skill import Skill
from fidelio.definitions.parsing import validate
from fidelio.definitions.reading.document import Document
from fidelio.errors import UnreadableDefinition

Text = TypeVar("Text", Resource, Template)


class Parts:
    """Loads the parts of workflows, and knows what is wrong with any of them."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def skill(self, place: Place, part: PartName) -> Loaded[Skill]:
        kept = read_part(place, "skills", part)
        return Loaded(load(Skill, kept), Source.of(place.id, kept))

    def resource(self, place: Place, part: PartName) -> Loaded[Resource]:
        kept = read_part(place, "resources", part)
        return Loaded(_load(Resource, kept, part), Source.of(place.id, kept))

    def template(self, place: Place, part: PartName) -> Loaded[Template]:
        kept = read_part(place, "templates", part)
        return Loaded(_load(Template, kept, part), Source.of(place.id, kept))

    def rules(self, place: Place) -> Loaded[Rules] | None:
        path = place.rules()
        if path is None:
            return None
        kept = place.files.read(path)
        return Loaded(load(Rules, kept), Source.of(place.id, kept))

    def findings(self, place: Place) -> Iterator[Finding]:
        try:
            assembled = self._loader.assembled(place)
        except UnreadableDefinition as problem:
            yield from findings_of(problem)
        else:
            yield from _of_assembled(assembled)
        if place.id == META:
            yield from _attempt(partial(self.rules, place))
            yield from place.further_rules()
        for folder in OWN_PARTS:
            yield from self._of_folder(place, folder)

    def _of_folder(self, place: Place, folder: Folder) -> Iterator[Finding]:
        loaders: dict[str, Callable[[Place, PartName], Loaded[Any]]] = {
            "skills": self.skill,
            "resources": self.resource,
            "templates": self.template,
        }
        seen: dict[str, PartName] = {}
        try:
            parts = place.parts(folder)
            yield from place.misnamed(folder)
        except UnreadableDefinition as problem:
            yield from findings_of(problem)
            return
        for part in parts:
            yield from _attempt(partial(loaders[folder], place, part))
            # Resources are asked for by number: two of them may well have the same name.
            key = part.index.lstrip("0") or "0" if folder == "resources" and part.index else part.id
            first = seen.setdefault(key, part)
            if first is not part:
                path = place.path(place.folder(folder), part.file)
                sentence = f"`{key}` is also in {first.file}, which is used."
                yield error(path, "duplicate-id", sentence, "Rename one of the two files.")


def _of_assembled(assembled: Assembled) -> Iterator[Finding]:
    for findings in assembled.workflow.broken.values():
        yield from findings
    yield from assembled.findings
    yield from assembled.manifest.document().warnings
    for piece in assembled.origins.values():
        if piece.kept is not None:
            yield from piece.kept.document().warnings


def _attempt(read: Callable[[], Loaded[Any] | None]) -> Iterator[Finding]:
    try:
        loaded = read()
    except UnreadableDefinition as problem:
        yield from findings_of(problem)
    else:
        yield from loaded.source.document.warnings if loaded else ()


def _load(model: type[Text], kept: Kept, name: PartName) -> Text:
    return once(kept, model, lambda document: _text(model, document, name))


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
