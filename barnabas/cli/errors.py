"""The error of every command that a person can mend."""

from __future__ import annotations


class UserError(Exception):
    """One line that says what is wrong; `barnabas.cli.main` prints it and exits with 1."""
