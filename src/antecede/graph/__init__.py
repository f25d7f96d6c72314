"""The immediate-dependency graph of a trace or of a table of dependencies."""
