"""The error of a client's regular expression, in the words of RE2/J, which Kafka uses."""

from __future__ import annotations

from typing import Final

MISSING_PAREN: Final = "missing closing )"
MISSING_BRACKET: Final = "missing closing ]"
INVALID_RANGE: Final = "invalid character class range"
INVALID_ESCAPE: Final = "invalid escape sequence"
INVALID_NAME: Final = "invalid named capture"
INVALID_PERL: Final = "invalid or unsupported Perl syntax"
NESTED_REPEAT: Final = "invalid nested repetition operator"
REPEAT_SIZE: Final = "invalid repeat count"
NOTHING_TO_REPEAT: Final = "missing argument to repetition operator"
TRAILING_BACKSLASH: Final = "trailing backslash at end of expression"
DUPLICATE_NAME: Final = "duplicate capture group name"
UNOPENED: Final = "regexp/syntax: internal error"  # RE2/J's text for a surplus ")"
# Not of RE2/J, which has no such limits
TOO_DEEP: Final = "expression nests too deeply"
TOO_LARGE: Final = "expression is too large"
TOO_SLOW: Final = "expression takes too many steps"

LENGTH_MAX: Final = 32_767  # characters; the limit of a non-nullable string in the protocol


class PatternError(ValueError):
    """The expression is not valid in RE2, or costs too much; the text says which."""
