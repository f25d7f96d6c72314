"""SplitMix64 (Steele, Lea and Flood 2014): its increment and its finaliser, on unsigned 64-bit words.

`sim/counter_rng.py` has the same in pure Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antecede.jit import njit_plain

STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31 = (np.uint64(value) for value in (27, 30, 31))


@njit_plain
def mix(value: Any) -> Any:
    """64 bits to 64 bits, every bit of the result depending on every bit of `value`."""
    value = (value ^ value >> _30) * _FIRST
    value = (value ^ value >> _27) * _SECOND
    return value ^ value >> _31
