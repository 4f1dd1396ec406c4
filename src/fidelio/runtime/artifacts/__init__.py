"""Files that describe a session inside of its own sandbox, at /runtime and /workspace/.openboa-runtime, read-only there.

An agent that works with files reads them in place of calling tools. They are projections of the record and are never read back.
They never hold a value of a variable, a secret or a path of the host.
"""

from fidelio.runtime.artifacts.session_files import write_artifacts
from fidelio.runtime.artifacts.state_files import ArtifactState, write_state_artifacts

__all__ = ["ArtifactState", "write_artifacts", "write_state_artifacts"]
