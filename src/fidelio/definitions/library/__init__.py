"""The library: find workflows and their components in several roots, and read each file once.

`Library` is what the rest of the product talks to. It may be shared by the tasks of one thread; with several threads it stays
correct but may read a file twice.
"""

from fidelio.definitions.library.files import DefinitionSource
from fidelio.definitions.library.identifiers import ComponentName
from fidelio.definitions.library.library import ComponentKind, Library, WorkflowVersion
from fidelio.definitions.library.listing import WorkflowSummary
from fidelio.definitions.library.locations import ComponentFolder, Root

__all__ = [
    "ComponentFolder",
    "ComponentKind",
    "ComponentName",
    "DefinitionSource",
    "Library",
    "Root",
    "WorkflowSummary",
    "WorkflowVersion",
]
