"""The command line `penstock`: its commands, and the run of a script."""

from penstock.cli.commands import app

__all__ = ["app"]
