"""`python -m themis_arbiter.cli`, for where the console script is not on the path."""

from themis_arbiter.cli.main import main

main()
