"""python -m antecede: the same as the antecede command."""

from antecede.cli.main import main

if __name__ == "__main__":
    main()
