"""Operating system processes of agents: spawning, marking, finding, watching and ending them.

`table` answers what the process table knows (identities, marks, ancestors), `spooled` starts and adopts processes that outlive
their watcher, `piped` starts those that talk over pipes, and `ending` ends them. This module imports none of them, because most
commands only ask `table`.
"""
