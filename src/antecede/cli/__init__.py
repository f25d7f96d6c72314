"""The command line: thin commands over the rooms of the house."""
