"""Compiled twins of the simulator, for size.

Each is equal, event for event, to the world driving protocol objects (`sim/world.py`), which defines what is
true; `tests/sim/test_engines.py` compares them on random scenarios. They need the `sim` extra (numba).
"""
