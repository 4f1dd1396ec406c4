"""A small sample library that has every construct of a definition once, for the tests of the dialects."""

from __future__ import annotations

from pathlib import Path

WORKFLOW = """
id: score
version: 1.2.3
title: The score
description: One of everything.
tags: [test, music]
skills: {primary: conduct}
rules: [Play what is written.]
variables:
  - {name: loud, type: boolean, description: Whether to play loudly.}
  - {name: bars, type: number, description: How many bars., defaultValue: 4}
  - {name: mood, type: string, description: How it sounds.}
  - {name: parts, type: array, description: What is played.}
  - {name: entered, type: string, description: Set on entry.}
initialActivity: tune
"""

TUNE = """
id: tune
version: 1.0.0
name: Tune
skills: {primary: listen}
steps:
  - {id: hear, name: Hear the A, skill: listen}
  - {id: ask, name: Ask, checkpoint: how}
  - id: soften
    name: Soften
    condition: {type: simple, variable: loud, operator: "==", value: false}
  - {id: oil, name: Oil the valves, required: false}
checkpoints:
  - id: how
    name: How?
    message: How shall we play?
    options:
      - {id: forte, label: Loudly, effect: {setVariable: {loud: true}}}
      - {id: piano, label: Softly, effect: {setVariable: {loud: false}}}
      - {id: stop, label: Not at all, effect: {transitionTo: bow}}
  - id: encore
    name: Encore?
    message: Plan an encore?
    blocking: false
    defaultOption: none
    autoAdvanceMs: 50
    options:
      - {id: some, label: Yes}
      - {id: none, label: No}
  - id: cold
    name: Cold?
    message: Is it cold in here?
    condition: {type: simple, variable: mood, operator: "==", value: cold}
    options:
      - {id: yes_, label: Yes}
      - {id: no_, label: No}
  - id: conductor
    name: The conductor
    message: May we begin?
    answered_by: person
    condition: {type: simple, variable: bars, operator: ">", value: 99}
    options:
      - {id: begin, label: Begin}
      - {id: wait, label: Wait}
transitions:
  - {to: play, condition: {type: simple, variable: loud, operator: "==", value: true}}
  - {to: play, condition: {type: simple, variable: mood, operator: "==", value: bright}}
  - {to: bow, condition: {type: simple, variable: loud, operator: "==", value: false}}
"""

PLAY = """
id: play
version: 1.0.0
name: Play
entryActions:
  - {action: set, target: entered, value: "yes"}
steps:
  - {id: begin, name: Begin}
loops:
  - id: each-part
    name: Each part
    type: forEach
    variable: part
    over: parts
    steps:
      - {id: bar, name: Play a bar, skill: listen}
triggers:
  - {workflow: solo, passContext: [mood]}
transitions:
  - {to: bow, isDefault: true}
"""

BOW = """
id: bow
version: 1.0.0
name: Bow
steps:
  - {id: smile, name: Smile}
transitions:
  - {to: workflow-end, isDefault: true}
"""

SOLO = """
id: solo
version: 1.0.0
title: A solo
initialActivity: alone
variables:
  - {name: mood, type: string}
activities:
  - {id: alone, version: 1.0.0, name: Alone}
"""

LISTEN = """
id: listen
version: 1.0.0
capability: Listen before you play.
resources: ["01"]
"""

CONDUCT = """
id: conduct
version: 1.0.0
capability: Lead the piece.
"""

META = """
id: meta
version: 1.0.0
title: Meta
initialActivity: start-workflow
skills: {primary: session-protocol}
activities:
  - {id: start-workflow, version: 1.0.0, name: Start}
"""

PROTOCOL = """
id: session-protocol
version: 1.0.0
capability: Keep the token.
"""

FILES = {
    "score/workflow.yaml": WORKFLOW,
    "score/activities/01-tune.yaml": TUNE,
    "score/activities/02-play.yaml": PLAY,
    "score/activities/03-bow.yaml": BOW,
    "score/skills/01-conduct.yaml": CONDUCT,
    "score/skills/02-listen.yaml": LISTEN,
    "score/resources/01-pitch.md": "---\nid: pitch\nversion: 2.0.0\n---\n\n# Pitch\n\nThe A is at 442 Hz.\n",
    "solo.yaml": SOLO,
    "meta/workflow.yaml": META,
    "meta/skills/01-session-protocol.yaml": PROTOCOL,
    "meta/resources/00-bootstrap.md": "# Begin\n\nCall start_session, then get_workflow.\n",
}


def write_sample_workflow(root: Path) -> Path:
    for name, text in FILES.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.lstrip("\n"))
    return root
