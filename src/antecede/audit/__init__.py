"""Audit: did any process deliver an effect before its cause?

- `run`: audits a trace wherever it lies, in this process or on Spark
- `core`: judges one run; `encoding` turns its rows into numbers, `passes` has the compiled passes over them
- `streaming`: proves a clean run clean in one pass
- `faults`: missing, duplicate, orphan and impossible deliveries in words; `roots`: the roots of violations
- `on_spark`: one task a run; `prepared_run`, `distributed` and `distributed_steps`: one huge run by many
  tasks; `parquet_splits`: workers read files themselves
- `excerpt`: the events that show a violation; `page`, `page_layout`, `diagram`, `diagram_layout` draw them
- `tally`: counts by process, by origin and over time
"""
