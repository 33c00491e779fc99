"""Runs `python -m reproduction`."""

from reproduction.program import main
from syncswitch.cli.program import run_program

if __name__ == "__main__":
    run_program(lambda: main, "python -m reproduction")
