"""What a definition may say, for all generations of workflow files.

One family of models serves every generation: what differs between them is accepted in both spellings and normalised on the way
in, so the rules above never ask how old a file is. Unknown keys are kept in `model_extra`: real files carry keys that newer
ones dropped, and a key that silently disappears is how a stage of a workflow gets lost. `unknown_keys` lists them for lint.

Files are written with the names of the aliases (`initialActivity`); Python code uses the attribute names (`initial_activity`).

What a workflow is read without has modules of its own and is imported from them: `skill`, `resource` and `workflow_file`.
"""

from fidelio.definitions.models.activity import (
    Action,
    Activity,
    ActivitySkills,
    Artifact,
    Branch,
    Checkpoint,
    Decision,
    Effect,
    Loop,
    Option,
    Step,
    Transition,
    Trigger,
)
from fidelio.definitions.models.base import Definition, unknown_keys
from fidelio.definitions.models.condition import And, Condition, Not, Operator, Or, Simple, variables_in
from fidelio.definitions.models.workflow import (
    ArtifactLocation,
    ExecutionModel,
    Manifest,
    Mode,
    Role,
    Variable,
    Workflow,
    WorkflowSkills,
)

__all__ = [
    "Action",
    "Activity",
    "ActivitySkills",
    "And",
    "Artifact",
    "ArtifactLocation",
    "Branch",
    "Checkpoint",
    "Condition",
    "Decision",
    "Definition",
    "Effect",
    "ExecutionModel",
    "Loop",
    "Manifest",
    "Mode",
    "Not",
    "Operator",
    "Option",
    "Or",
    "Role",
    "Simple",
    "Step",
    "Transition",
    "Trigger",
    "Variable",
    "Workflow",
    "WorkflowSkills",
    "unknown_keys",
    "variables_in",
]
