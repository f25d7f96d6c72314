"""Overlay networks: who is linked to whom, and along which tree a message travels."""
