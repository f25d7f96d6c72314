"""python -m antecede"""

from antecede.cli.main import main

main()
