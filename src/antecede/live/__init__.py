"""Live groups: the protocols over real connections, with a store that survives crashes.

- `joining`, `group`, `messages`, `settings`: what an application uses
- `core`, `events`, `ready`: a member as a state machine, by step, ready and advance; `driver` is its loop
- `stability`, `repair`, `recovery`: messages that every member has, lost messages, and restart after a crash
- `transport`, `store`, `security`, `operations`: connections, journal, keys, metrics and traces
- `trial`: clusters of real processes with faults, and load
"""
