"""Fidelio makes AI agents follow a workflow, and proves that they did.

Importing the package loads nothing heavy: a server that an agent starts over stdio must answer before pydantic, click or a
database driver could have been imported. `tests/test_imports.py` holds it to that.
"""

__version__ = "0.1.0"
