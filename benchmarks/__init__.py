"""Benchmarks of speed and memory, with their bounds. `make bench` runs every module here that has a `main`.

A `main` takes no arguments and returns its `Figure`s. A bound is a ratio wherever possible, taken from interleaved rounds of
one run, so that it means the same on a fast machine and on a slow one.
"""

from __future__ import annotations

from benchmarks.figures import Figure

__all__ = ["Figure"]
