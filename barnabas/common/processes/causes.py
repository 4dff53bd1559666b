"""The cause of an exception, in compiled code and in sources."""

from __future__ import annotations


def cause_of(error: BaseException) -> BaseException | None:
    """Return the exception after which `error` was raised; None if there is none, or after `raise ... from None`.

    Why not `__cause__`: mypyc ignores the `from` of a `raise`. What a compiled module raises in an except block has its
    cause in `__context__` only, and nothing hides it there after `from None`.
    """
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__
