"""`python -m barnabas.cli`: the command line where the console script is not on the path."""

from barnabas.cli.main import main

main()
