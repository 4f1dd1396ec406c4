"""The tools of the orchestrator."""
