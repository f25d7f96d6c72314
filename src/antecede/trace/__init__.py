"""Traces: one documented schema of events, its writers and its readers."""

from antecede.errors import require

require("pyarrow", "sim")
