"""Load the components of a workflow other than activities: skills, resources, templates and global rules.

Imported when one of them is needed, because their models take half as long to import as those of workflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, TypeVar

from fidelio.definitions import META
from fidelio.definitions.findings import Finding, error
from fidelio.definitions.library.assembly import COMPONENT_FOLDERS, AssembledWorkflow, WorkflowLoader, list_local_findings
from fidelio.definitions.library.files import DefinitionSource, FileContent
from fidelio.definitions.library.identifiers import ComponentName, parse_component_name
from fidelio.definitions.library.loading import LoadedDefinition, get_findings, load_model, load_once
from fidelio.definitions.library.locations import ComponentFolder, WorkflowLocation, read_component
from fidelio.definitions.models.components import Resource, Rules, Skill, StructuredResource, Template
from fidelio.definitions.parsing import validate
from fidelio.definitions.reading.document import ParsedDocument, read_text
from fidelio.errors import UnreadableDefinition

Text = TypeVar("Text", Resource, Template)


class ComponentLoader:
    """Loads components of workflows and lists their findings."""

    def __init__(self, loader: WorkflowLoader) -> None:
        self._loader = loader

    def skill(self, location: WorkflowLocation, component: ComponentName) -> LoadedDefinition[Skill]:
        content = read_component(location, "skills", component)
        return LoadedDefinition(load_model(Skill, content), DefinitionSource.of(location.id, content))

    def resource(self, location: WorkflowLocation, component: ComponentName) -> LoadedDefinition[Resource]:
        content = read_component(location, "resources", component)
        return LoadedDefinition(_load_text(Resource, content, component), DefinitionSource.of(location.id, content))

    def template(self, location: WorkflowLocation, component: ComponentName) -> LoadedDefinition[Template]:
        content = read_component(location, "templates", component)
        return LoadedDefinition(_load_text(Template, content, component), DefinitionSource.of(location.id, content))

    def rules(self, location: WorkflowLocation) -> LoadedDefinition[Rules] | None:
        path = location.rules()
        if path is None:
            return None
        content = location.files.read(path)
        return LoadedDefinition(load_model(Rules, content), DefinitionSource.of(location.id, content))

    def findings(self, location: WorkflowLocation) -> Iterator[Finding]:
        try:
            assembled = self._loader.load(location)
        except UnreadableDefinition as problem:
            yield from get_findings(problem)
            yield from list_local_findings(location)
        else:
            yield from _list_activity_findings(assembled)
        if location.id == META:
            yield from _try_reading(partial(self.rules, location))
            yield from location.find_hidden_rules()
        for folder in COMPONENT_FOLDERS:
            yield from self._find_in_folder(location, folder)

    def _find_in_folder(self, location: WorkflowLocation, folder: ComponentFolder) -> Iterator[Finding]:
        loaders: dict[str, Callable[[WorkflowLocation, ComponentName], LoadedDefinition[Any]]] = {
            "skills": self.skill,
            "resources": self.resource,
            "templates": self.template,
        }
        seen: dict[str, ComponentName] = {}
        try:
            components = location.components(folder)
            yield from location.find_misnamed(folder)
        except UnreadableDefinition as problem:
            yield from get_findings(problem)
            return
        for component in components:
            yield from _try_reading(partial(loaders[folder], location, component))
            # Resources are looked up by number, so two of them may have the same name.
            key = component.index.lstrip("0") or "0" if folder == "resources" and component.index else component.id
            first = seen.setdefault(key, component)
            if first is not component:
                path = location.path(location.folder(folder), component.file)
                sentence = f"`{key}` is also in {first.file}, which is used."
                yield error(path, "duplicate-id", sentence, "Rename one of the two files.")


def _list_activity_findings(assembled: AssembledWorkflow) -> Iterator[Finding]:
    for findings in assembled.workflow.broken.values():
        yield from findings
    yield from assembled.findings
    yield from assembled.manifest.document().warnings
    for source in assembled.origins.values():
        if source.content is not None:
            yield from source.content.document().warnings


def _try_reading(read: Callable[[], LoadedDefinition[Any] | None]) -> Iterator[Finding]:
    try:
        loaded = read()
    except UnreadableDefinition as problem:
        yield from get_findings(problem)
    else:
        yield from loaded.source.document.warnings if loaded else ()


def parse_component(kind: Literal["skill", "resource", "template"], owner: str, file: str, text: str) -> LoadedDefinition[Any]:
    """Parse a component from its text; `file` is the name of the file that had it."""
    document, name = read_text(text, file), parse_component_name(file) or ComponentName(file, "", file, "markdown")
    if kind == "skill":
        definition: Any = validate(Skill, document)
    else:
        definition = _parse_text(Resource if kind == "resource" else Template, document, name)
    return LoadedDefinition(definition, DefinitionSource(owner, file, document))


def _load_text(model: type[Text], content: FileContent, name: ComponentName) -> Text:
    return load_once(content, model, lambda document: _parse_text(model, document, name))


def _parse_text(model: type[Text], document: ParsedDocument, name: ComponentName) -> Text:
    from fidelio.definitions.reading.markdown import find_first_heading  # noqa: PLC0415  # brings YAML, which workflows may do without

    front, content = _split_front_matter(document)
    return model.model_validate(
        {
            "index": name.index,
            "name": name.id,
            "id": _to_text(front.get("id")),
            "version": _to_text(front.get("version")),
            "title": _to_text(front.get("title")) or find_first_heading(content),
            "frontMatter": front,
            "content": content,
        }
    )


def _split_front_matter(document: ParsedDocument) -> tuple[dict[str, Any], str]:
    if document.format == "markdown":
        return document.data["front"], document.data["body"]
    about = validate(StructuredResource, document)
    return {"id": about.id, "version": about.version, "title": about.title}, document.text


def _to_text(value: object) -> str | None:
    return None if value is None or isinstance(value, (dict, list)) else str(value)
