"""Sandboxes: the only package that touches the machine for an agent.

A sandbox is a process tree behind the kernel's boundary, with its own file tree. File actions and commands run inside of it, so
a link or a race gives a file action no more than it gives a command. What an action needs is said here; whether it may run is
decided in `fidelio.runtime`.
"""
