"""The command `penstock`: commands, pictures and the run of a script."""

from penstock.cli.commands import app

__all__ = ["app"]
