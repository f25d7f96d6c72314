"""python -m antecede"""

from antecede.cli.main import main

if __name__ == "__main__":
    main()
