"""How kernels are compiled."""

from antecede.jit import compiled, loop, part, step

__all__ = ["compiled", "loop", "part", "step"]
