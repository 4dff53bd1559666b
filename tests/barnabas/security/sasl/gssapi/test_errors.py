"""Errors of libkrb5 in words."""

from __future__ import annotations

import pytest

from barnabas.security.sasl.gssapi import errors
from barnabas.security.sasl.gssapi.errors import GssError

MINOR = -1765328384 % 2**32  # ERROR_TABLE_BASE_krb5


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errors.UNKNOWN_SERVICE, "sasl.kerberos.service.name"),
        (errors.SKEW, "synchronize"),
        (errors.NO_KEY_IN_KEYTAB, "klist -k"),
        (errors.NO_TICKET_CACHE, "kinit"),
        (errors.BAD_KEY_VERSION, "export it again"),
    ],
)
def test_what_to_change_is_in_the_same_line(code: int, advice: str) -> None:
    error = GssError("libkrb5's words", MINOR + code)
    assert error.code == code
    assert str(error).startswith("libkrb5's words (")
    assert advice in str(error)
    assert str(error.again()) == str(error)


def test_errors_of_other_tables_keep_their_words() -> None:
    assert str(GssError("words", 39756033)) == "words"
    assert GssError("words", 39756033).code is None
    assert GssError("words").code is None


def test_words_of_a_stranger_fit_into_a_line() -> None:
    assert "\n" not in str(GssError("a\nERROR b"))
    assert len(str(GssError("x" * 10_000))) < 400


def test_which_errors_are_transient() -> None:
    codes = [code for code in range(256) if GssError("", MINOR + code).is_transient]
    assert codes == [errors.CLIENT_NOT_YET_VALID, errors.TICKET_NOT_YET_VALID, errors.REPLAY]
