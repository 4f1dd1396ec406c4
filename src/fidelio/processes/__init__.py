"""Operating system processes of agents: spawning, marking, finding, watching and ending them.

`table` reads the process table (identities, marks, ancestors), `spooled` starts and adopts processes that outlive their
watcher, `piped` starts processes that communicate over pipes, and `ending` ends them. This module imports none of them, because
most commands need only `table`.
"""
