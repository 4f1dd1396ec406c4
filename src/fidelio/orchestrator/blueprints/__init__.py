"""What an agent is started from: read from the project, the user's home and the bundled library.

`search_path.open_blueprints` opens them all. It is not imported here: the processes of agents need the model and nothing else.
"""

from fidelio.orchestrator.blueprints.schemas import check_input, check_output

__all__ = ["check_input", "check_output"]
