"""Models of an activity: steps, checkpoints, decisions, loops and transitions."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from fidelio.definitions.models.base import Definition, Duration, Flag, Text, Version
from fidelio.definitions.models.condition import Condition


def _wrap_single(value: object) -> object:
    # Older files write a single trigger without the list around it.
    return [value] if isinstance(value, dict) else value


class Trigger(Definition):
    """Starts another workflow and waits for its end."""

    workflow: Text = Field(description="The id of the workflow to start.")
    description: str | None = Field(default=None, description="Why and when it is started.")
    pass_context: tuple[str, ...] = Field(
        default=(), alias="passContext", description="Variables that are copied into the child and back."
    )


# The input type is wider than the validated type; the schema for editors describes the input.
_TriggersInput = Trigger | tuple[Trigger, ...]
Triggers = Annotated[tuple[Trigger, ...], BeforeValidator(_wrap_single, json_schema_input_type=_TriggersInput)]


class Action(Definition):
    """An action on entry, on exit or within a step."""

    action: Literal["log", "validate", "set", "emit", "message"] = Field(description="What to do.")
    target: str | None = Field(default=None, description="What it is done to: a variable, a check, an event.")
    message: str | None = Field(default=None, description="The text to log or to say.")
    value: Any = Field(default=None, description="The value to set.")
    description: str | None = Field(default=None, description="A description of the action.")
    condition: Condition | None = Field(default=None, description="Only when this holds.")


class Artifact(Definition):
    """A file that the activity produces."""

    id: Text = Field(description="Unique in the activity.")
    name: Text = Field(description="The file name; `{variable}` is replaced.")
    location: str | None = Field(default=None, description="A key of the workflow's `artifactLocations`.")
    description: str | None = Field(default=None, description="What is in it.")
    action: Literal["create", "update"] = Field(default="create", description="Whether the file is new or changed.")


class Step(Definition):
    """A step of an activity. Steps are executed in order; a step whose condition does not hold is skipped."""

    id: Text = Field(description="Unique in the activity.")
    name: Text = Field(description="What the step is called.")
    description: str | None = Field(default=None, description="What to do.")
    skill: str | None = Field(default=None, description="The skill to use: its id, or `workflow/skill`.")
    checkpoint: str | None = Field(default=None, description="The checkpoint to answer before the step.")
    required: Flag = Field(default=True, description="Whether the step must be executed.")
    condition: Condition | None = Field(default=None, description="Only when this holds.")
    actions: tuple[Action, ...] = Field(default=(), description="Actions of the step.")
    triggers: Triggers = Field(default=(), description="Workflows that the step starts; one or a list.")
    skill_args: dict[str, StrictStr | StrictBool | StrictInt | StrictFloat] = Field(
        default={}, description="Arguments of the skill."
    )


class Effect(Definition):
    """The changes that choosing an option causes."""

    set_variable: dict[str, Any] = Field(default={}, alias="setVariable", description="Variables and their new values.")
    transition_to: str | None = Field(
        default=None, alias="transitionTo", description="The activity to go to, whatever the transitions say."
    )
    skip_activities: tuple[str, ...] = Field(default=(), alias="skipActivities", description="Activities to leave out.")


def _transition_inside_effect(value: object) -> object:
    # Older files have the target next to the effect. If it stayed there, the answer would be recorded without a transition.
    if not isinstance(value, dict) or "transitionTo" not in value or not isinstance(value.get("effect", {}), dict):
        return value
    rest = {key: item for key, item in value.items() if key != "transitionTo"}
    return rest | {"effect": {"transitionTo": value["transitionTo"]} | rest.get("effect", {})}


class Option(Definition):
    """An answer that a checkpoint offers. `transitionTo` next to `effect` is read as a part of it."""

    id: Text = Field(description="Unique in the checkpoint.")
    label: Text = Field(description="The answer as a person reads it.")
    description: str | None = Field(default=None, description="What choosing it means.")
    effect: Effect | None = Field(default=None, description="What choosing it changes.")


class Checkpoint(Definition):
    """A question that has to be answered before the work continues."""

    id: Text = Field(description="Unique in the activity.")
    name: Text = Field(description="What the checkpoint is called.")
    message: Text = Field(description="The question, as a person reads it.")
    options: tuple[Annotated[Option, BeforeValidator(_transition_inside_effect)], ...] = Field(
        min_length=1, description="The possible answers."
    )
    condition: Condition | None = Field(default=None, description="Asked only when this holds.")
    prerequisite: str | None = Field(default=None, description="What has to be done before it is asked, in words.")
    required: Flag = Field(default=True, description="Whether it must be answered before the activity ends.")
    blocking: Flag = Field(
        default=True, description="Whether it waits for an answer; a blocking checkpoint is never answered by its timer."
    )
    default_option: str | None = Field(
        default=None, alias="defaultOption", description="The answer that is chosen when the timer expires."
    )
    auto_advance_ms: Annotated[StrictInt, Field(gt=0)] | None = Field(
        default=None, alias="autoAdvanceMs", description="The timer, in milliseconds."
    )
    answered_by: Literal["person", "proven"] | None = Field(
        default=None,
        description="`person`: an answer relayed by a model is refused. `proven`: an answer is signed with a registered key.",
    )


class Branch(Definition):
    """A possible result of a decision."""

    id: Text = Field(description="Unique in the decision.")
    label: Text = Field(description="The branch as a person reads it.")
    condition: Condition | None = Field(default=None, description="Taken when this holds.")
    transition_to: str | None = Field(
        default=None, alias="transitionTo", description="The activity to go to; without it the workflow ends there."
    )
    is_default: Flag = Field(default=False, alias="isDefault", description="Taken when no other branch is.")


class Decision(Definition):
    """A choice between branches by the values of variables, without a question to a person."""

    id: Text = Field(description="Unique in the activity.")
    name: Text = Field(description="What is decided.")
    description: str | None = Field(default=None, description="How it is decided, in words.")
    branches: tuple[Branch, ...] = Field(min_length=2, description="The first whose condition holds is taken.")


class Loop(Definition):
    """Steps that are repeated."""

    id: Text = Field(description="Unique in the activity.")
    name: Text = Field(description="What the loop is called.")
    type: Literal["forEach", "while", "doWhile"] = Field(description="Over a list, test first, or test afterwards.")
    description: str | None = Field(default=None, description="What is repeated and why.")
    variable: str | None = Field(default=None, description="The name of the item in each iteration.")
    over: str | None = Field(default=None, description="The variable with the list.")
    condition: Condition | None = Field(default=None, description="Continues while this holds.")
    break_condition: Condition | None = Field(default=None, alias="breakCondition", description="Stops when this holds.")
    max_iterations: Annotated[StrictInt, Field(gt=0)] = Field(
        default=100, alias="maxIterations", description="The maximum number of iterations."
    )
    steps: tuple[Step, ...] = Field(default=(), description="The steps of each iteration.")
    activities: tuple[str, ...] = Field(default=(), description="The activities of each iteration.")


class Transition(Definition):
    """A transition to the next activity. The first whose condition holds is taken, else the default."""

    to: Text = Field(description="The id of the next activity, or a name that ends the workflow.")
    condition: Condition | None = Field(default=None, description="Taken when this holds.")
    is_default: Flag = Field(default=False, alias="isDefault", description="Taken when no other transition is.")


class ActivitySkills(Definition):
    """The skills an activity needs."""

    primary: str | None = Field(default=None, description="The skill that leads through the activity.")
    supporting: tuple[str, ...] = Field(default=(), description="Further skills that help.")


class Activity(Definition):
    """An activity of a workflow: `activities/{NN}-{id}`."""

    id: Text = Field(description="Unique in the workflow.")
    version: Version = Field(description="Three numbers, such as 1.0.0.")
    name: Text = Field(description="What the activity is called.")
    description: str | None = Field(default=None, description="What happens in it.")
    problem: str | None = Field(default=None, description="The problem that it solves.")
    recognition: tuple[str, ...] = Field(default=(), description="Phrases by which a person asks for it.")
    skills: ActivitySkills = Field(default=ActivitySkills.model_construct(), description="The skills it needs.")
    steps: tuple[Step, ...] = Field(default=(), description="What to do, in order.")
    checkpoints: tuple[Checkpoint, ...] = Field(default=(), description="Questions to people.")
    decisions: tuple[Decision, ...] = Field(default=(), description="Choices by the values of variables.")
    loops: tuple[Loop, ...] = Field(default=(), description="Steps that are repeated.")
    transitions: tuple[Transition, ...] = Field(default=(), description="Transitions to the next activity, in order.")
    triggers: Triggers = Field(default=(), description="Workflows that the activity starts; one or a list.")
    entry_actions: tuple[Action, ...] = Field(default=(), alias="entryActions", description="Done on entry.")
    exit_actions: tuple[Action, ...] = Field(default=(), alias="exitActions", description="Done on exit.")
    outcome: tuple[str, ...] = Field(default=(), description="What is true when it is done.")
    context_to_preserve: tuple[str, ...] = Field(default=(), description="Information to keep for later activities.")
    rules: tuple[str, ...] = Field(default=(), description="Rules that hold in this activity.")
    notes: tuple[str, ...] = Field(default=(), description="Remarks; older files write their rules here.")
    required: Flag = Field(default=True, description="Whether the activity must be executed.")
    estimated_time: Duration | None = Field(default=None, alias="estimatedTime", description="Such as `10-20m` or `1h`.")
    artifacts: tuple[Artifact, ...] = Field(default=(), description="Files that it produces.")
    artifact_prefix: str | None = Field(
        default=None, alias="artifactPrefix", description="Put before artifact names; the number in the file name wins."
    )
    owner: str | None = Field(
        default=None, alias="ownerWorkflow", description="The workflow whose directory holds the file; set on loading."
    )

    @property
    def loop_steps(self) -> tuple[Step, ...]:
        return tuple([step for loop in self.loops for step in loop.steps]) if self.loops else ()

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """The steps of the activity, then those of its loops."""
        return (*self.steps, *self.loop_steps) if self.loops else self.steps
