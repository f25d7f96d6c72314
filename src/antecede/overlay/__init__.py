"""Overlay networks: who is linked to whom, and along which tree a message travels.

An overlay of one's own is a subclass of `Overlay`; scenarios name it as `module:Class`.
"""

from antecede.overlay.shapes import Overlay

__all__ = ["Overlay"]
