"""The command line: one thin file a command over one typed function each. Importing this loads no stage."""

from dialrl.cli.app import main

__all__ = ["main"]
