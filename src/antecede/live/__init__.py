"""Live groups: the protocols over real connections, with a store that survives crashes.

- `joining`, `group`, `messages`, `settings`: what an application uses
- `core`, `events`, `ready`: a member as a state machine with `step`, `ready` and `advance`; `driver` runs it
- `stability`, `repair`, `recovery`: which messages every member has, repair of lost messages, crash recovery
- `transport`, `store`, `security`, `operations`: connections, journal, keys, metrics and traces
- `trial`: clusters of real processes with faults, and load
"""
