"""The command line: thin commands over the other packages, registered in `main.COMMANDS`."""
