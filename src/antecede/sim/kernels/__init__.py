"""Compiled twins of the simulator, for large runs.

Each produces the same events as the world driving protocol objects (`sim/world.py`), which is the reference;
`tests/sim/test_engines.py` compares them on random scenarios. They need the `sim` extra (numba).
"""
