"""Workflow definitions: their models, readers, library, lint rules and drawings.

This module imports nothing: listing workflows must not load the models, and loading a model must not load the library.
"""

# The workflow that serves all others: its skills and resources are found from everywhere.
META = "meta"
TERMINAL = "__terminal__"
# Names that definitions use for the end of the workflow, unless an activity has that name.
TERMINAL_NAMES = frozenset({TERMINAL, "workflow-end", "end-workflow"})
