"""The library as its users see it: ask by id, get a definition, or an error that says what to do.

Nothing is read before it is asked for, and nothing is parsed again before it has changed on disk.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fidelio.definitions import META
from fidelio.definitions.library.files import Source, digest_of
from fidelio.definitions.library.identifiers import PartName, checked_id, near
from fidelio.definitions.library.listing import Entry, entry
from fidelio.definitions.library.locations import Folder, Places, Root
from fidelio.definitions.library.lookup import find_part
from fidelio.errors import PartNotFound, UnreadableDefinition, WorkflowNotFound

if TYPE_CHECKING:
    from fidelio.definitions.findings import Finding
    from fidelio.definitions.library.assembly import Assembled, Loader
    from fidelio.definitions.library.components import Parts
    from fidelio.definitions.library.loading import Loaded
    from fidelio.definitions.models import Activity, Workflow
    from fidelio.definitions.models.resource import Resource, Rules, Template
    from fidelio.definitions.models.skill import Skill

Part = Literal["workflow", "activity", "skill", "resource", "template", "rules"]


class Version(NamedTuple):
    """One state of a workflow: every byte of its files is in the hash. `source` gives the text of an activity.

    `out_of_reach`: the system does not give a file of it, so what is missing may be there.
    """

    workflow: Workflow
    hash: str
    source: Callable[[str], Source]
    out_of_reach: bool = False


class Library:
    """Workflows from several roots, in order of increasing weight: the last root that has an id has it whole.

    `absent` are roots that belong to them and had no directory when this was opened. Nothing is looked for there.
    """

    def __init__(self, roots: Sequence[Root], *, absent: Sequence[Root] = ()) -> None:
        self.roots = tuple(roots)
        self.absent = tuple(absent)
        self._places = Places(self.roots)

    @cached_property
    def _loader(self) -> Loader:
        # The models cost a tenth of a second to import, and a list does not need them.
        from fidelio.definitions.library.assembly import Loader  # noqa: PLC0415  see above

        return Loader(self._places)

    @cached_property
    def _parts(self) -> Parts:
        # A session starts without the models of skills and texts.
        from fidelio.definitions.library.components import Parts  # noqa: PLC0415  see above

        return Parts(self._loader)

    def list(self) -> tuple[Entry, ...]:
        """Every workflow, also those that cannot be loaded; only manifests are read."""
        return tuple(entry(place) for place in self._places.all().values())

    def entry(self, workflow: str) -> Entry:
        return entry(self._places.find(workflow))

    def root(self, workflow: str) -> Root:
        """The one that has it."""
        return self._places.find(workflow).root

    def workflow(self, workflow: str) -> Workflow:
        """The workflow with all activities that can be read; `broken` names the others."""
        return self._assembled(workflow).workflow

    def activity(self, workflow: str, activity: str) -> Activity:
        assembled, name = self._assembled(workflow), checked_id(activity, "an activity")
        found = assembled.workflow.activity(name)
        if found is not None:
            return found
        if name in assembled.workflow.broken:
            raise UnreadableDefinition(assembled.workflow.broken[name])
        known = [known.id for known in assembled.workflow.activities]
        remedy = near(name, known) or f"Its activities are {', '.join(known)}."
        raise PartNotFound(f"Activity not found: {name} in workflow {assembled.place.id}.", remedy=remedy)

    def skill(self, reference: str, *, workflow: str, owner: str | None = None) -> Loaded[Skill]:
        """`owner` is the workflow that owns the activity from which the skill is asked for."""
        place, part = find_part(self._places, "skills", reference, workflow=workflow, after=(owner,))
        return self._parts.skill(place, part)

    def resource(self, reference: str, *, workflow: str, last_skill_owner: str | None = None) -> Loaded[Resource]:
        """By number (`3`, `03`) or by name; `last_skill_owner` is the workflow of the skill that was loaded last."""
        place, part = find_part(self._places, "resources", reference, workflow=workflow, after=(last_skill_owner,))
        return self._parts.resource(place, part)

    def template(self, reference: str, *, workflow: str, owner: str | None = None) -> Loaded[Template]:
        place, part = find_part(self._places, "templates", reference, workflow=workflow, after=(owner,))
        return self._parts.template(place, part)

    def templates(self, workflow: str) -> tuple[PartName, ...]:
        return self.parts("templates", workflow)

    def parts(self, folder: Folder, workflow: str) -> tuple[PartName, ...]:
        """The names of a workflow's own files of one kind, in order. Nothing is read."""
        return self._places.find(workflow).parts(folder)

    def rules(self) -> Loaded[Rules] | None:
        """The rules that hold in every workflow, where the library has such a file."""
        try:
            return self._parts.rules(self._places.find(META))
        except WorkflowNotFound:
            return None

    def source(self, part: Part, reference: str = "", *, workflow: str, owner: str | None = None) -> Source:
        """The text of any part: `content` byte for byte, `toon` as TOON."""
        if part == "workflow":
            place = self._places.find(workflow)
            return Source.of(place.id, place.read_manifest())
        if part == "activity":
            return self._assembled(workflow).source(self.activity(workflow, reference).id)
        if part == "rules":
            rules = self.rules()
            if rules is None:
                raise PartNotFound("This library has no global rules.", remedy="Add `meta/rules.yaml`.")
            return rules.source
        return self._text(part, reference, workflow, owner)

    def _text(self, part: Part, reference: str, workflow: str, owner: str | None) -> Source:
        if part == "skill":
            return self.skill(reference, workflow=workflow, owner=owner).source
        if part == "resource":
            return self.resource(reference, workflow=workflow, last_skill_owner=owner).source
        return self.template(reference, workflow=workflow, owner=owner).source

    def toon(self, part: Part, reference: str = "", *, workflow: str, owner: str | None = None) -> str:
        return self.source(part, reference, workflow=workflow, owner=owner).toon

    def content_hash(self, workflow: str) -> str:
        """Changes with every byte of every file that the workflow is made of, borrowed activities included."""
        return self._places.memo.remembered(("hash", workflow), lambda: self._hash(workflow))

    def _hash(self, workflow: str) -> str:
        lines = sorted(f"{name}\0{digest}\n" for name, digest in self._loader.contents(self._places.find(workflow)))
        return digest_of("".join(lines).encode())

    def version(self, workflow: str) -> Version:
        """The workflow and its hash, for the price of one look at its files."""
        return self._places.memo.remembered(("version", workflow), lambda: self._version(workflow))

    def _version(self, workflow: str) -> Version:
        assembled = self._assembled(workflow)
        return Version(assembled.workflow, self.content_hash(workflow), assembled.source, assembled.out_of_reach)

    def snapshot(self, workflow: str) -> dict[str, Any]:
        """The parsed definition as JSON, complete with defaults, so that a replay does not depend on later ones."""
        return self._assembled(workflow).snapshot()

    def root_findings(self) -> tuple[Finding, ...]:
        """What a list leaves out: roots that cannot be listed, names nobody can ask for, and files that others hide."""
        return tuple(sorted(set(self._places.findings())))

    def findings(self) -> tuple[Finding, ...]:
        """Everything that is wrong with any file. Reads the whole library."""
        found: builtins.list[Finding] = self._places.findings()
        for place in self._places.all().values():
            found.extend(self._parts.findings(place))
        return tuple(sorted(set(found)))

    def _assembled(self, workflow: str) -> Assembled:
        return self._places.memo.remembered(
            ("assembled", workflow), lambda: self._loader.assembled(self._places.find(workflow))
        )
