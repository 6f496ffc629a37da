"""`python -m nereid`: the same as the command `nereid`."""

from nereid._command import main

main()
