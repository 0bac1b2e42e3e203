"""The command line `penstock`: its commands, plans as pictures, and the run of a script."""

from penstock.cli.commands import app

__all__ = ["app"]
