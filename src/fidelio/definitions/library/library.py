"""The library of workflow definitions: look up definitions by id.

Files are read when they are needed and parsed again only when they have changed on disk.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from fidelio.definitions import META
from fidelio.definitions.library.files import DefinitionSource, compute_digest
from fidelio.definitions.library.identifiers import ComponentName, check_id, suggest_names
from fidelio.definitions.library.listing import WorkflowSummary, summarize_workflow
from fidelio.definitions.library.locations import ComponentFolder, Root, WorkflowLocations, find_component
from fidelio.definitions.library.memo import Memo
from fidelio.errors import ComponentNotFound, DefinitionError, UnreadableDefinition, WorkflowNotFound

if TYPE_CHECKING:
    from fidelio.definitions.findings import Finding
    from fidelio.definitions.library.assembly import AssembledWorkflow, WorkflowLoader
    from fidelio.definitions.library.components import ComponentLoader
    from fidelio.definitions.library.loading import LoadedDefinition
    from fidelio.definitions.models import Activity, Workflow
    from fidelio.definitions.models.components import Resource, Rules, Skill, Template

# Nobody notices this delay after a change. Checking the files of a list of 500 workflows takes 10 ms.
LISTING_MAX_AGE = 0.25

T = TypeVar("T")
ComponentKind = Literal["workflow", "activity", "skill", "resource", "template", "rules"]


class WorkflowVersion(NamedTuple):
    """A version of a workflow: the hash covers all its files. `source` returns the file of an activity."""

    workflow: Workflow
    hash: str
    source: Callable[[str], DefinitionSource]


class Library:
    """Workflows from several roots, in order of increasing precedence: the last root that has an id provides the workflow."""

    def __init__(
        self, roots: Sequence[Root], *, untrusted: Sequence[Root] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Open the library. `clock` returns seconds; it decides how old a list is.

        `untrusted` roots provide nothing. They are only looked at to say why a workflow is not found.
        """
        self.roots = tuple(roots)
        self.untrusted = tuple(untrusted)
        self._locations = WorkflowLocations(self.roots, Memo(clock), self.untrusted)

    @cached_property
    def _loader(self) -> WorkflowLoader:
        # Importing the models takes 0.1 s, and listing does not need them.
        from fidelio.definitions.library.assembly import WorkflowLoader  # noqa: PLC0415  # brings pydantic, which a list of workflows does without

        return WorkflowLoader(self._locations)

    @cached_property
    def _components(self) -> ComponentLoader:
        # Starting a session does not need the models of skills and texts.
        from fidelio.definitions.library.components import ComponentLoader  # noqa: PLC0415  # brings pydantic, which a list of workflows does without

        return ComponentLoader(self._loader)

    def list(self) -> tuple[WorkflowSummary, ...]:
        """All workflows, including those that cannot be loaded; only manifests are read. The list may be 250 ms old."""
        return self._locations.memo.get_or_make("list", lambda _: self._list(), max_age=LISTING_MAX_AGE)

    def _list(self) -> tuple[WorkflowSummary, ...]:
        return tuple(summarize_workflow(location) for location in self._locations.all().values())

    def checked_list(self) -> tuple[WorkflowSummary, ...]:
        """The list with the findings of the models, too, so that it says which workflows cannot be started.

        It is the same object as long as no manifest has changed, and may be 250 ms old.
        """
        return self._locations.memo.get_or_make("checked list", self._check_list, max_age=LISTING_MAX_AGE)

    def _check_list(self, earlier: tuple[WorkflowSummary, ...] | None) -> tuple[WorkflowSummary, ...]:
        locations = self._locations.all().values()
        found = tuple(self._loader.check(summarize_workflow(location), location) for location in locations)
        return earlier if earlier == found else found

    def remember(self, key: str, make: Callable[[], T]) -> T:
        """What `make` finds out from the definitions; made again only after a change of a file that it has read."""
        return self._locations.memo.get_or_make(("remembered", key), lambda _: make())

    def entry(self, workflow: str) -> WorkflowSummary:
        return summarize_workflow(self._locations.find(workflow))

    def root(self, workflow: str) -> Root:
        """The root that provides the workflow."""
        return self._locations.find(workflow).root

    def path(self, workflow: str) -> Path:
        """The directory of the workflow, or its file if it is a single file."""
        location = self._locations.find(workflow)
        return Path(location.files.root, location.directory or location.manifest)

    def workflow(self, workflow: str) -> Workflow:
        """The workflow with all readable activities; `broken` names the others."""
        return self._assembled(workflow).workflow

    def activity(self, workflow: str, activity: str) -> Activity:
        assembled, name = self._assembled(workflow), check_id(activity, "an activity")
        found = assembled.workflow.activity(name)
        if found is not None:
            return found
        if name in assembled.workflow.broken:
            raise UnreadableDefinition(assembled.workflow.broken[name])
        known = [known.id for known in assembled.workflow.activities]
        remedy = suggest_names(name, known) or f"Its activities are {', '.join(known)}."
        raise ComponentNotFound(f"Activity not found: {name} in workflow {assembled.location.id}.", remedy=remedy)

    def skill(self, reference: str, *, workflow: str, owner: str | None = None) -> LoadedDefinition[Skill]:
        """Look up a skill; `owner` is the workflow of the activity that uses it."""
        location, component = find_component(self._locations, "skills", reference, workflow=workflow, after=(owner,))
        return self._components.skill(location, component)

    def resource(self, reference: str, *, workflow: str, last_skill_owner: str | None = None) -> LoadedDefinition[Resource]:
        """Look up a resource by number (`3`, `03`) or name; `last_skill_owner` is the workflow of the skill loaded last."""
        location, component = find_component(
            self._locations, "resources", reference, workflow=workflow, after=(last_skill_owner,)
        )
        return self._components.resource(location, component)

    def template(self, reference: str, *, workflow: str, owner: str | None = None) -> LoadedDefinition[Template]:
        location, component = find_component(self._locations, "templates", reference, workflow=workflow, after=(owner,))
        return self._components.template(location, component)

    def templates(self, workflow: str) -> tuple[ComponentName, ...]:
        return self.components("templates", workflow)

    def components(self, folder: ComponentFolder, workflow: str) -> tuple[ComponentName, ...]:
        """The names of the workflow's components of a kind, in order. No file is read."""
        return self._locations.find(workflow).components(folder)

    def resource_problems(self, workflow: str) -> Mapping[str, str]:
        """The numbers of a workflow's resources, each with the reason why it cannot be read, empty if it can."""
        return self._locations.memo.get_or_make(("resources", workflow), lambda _: dict(self._check_resources(workflow)))

    def _check_resources(self, workflow: str) -> Iterator[tuple[str, str]]:
        try:
            components = self.components("resources", workflow)
        except DefinitionError:
            return
        for component in components:
            number = component.index or component.id
            try:
                self.resource(f"{workflow}/{number}", workflow=workflow)
            except DefinitionError as problem:
                yield number, problem.sentence
            else:
                yield number, ""

    def rules(self) -> LoadedDefinition[Rules] | None:
        """The rules for all workflows, if the library has such a file."""
        try:
            return self._components.rules(self._locations.find(META))
        except WorkflowNotFound:
            return None

    def source(
        self, component: ComponentKind, reference: str = "", *, workflow: str, owner: str | None = None
    ) -> DefinitionSource:
        """The file of a component: `content` are its bytes, `toon` its text as TOON."""
        if component == "workflow":
            location = self._locations.find(workflow)
            return DefinitionSource.of(location.id, location.read_manifest())
        if component == "activity":
            return self._assembled(workflow).source(self.activity(workflow, reference).id)
        if component == "rules":
            rules = self.rules()
            if rules is None:
                raise ComponentNotFound("This library has no global rules.", remedy="Add `meta/rules.yaml`.")
            return rules.source
        return self._text(component, reference, workflow, owner)

    def _text(self, component: ComponentKind, reference: str, workflow: str, owner: str | None) -> DefinitionSource:
        if component == "skill":
            return self.skill(reference, workflow=workflow, owner=owner).source
        if component == "resource":
            return self.resource(reference, workflow=workflow, last_skill_owner=owner).source
        return self.template(reference, workflow=workflow, owner=owner).source

    def toon(self, component: ComponentKind, reference: str = "", *, workflow: str, owner: str | None = None) -> str:
        return self.source(component, reference, workflow=workflow, owner=owner).toon

    def content_hash(self, workflow: str) -> str:
        """A hash of all files of the workflow, including borrowed activities."""
        return self._locations.memo.get_or_make(("hash", workflow), lambda _: self._hash(workflow))

    def _hash(self, workflow: str) -> str:
        lines = sorted(f"{name}\0{digest}\n" for name, digest in self._loader.contents(self._locations.find(workflow)))
        return compute_digest("".join(lines).encode())

    def version(self, workflow: str) -> WorkflowVersion:
        """The workflow and its hash, with a single check of its files."""
        return self._locations.memo.get_or_make(("version", workflow), lambda _: self._version(workflow))

    def _version(self, workflow: str) -> WorkflowVersion:
        assembled = self._assembled(workflow)
        return WorkflowVersion(assembled.workflow, self.content_hash(workflow), assembled.source)

    def snapshot(self, workflow: str) -> dict[str, Any]:
        """The parsed definition as JSON with all defaults, so that a replay does not depend on later files."""
        return self._assembled(workflow).snapshot()

    def root_findings(self) -> tuple[Finding, ...]:
        """Findings that a list omits: inaccessible roots, invalid names, and hidden files."""
        return tuple(sorted(set(self._locations.findings())))

    def findings(self, workflow: str | None = None) -> tuple[Finding, ...]:
        """The findings of all files, or of the files of a workflow. Reads these files."""
        found: builtins.list[Finding] = self._locations.findings()
        for location in self._locations.all().values() if workflow is None else (self._locations.find(workflow),):
            found.extend(self._components.findings(location))
        return tuple(sorted(set(found)))

    def _assembled(self, workflow: str) -> AssembledWorkflow:
        return self._loader.load(self._locations.find(workflow))
