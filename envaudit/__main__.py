"""`python -m envaudit`, where the package is installed in the environment itself."""

from envaudit.cli.main import run

run()
