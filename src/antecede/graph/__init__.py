"""The immediate-dependency graph of a trace or of a table of dependencies.

- `run`: reads a trace wherever it lies, in this process or on Spark, and writes the graph to a folder
- `core`: builds and describes the graph of one run
- `on_spark`: one task a run; `distributed`: one huge run by many tasks
"""
