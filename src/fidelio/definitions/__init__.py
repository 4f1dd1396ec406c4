"""Workflow files: what they may say, how they are read, and where they are found.

Nothing is imported here. Listing workflows must not pay for the models, and reading a model must not pay for the library.
"""

# The workflow that serves all others: its skills and resources are found from everywhere.
META = "meta"
