"""Client ids are kept with a bounded length."""

from __future__ import annotations

import pytest

from barnabas.metrics.client_ids import NAME_MAX, bounded


@pytest.mark.parametrize("client_id", ["", "app", "x" * (NAME_MAX - 1)])
def test_an_ordinary_client_id_stays_as_it_is(client_id: str) -> None:
    assert bounded(client_id) is client_id


@pytest.mark.parametrize("start", ["x", "☃", "\ud800"])
def test_long_client_ids_are_cut_and_stay_apart(start: str) -> None:
    one, other = bounded(start * 32_000 + "1"), bounded(start * 32_000 + "2")
    assert one != other
    assert len(one) == len(other) == NAME_MAX
    assert one.startswith(start * 200)
    assert bounded(one) != one, "nobody takes the name of another one's long id"
