"""Structures that compiled code of several packages shares."""
