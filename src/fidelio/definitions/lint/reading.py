"""Examples of what reading the files finds, for the reference page and the tests.

These findings come from the readers and the library. They are listed beside the rules because an author does not care which
part of the program noticed.
"""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """Complete files of a workflow; only its activities may be left out."""

    bad: str
    good: str


READING_EXAMPLES: dict[str, Example] = {
    "unreadable": Example(
        bad="""
# workflow.yaml
id: demo
version: 1.0.0
title: "Demo
""",
        good="""
# workflow.yaml
id: demo
version: 1.0.0
title: "Demo"
""",
    ),
    "half-read": Example(
        bad="""
# workflow.toon
id: demo
version: 1.0.0
title: Demo
description: |
  A decoder that meets this
  stops here and says nothing.
author: nobody
""",
        good="""
# workflow.toon
id: demo
version: 1.0.0
title: Demo
description: "This is read,\\nto the end."
author: nobody
""",
    ),
    "too-large": Example(
        bad=f"""
# workflow.yaml
id: demo
version: 1.0.0
title: Demo
tags: {"[" * 65}{"]" * 65}
""",
        good="""
# workflow.yaml
id: demo
version: 1.0.0
title: Demo
tags: []
""",
    ),
    "duplicate-key": Example(
        bad="""
# workflow.yaml
id: demo
version: 1.0.0
title: Demo
title: Another demo
""",
        good="""
# workflow.yaml
id: demo
version: 1.0.0
title: Demo
""",
    ),
    "wrong-count": Example(
        bad="""
# workflow.toon
id: demo
version: 1.0.0
title: Demo
tags[3]:
  - small
  - quick
""",
        good="""
# workflow.toon
id: demo
version: 1.0.0
title: Demo
tags[2]:
  - small
  - quick
""",
    ),
    "schema": Example(
        bad="""
# workflow.yaml
id: demo
version: one
title: Demo
""",
        good="""
# workflow.yaml
id: demo
version: 1.0.0
title: Demo
""",
    ),
    "outside-root": Example(
        bad="""
# workflow.yaml
id: demo
version: 1.0.0
title: Demo
activitiesDir: ../elsewhere
""",
        good="""
# workflow.yaml
id: demo
version: 1.0.0
title: Demo
activitiesDir: stages
# stages/01-plan.yaml
id: plan
version: 1.0.0
name: Plan
""",
    ),
    "bad-name": Example(
        bad="""
# skills/01-what?.yaml
id: what
version: 1.0.0
capability: Finds out what is meant.
""",
        good="""
# skills/01-what.yaml
id: what
version: 1.0.0
capability: Finds out what is meant.
""",
    ),
    "hidden-file": Example(
        bad="""
# workflow.toon
id: demo
version: 1.0.0
title: Demo
# workflow.yaml
id: demo
version: 1.0.0
title: Another demo
""",
        good="""
# workflow.toon
id: demo
version: 1.0.0
title: Demo
""",
    ),
}
