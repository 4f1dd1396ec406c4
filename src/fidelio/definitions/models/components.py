"""Models of the components of a workflow other than activities: skills, resources, templates and global rules."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from fidelio.definitions.models.base import Definition, Flag, Reference, Text, Version


class SkillInput(Definition):
    """An input of a skill."""

    id: Text = Field(description="Unique in the skill.")
    description: str | None = Field(default=None, description="What it is.")
    required: Flag = Field(default=True, description="Whether the skill cannot work without it.")
    default: Any = Field(default=None, description="Its default value.")


class OutputArtifact(Definition):
    """The file that contains an output."""

    name: Text = Field(description="The file name; `{variable}` is replaced.")
    action: Literal["create", "update"] = Field(default="create", description="Whether the file is new or changed.")


class SkillOutput(Definition):
    """An output of a skill."""

    id: Text = Field(description="Unique in the skill.")
    description: str | None = Field(default=None, description="What it is.")
    components: dict[str, Any] = Field(default={}, description="What it consists of.")
    artifact: OutputArtifact | None = Field(default=None, description="The file that contains it.")


class ToolGuide(Definition):
    """How the skill uses a tool."""

    when: str | None = Field(default=None, description="When to call it.")
    params: Any = Field(default=None, description="What to call it with.")
    returns: Any = Field(default=None, description="What comes back.")
    next: str | None = Field(default=None, description="What to call afterwards.")
    action: str | None = Field(default=None, description="What to do with the result.")
    usage: str | None = Field(default=None, description="How to use it well.")
    preserve: tuple[str, ...] = Field(default=(), description="What to keep of the result.")


class ErrorGuide(Definition):
    """What to do when something goes wrong."""

    cause: str | None = Field(default=None, description="Why it happens.")
    recovery: str | None = Field(default=None, description="What to do about it.")
    detection: str | None = Field(default=None, description="How to notice it.")
    resolution: tuple[str, ...] = Field(default=(), description="What to do about it, in steps.")
    note: str | None = Field(default=None, description="A remark.")


class Operation(Definition):
    """An operation that differs between agent programs."""

    description: str = Field(description="What is done.")
    inputs: tuple[dict[str, Any], ...] = Field(default=(), description="What it needs.")
    harness: dict[str, Any] = Field(default={}, description="How it is done, by agent program.")
    note: str | None = Field(default=None, description="A remark.")


class Skill(Definition):
    """`skills/{NN}-{id}`: instructions for an agent. Further keys of older files have no effect; they are served unchanged."""

    further_keys: ClassVar[frozenset[str]] = frozenset(
        [
            "architecture",
            "flow",
            "matching",
            "state",
            "state_structure",
            "numeric_format",
            "initialization",
            "update_patterns",
            "checkpoint_response_format",
            "decision_outcome_format",
            "history_event_types",
            "history_entry_format",
            "status_values",
            "interpretation",
            "resumption",
            "execution_pattern",
        ]
    )

    id: Text = Field(description="The name of the file without its number.")
    version: Version = Field(description="Three numbers, such as 1.0.0.")
    capability: Text = Field(description="What it enables an agent to do, in a sentence.")
    description: str | None = Field(default=None, description="More about it.")
    protocol: dict[str, tuple[str, ...]] = Field(default={}, description="Phases in order, each with what to do.")
    rules: dict[str, str | tuple[str, ...]] = Field(default={}, description="Rules by name.")
    inputs: tuple[SkillInput, ...] = Field(default=(), description="Its inputs.")
    output: tuple[SkillOutput, ...] = Field(default=(), description="Its outputs.")
    resources: tuple[Reference, ...] = Field(default=(), description="Resources to read: `03`, `workflow/03`, or a name.")
    tools: dict[str, ToolGuide] = Field(default={}, description="How it uses tools, by tool.")
    errors: dict[str, ErrorGuide] = Field(default={}, description="What to do when something goes wrong.")
    operations: dict[str, Operation] = Field(default={}, description="Operations that differ between agent programs.")


class Resource(Definition):
    """`resources/{NN}-{name}`: a text to read, with its front matter."""

    index: str = Field(description="The number in the file name; empty when it has none.")
    name: Text = Field(description="The file name without number and suffix.")
    id: str | None = Field(default=None, description="From the front matter.")
    version: str | None = Field(default=None, description="From the front matter.")
    title: str | None = Field(default=None, description="From the front matter, or the first heading.")
    front_matter: dict[str, Any] = Field(default={}, alias="frontMatter", description="All of the front matter.")
    content: str = Field(description="The text without its front matter.")


class Template(Resource):
    """`templates/{name}`: a text to fill in."""


class StructuredResource(Definition):
    """A resource in a data format instead of Markdown."""

    further_keys: ClassVar[None] = None

    id: Text = Field(description="Unique among the resources.")
    title: Text = Field(description="What it is called.")
    version: str | None = Field(default=None, description="Three numbers, such as 1.0.0.")
    purpose: str | None = Field(default=None, description="What it is for.")
    sections: Any = Field(default=None, description="Its content.")


class RulesSection(Definition):
    """A group of rules."""

    further_keys: ClassVar[None] = None

    id: Text = Field(description="Unique in the file.")
    title: Text = Field(description="What they are about.")
    priority: str | int | None = Field(default=None, description="Their priority over other rules.")
    rules: tuple[str, ...] = Field(default=(), description="The rules.")
    content: Any = Field(default=None, description="The rules as running text.")


class Rules(Definition):
    """`meta/rules`: rules for all workflows."""

    id: Text = Field(description="The name of the set.")
    version: str | None = Field(default=None, description="Three numbers, such as 1.0.0.")
    title: str | None = Field(default=None, description="What it is called.")
    description: str | None = Field(default=None, description="What it is for.")
    precedence: str | None = Field(default=None, description="What wins when rules contradict each other.")
    sections: tuple[RulesSection, ...] = Field(default=(), description="The rules, by subject.")
