"""Models of definition files, for all generations of workflow files.

One family of models serves every generation: differences are accepted in both spellings and normalized on input, so other code
does not depend on the age of a file. Unknown keys are kept in `model_extra`, because real files contain keys that newer ones
dropped, and a key must not disappear silently. `list_unknown_keys` lists them for lint.

Files use the aliases (`initialActivity`); Python code uses the attribute names (`initial_activity`).

Models that are not needed to load a workflow are imported from their own modules: `skill` and `resource`.
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
from fidelio.definitions.models.base import Definition, list_known_keys, list_unknown_keys
from fidelio.definitions.models.condition import And, Condition, Not, Operator, Or, Simple
from fidelio.definitions.models.workflow import (
    ArtifactLocation,
    ExecutionModel,
    Mode,
    Role,
    Variable,
    Workflow,
    WorkflowManifest,
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
    "WorkflowManifest",
    "WorkflowSkills",
    "list_known_keys",
    "list_unknown_keys",
]
