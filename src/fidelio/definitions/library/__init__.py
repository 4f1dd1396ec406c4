"""Finds workflows and their parts in several places, and reads each file once.

`Library` is what the rest of the product talks to. It may be shared by the tasks of one thread; with several threads it stays
correct but may read a file twice.
"""

from fidelio.definitions.library.files import Source
from fidelio.definitions.library.identifiers import PartName
from fidelio.definitions.library.library import Library, Part, Version
from fidelio.definitions.library.listing import Entry
from fidelio.definitions.library.locations import Folder, Root

__all__ = ["Entry", "Folder", "Library", "Part", "PartName", "Root", "Source", "Version"]
