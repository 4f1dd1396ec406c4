"""Small workflows that a guide leads through: a journey with every construct once, and those that start each other."""

from __future__ import annotations

from pathlib import Path

TOUR = """
id: tour
version: 1.0.0
title: A tour
variables:
  - {name: calm, type: boolean}
  - {name: stops, type: array}
  - {name: tired, type: boolean, defaultValue: false}
  - {name: place, type: string, defaultValue: nowhere}
artifactLocations: {shelf: diaries}
initialActivity: pack
activities:
  - id: pack
    version: 1.0.0
    name: Pack
    steps:
      - {id: list, name: Write a list, description: "What to take to {place}", skill: packing}
      - {id: shine, name: Shine the shoes, required: false}
      - {id: ask, name: Ask for the size, checkpoint: size}
      - {id: fold, name: Fold, condition: {type: simple, variable: calm, operator: "==", value: true}}
    checkpoints:
      - id: size
        name: Which size?
        message: Which bag for {place}?
        options:
          - {id: big, label: A big one, effect: {setVariable: {calm: true}}}
          - {id: small, label: A small one, effect: {setVariable: {calm: false}}}
          - {id: stay, label: None at all, effect: {transitionTo: home}}
    transitions:
      - {to: visit, condition: {type: simple, variable: calm, operator: "==", value: true}}
      - {to: home, isDefault: true}
  - id: visit
    version: 1.0.0
    name: Visit
    checkpoints:
      - id: rate
        name: Rate it
        message: How was {stop}?
        options: [{id: good, label: Good}, {id: enough, label: Enough, effect: {setVariable: {tired: true}}}]
    loops:
      - id: each
        name: Each stop
        type: forEach
        over: stops
        variable: stop
        breakCondition: {type: simple, variable: tired, operator: "==", value: true}
        steps:
          - {id: look, name: Look around}
          - {id: note, name: Take a note, checkpoint: rate}
    transitions:
      - {to: home}
  - id: home
    version: 1.0.0
    name: Home
    artifacts: [{id: diary, name: "{place}.md", location: shelf}]
    steps: [{id: rest, name: Rest}]
    transitions: [{to: workflow-end}]
"""

FERRY = """
id: ferry
version: 1.0.0
title: A journey with a crossing
variables: [{name: port, type: string}, {name: fare, type: number}]
initialActivity: board
activities:
  - id: board
    version: 1.0.0
    name: Board
    steps:
      - {id: queue, name: Queue}
      - id: cross
        name: Cross
        triggers: {workflow: crossing, passContext: [port, fare]}
      - {id: land, name: Land, checkpoint: wave}
    checkpoints:
      - {id: wave, name: Wave?, message: Wave to the crew?, options: [{id: yes, label: "Yes"}, {id: no, label: "No"}]}
    transitions: [{to: dock}]
  - id: dock
    version: 1.0.0
    name: Dock
    steps: [{id: moor, name: Moor}]
    triggers: [{workflow: missing}, {workflow: crossing}]
"""

CROSSING = """
id: crossing
version: 1.0.0
title: A crossing
variables: [{name: port, type: string}, {name: fare, type: number}]
initialActivity: sail
activities:
  - id: sail
    version: 1.0.0
    name: Sail
    steps: [{id: steer, name: Steer}]
"""

RELAY = """
id: relay
version: 1.0.0
title: Nothing but a crossing
initialActivity: hand-over
activities:
  - {id: hand-over, version: 1.0.0, name: Hand over, triggers: {workflow: crossing}}
"""

ECHO = """
id: echo
version: 1.0.0
title: Starts itself
initialActivity: call
activities:
  - {id: call, version: 1.0.0, name: Call, triggers: {workflow: echo}}
"""

CAMP = """
id: camp
version: 1.0.0
title: Things to do
activities:
  - {id: swim, version: 1.0.0, name: Swim, problem: It is hot., recognition: [Go swimming], steps: [{id: dive, name: Dive}]}
  - {id: cook, version: 1.0.0, name: Cook, recognition: [Make dinner]}
"""

RING = """
id: ring
version: 1.0.0
title: Loops in loops
variables: [{name: more, type: boolean}]
initialActivity: outer
activities:
  - id: outer
    version: 1.0.0
    name: Outer
    loops: [{id: days, name: Days, type: forEach, over: dates, variable: day, activities: [inner]}]
  - id: inner
    version: 1.0.0
    name: Inner
    loops:
      - id: hours
        name: Hours
        type: doWhile
        maxIterations: 2
        condition: {type: simple, variable: more, operator: "==", value: true}
        steps: [{id: tick, name: Tick}]
"""

WARD = """
id: ward
version: 1.0.0
title: Somebody has to say it
initialActivity: door
activities:
  - id: door
    version: 1.0.0
    name: Door
    steps: [{id: knock, name: Knock, required: false}, {id: enter, name: Enter, checkpoint: open}]
    checkpoints:
      - id: open
        name: Open?
        message: May we begin?
        answered_by: person
        options: [{id: come, label: Come in}, {id: later, label: Later}]
      - id: slow
        name: Slow?
        message: Shall we wait?
        blocking: false
        defaultOption: wait
        autoAdvanceMs: 20
        options: [{id: wait, label: Wait}, {id: rush, label: Rush}]
      - id: cold
        name: Cold?
        message: Is it cold?
        condition: {type: simple, variable: cold, operator: "==", value: true}
        options: [{id: aye, label: Aye}, {id: nay, label: Nay}]
"""

META = """
id: meta
version: 1.0.0
title: Meta
initialActivity: start-workflow
activities:
  - id: start-workflow
    version: 1.0.0
    name: Start
    recognition: [Start a workflow]
    skills: {primary: leading}
    transitions: [{to: end-workflow}]
  - {id: end-workflow, version: 1.0.0, name: End, recognition: [We are done]}
"""

FILES = {
    "tour/workflow.yaml": TOUR,
    "tour/skills/01-packing.yaml": "id: packing\nversion: 1.0.0\ncapability: Pack lightly.\n",
    "tour/resources/01-map.md": "---\nid: map\nversion: 1.0.0\n---\n\n# The map\n\nNorth is up.\n",
    "tour/resources/02-tide.md": "# Tides\n",
    "tour/templates/01-card.md": "---\ntitle: A postcard\n---\n\nDear {name},\n",
    "ferry.yaml": FERRY,
    "crossing.yaml": CROSSING,
    "relay.yaml": RELAY,
    "echo.yaml": ECHO,
    "camp.yaml": CAMP,
    "ring.yaml": RING,
    "ward.yaml": WARD,
    "broken.yaml": "id: broken\n",
    "meta/workflow.yaml": META,
    "meta/skills/00-leading.yaml": "id: leading\nversion: 1.0.0\ncapability: Lead.\n",
    "meta/skills/01-packing.yaml": "id: packing\nversion: 1.0.0\ncapability: Pack for anything.\n",
}


def write_sample_workflows(root: Path) -> Path:
    for name, text in FILES.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.lstrip("\n"))
    return root
