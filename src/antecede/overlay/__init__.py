"""Overlay networks: who is linked to whom, and along which tree a message travels.

A user-defined overlay is a subclass of `Overlay`; scenarios name it as `module:Class`.
"""

from antecede.overlay.shapes import Overlay

__all__ = ["Overlay"]
