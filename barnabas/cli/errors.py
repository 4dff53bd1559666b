"""The errors of commands that a person can mend."""

from __future__ import annotations


class UserError(Exception):
    """One line that says what is wrong; `barnabas.cli.main` prints it and exits with 1."""


class RequestError(UserError):
    """The cluster refused something; `codes` are the names of Kafka's error codes, one for each thing refused."""

    def __init__(self, message: str, codes: tuple[str, ...]) -> None:
        super().__init__(message)
        self.codes = codes
