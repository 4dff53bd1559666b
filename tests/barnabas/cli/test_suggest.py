"""Suggestions for mistyped names."""

from __future__ import annotations

from barnabas.cli.suggest import did_you_mean


def test_the_closest_name_is_suggested() -> None:
    assert did_you_mean("ordres", ["orders", "order", "payments"]) == "; did you mean orders?"
    assert did_you_mean("zebra", ["orders"]) == ""
    assert did_you_mean("orders", ["orders"]) == ""
    assert did_you_mean("o" * 1000, ["o" * 249]) == ""  # no topic name is that long
