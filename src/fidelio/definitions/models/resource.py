"""Models of the texts of a workflow: resources, templates and global rules."""

from typing import Any, ClassVar

from pydantic import Field

from fidelio.definitions.models.base import Definition, Text


class Resource(Definition):
    """`resources/{NN}-{name}`: a text to read, with what its front matter says about it."""

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
    """A resource that is written as data and not as Markdown."""

    further_keys: ClassVar[None] = None

    id: Text = Field(description="Unique among the resources.")
    title: Text = Field(description="What it is called.")
    version: str | None = Field(default=None, description="Three numbers, such as 1.0.0.")
    purpose: str | None = Field(default=None, description="What it is for.")
    sections: Any = Field(default=None, description="Its content.")


class RulesSection(Definition):
    """Rules that belong together."""

    further_keys: ClassVar[None] = None

    id: Text = Field(description="Unique in the file.")
    title: Text = Field(description="What they are about.")
    priority: str | int | None = Field(default=None, description="How heavily they weigh.")
    rules: tuple[str, ...] = Field(default=(), description="The rules.")
    content: Any = Field(default=None, description="The rules as running text.")


class Rules(Definition):
    """`meta/rules`: what holds in every workflow."""

    id: Text = Field(description="The name of the set.")
    version: str | None = Field(default=None, description="Three numbers, such as 1.0.0.")
    title: str | None = Field(default=None, description="What it is called.")
    description: str | None = Field(default=None, description="What it is for.")
    precedence: str | None = Field(default=None, description="What wins when rules contradict each other.")
    sections: tuple[RulesSection, ...] = Field(default=(), description="The rules, by subject.")
