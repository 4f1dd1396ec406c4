"""Models of a workflow: its manifest, and the assembled workflow with its activities."""

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError

from fidelio.definitions.findings import Finding
from fidelio.definitions.models.activity import Activity, Loop
from fidelio.definitions.models.base import Definition, Flag, Text, Version


class Variable(Definition):
    """A value that the workflow stores and that conditions can use."""

    name: Text = Field(description="Unique in the workflow.")
    type: Literal["string", "number", "boolean", "array", "object"] = Field(description="What kind of value it holds.")
    description: str | None = Field(default=None, description="What it means.")
    default_value: Any = Field(default=None, alias="defaultValue", description="Its value until it is set.")
    required: Flag = Field(default=False, description="Whether the workflow cannot work without it.")


class Mode(Definition):
    """A variant of the workflow that a variable switches on."""

    id: Text = Field(description="Unique in the workflow.")
    name: Text = Field(description="What the mode is called.")
    description: str | None = Field(default=None, description="When it is for.")
    activation_variable: Text = Field(alias="activationVariable", description="The variable that switches it on when true.")
    recognition: tuple[str, ...] = Field(default=(), description="Phrases by which a person asks for it.")
    skip_activities: tuple[str, ...] = Field(default=(), alias="skipActivities", description="Activities to leave out.")
    defaults: dict[str, Any] = Field(default={}, description="Values that variables have in this mode.")
    resource: str | None = Field(default=None, description="Where to read more about it.")


def _wrap_path(value: object) -> object:
    return {"path": value} if isinstance(value, str) else value


class ArtifactLocation(Definition):
    """A directory for artifacts. A path alone is read as a location with this path."""

    path: Text = Field(description="A directory; `{variable}` is replaced.")
    description: str | None = Field(default=None, description="What it contains.")
    gitignored: Flag = Field(default=False, description="Whether version control leaves it out.")


class Role(Definition):
    """A role in the execution of a workflow."""

    id: Text = Field(description="Unique in the model.")
    description: str | None = Field(default=None, description="What the role does.")


class ExecutionModel(Definition):
    """The roles of the agents that execute the workflow."""

    roles: tuple[Role, ...] = Field(min_length=1, description="The roles of agents.")


class WorkflowSkills(Definition):
    """The skills of the workflow as a whole. A list of ids is read as supporting skills without a primary skill."""

    primary: str | None = Field(default=None, description="The skill that leads through the workflow.")
    supporting: tuple[str, ...] = Field(default=(), description="Further skills that help.")


def _wrap_skills(value: object) -> object:
    return {"supporting": value} if isinstance(value, list) else value


class WorkflowHead(Definition):
    """The keys of a workflow other than its activities."""

    schema_hint: str | None = Field(default=None, alias="$schema", description="For editors; not used.")
    id: Text = Field(description="The name of the directory or file.")
    version: Version = Field(description="Three numbers, such as 1.0.0.")
    title: Text = Field(description="What the workflow is called.")
    description: str | None = Field(default=None, description="What it is for.")
    author: str | None = Field(default=None, description="Who wrote it.")
    tags: tuple[str, ...] = Field(default=(), description="Words to find it by.")
    rules: tuple[str, ...] = Field(default=(), description="Rules that hold in every activity.")
    variables: tuple[Variable, ...] = Field(default=(), description="The variables of the workflow.")
    modes: tuple[Mode, ...] = Field(default=(), description="Variants of the workflow.")
    artifact_locations: dict[
        str, Annotated[ArtifactLocation, BeforeValidator(_wrap_path, json_schema_input_type=str | ArtifactLocation)]
    ] = Field(default={}, alias="artifactLocations", description="Where artifacts are put, by name.")
    skills: Annotated[
        WorkflowSkills, BeforeValidator(_wrap_skills, json_schema_input_type=WorkflowSkills | tuple[str, ...])
    ] = Field(default=WorkflowSkills.model_construct(), description="`{primary: id}`, or a list of ids.")
    execution_model: ExecutionModel | None = Field(
        default=None, alias="executionModel", description="The roles of the agents that execute the workflow."
    )
    initial_activity: str | None = Field(
        default=None,
        alias="initialActivity",
        description="The first activity. Without it, sessions can begin with any activity.",
    )
    answered_by: Literal["person", "proven"] | None = Field(
        default=None,
        description="`person`: no checkpoint takes an answer relayed by a model. `proven`: all take only signed answers.",
    )
    fidelity: Literal["advise", "enforce"] | None = Field(
        default=None, description="`advise` warns about a wrong move, `enforce` refuses it."
    )


class WorkflowManifest(WorkflowHead):
    """The manifest by itself, as the library reads it: activities have only names here, so it needs no model of them."""

    activities: tuple[Text, ...] = ()
    activities_dir: str | None = Field(default=None, alias="activitiesDir")


class Workflow(WorkflowHead):
    """A workflow with all its activities. Those that could not be read are missing, and named in `broken`."""

    activities: tuple[Activity, ...] = Field(default=(), description="All activities, in order.")
    broken: dict[str, tuple[Finding, ...]] = Field(default={}, description="Activities that are missing, and why.")

    @property
    def independent(self) -> bool:
        """Whether sessions can begin with any activity and end after it."""
        return self.initial_activity is None

    def activity(self, activity_id: str) -> Activity | None:
        return self._by_id.get(activity_id)

    @cached_property
    def _by_id(self) -> dict[str, Activity]:
        return {activity.id: activity for activity in reversed(self.activities)}

    @cached_property
    def activity_loops(self) -> tuple[tuple[str, Loop], ...]:
        """The loops that run through activities, each with the activity that it belongs to."""
        return tuple((activity.id, loop) for activity in self.activities for loop in activity.loops if loop.activities)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The default values of variables."""
        return {variable.name: variable.default_value for variable in self.variables if variable.default_value is not None}


def _tag_entry(value: object) -> str:
    return "file" if isinstance(value, str) else "activity"


_FileOrActivity = Annotated[Annotated[Text, Tag("file")] | Annotated[Activity, Tag("activity")], Discriminator(_tag_entry)]


class WorkflowFile(WorkflowHead):
    """The manifest: `workflow.toon`, `workflow.yaml` or `workflow.json`."""

    activities: tuple[_FileOrActivity, ...] = Field(
        default=(), description="Activities written out, or the names of files that hold them, also of other workflows."
    )
    activities_dir: str | None = Field(
        default=None, alias="activitiesDir", description="The directory of the activities, when it is not `activities`."
    )


def parse_snapshot(blob: bytes) -> Workflow | None:
    """Parse a stored definition; None if it does not have the form of this version."""
    try:
        return Workflow.model_validate_json(blob)
    except ValidationError:
        return None
