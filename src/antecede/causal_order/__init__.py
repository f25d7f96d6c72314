"""Rows in causal order: each after every row that it depends on.

- `event_files` finds files; `text_files` reads CSV and JSON lines, with the types of `text_types` and
  `json_kinds`, the same on every engine.
- `dependency_edges` reads from columns which row depends on which; `disposition` decides about every row
  (`interpreted` about those of small tables); `missing_causes` counts what is missing.
- `batch` orders a whole table. `local` does so in this process, `on_spark` on Spark; `run` chooses.
- `micro_batch` orders rows as they arrive. Held rows and what was emitted before are the `group_state`, in
  `segments` and a `history`; `stream_on_spark` keeps them in Spark's state store, and `inspect` reads them.
"""
