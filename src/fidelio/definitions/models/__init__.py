"""What a definition may say, for all generations of workflow files.

One family of models serves every generation: what differs between them is accepted in both spellings and normalised on the way
in, so the rules above never ask how old a file is. Unknown keys are kept in `model_extra`: real files carry keys that newer
ones dropped, and a key that silently disappears is how a stage of a workflow gets lost. `unknown_keys` lists them for lint.

Files are written with the names of the aliases (`initialActivity`); Python code uses the attribute names (`initial_activity`).
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
from fidelio.definitions.models.resource import Resource, Rules, RulesSection, StructuredResource, Template
from fidelio.definitions.models.skill import (
    ErrorGuide,
    Operation,
    OutputArtifact,
    Skill,
    SkillInput,
    SkillOutput,
    ToolGuide,
)
from fidelio.definitions.models.workflow import (
    ArtifactLocation,
    ExecutionModel,
    Manifest,
    Mode,
    Role,
    Variable,
    Workflow,
    WorkflowFile,
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
    "ErrorGuide",
    "ExecutionModel",
    "Loop",
    "Manifest",
    "Mode",
    "Not",
    "Operation",
    "Operator",
    "Option",
    "Or",
    "OutputArtifact",
    "Resource",
    "Role",
    "Rules",
    "RulesSection",
    "Simple",
    "Skill",
    "SkillInput",
    "SkillOutput",
    "Step",
    "StructuredResource",
    "Template",
    "ToolGuide",
    "Transition",
    "Trigger",
    "Variable",
    "Workflow",
    "WorkflowFile",
    "WorkflowSkills",
    "unknown_keys",
    "variables_in",
]
