"""The manifest of a workflow as people write it. Schemas for editors are made from it; the library reads with `Manifest`."""

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from fidelio.definitions.models.activity import Activity
from fidelio.definitions.models.base import Text
from fidelio.definitions.models.workflow import Head


def _file_or_activity(value: object) -> str:
    return "file" if isinstance(value, str) else "activity"


_FileOrActivity = Annotated[
    Annotated[Text, Tag("file")] | Annotated[Activity, Tag("activity")], Discriminator(_file_or_activity)
]


class WorkflowFile(Head):
    """The manifest: `workflow.toon`, `workflow.yaml` or `workflow.json`."""

    activities: tuple[_FileOrActivity, ...] = Field(
        default=(), description="Activities written out, or the names of files that hold them, also of other workflows."
    )
    activities_dir: str | None = Field(
        default=None, alias="activitiesDir", description="The directory of the activities, when it is not `activities`."
    )
