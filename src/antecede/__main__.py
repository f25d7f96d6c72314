"""python -m antecede: the same as the antecede command."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # python -m puts the current folder first; its files must not be imported as modules.
    from antecede.cli.main import main

    main()
