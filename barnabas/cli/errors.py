"""Errors of commands that the user can fix."""

from __future__ import annotations


class UserError(Exception):
    """One line that describes the problem; `barnabas.cli.main` prints it and exits with 1."""


class ArgumentError(UserError):
    """An option or argument is wrong, or contradicts another; the exit code is 2, as for an unknown option."""


class EndedBySignal(BaseException):
    """SIGTERM arrived, in a command that has something to finish; the exit code is 143."""


class RequestError(UserError):
    """The cluster refused a request; `codes` are the names of Kafka's error codes, one for each refused item."""

    def __init__(self, message: str, codes: tuple[str, ...]) -> None:
        super().__init__(message)
        self.codes = codes
