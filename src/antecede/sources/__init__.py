"""Logs of other programs as they are: recognised, and read as dependency logs.

`catalogue` has a preset for each format, `recognise` finds the one for a file, and `read` opens it.
"""

from __future__ import annotations

from antecede.sources.catalogue import PRESETS, find_preset
from antecede.sources.preset import Preset, to_toml
from antecede.sources.read import Source, find_source, read_source

__all__ = ["PRESETS", "Preset", "Source", "find_preset", "find_source", "read_source", "to_toml"]
