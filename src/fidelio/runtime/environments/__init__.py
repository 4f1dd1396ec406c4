"""Environments of sandboxes: their versions in the ledger, their files, and the preparation that a version may need."""

from __future__ import annotations

from fidelio.runtime.environments.service import Environments
from fidelio.runtime.environments.versions import Environment, EnvironmentVersion, parse_environment

__all__ = ["Environment", "EnvironmentVersion", "Environments", "parse_environment"]
