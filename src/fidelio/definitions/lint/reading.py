"""Examples of what reading the files finds, for the reference page and the tests.

These findings come from the readers and the library. They are listed beside the rules because an author does not care which
part of the program noticed.
"""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """Complete files; nothing is filled in. `too-large` has none, because it would be."""

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
""",
    ),
}
