"""Live groups: the protocols over real connections, with a store that survives crashes.

- `joining`, `group`, `messages`, `settings`: what an application uses
- `core`, `events`, `ready`: a member as a state machine, by step, ready and advance; `driver` is its loop
- `stability`, `repair`, `recovery`: what everybody has, what is missing, and how a member comes back
- `transport`, `store`, `security`, `operations`: connections, journal, keys, metrics and traces
- `trial`: clusters of real processes with faults, and load
"""
