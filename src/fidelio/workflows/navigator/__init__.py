"""The navigator: the server offers the possible moves of a workflow session and accepts only those."""
