"""Sessions with real sandboxes."""

from __future__ import annotations

from tests.runtime.resources import test_whole_path

runtime = test_whole_path.runtime
project = test_whole_path.project
