"""Uuids."""

from __future__ import annotations

import uuid

import pytest

from barnabas.common.ids import (
    METADATA_TOPIC_ID,
    ZERO_UUID,
    random_uuid,
    uuid4_text,
    uuid_from_string,
    uuid_to_string,
)


def test_the_text_form_is_kafkas() -> None:
    assert uuid_to_string(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_string(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_string(b"\xff" * 16) == "_____________________w"
    assert uuid_from_string("_____________________w") == b"\xff" * 16


def test_random_ids_survive_the_text_form() -> None:
    drawn = {random_uuid() for _ in range(500)}
    assert len(drawn) == 500
    for value in drawn:
        text = uuid_to_string(value)
        assert len(text) == 22
        assert not text.startswith("-")
        assert uuid_from_string(text) == value
        assert uuid_from_string(text + "==") == value


def test_random_ids_have_version_4() -> None:
    drawn = [uuid.UUID(bytes=random_uuid()) for _ in range(50)]
    drawn += [uuid.UUID(uuid4_text()) for _ in range(50)]
    assert {(one.version, one.variant) for one in drawn} == {(4, uuid.RFC_4122)}


def test_the_usual_text_form() -> None:
    text = uuid4_text()
    assert str(uuid.UUID(text)) == text


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "A" * 40, "AAAAAAAAAAAAAAAAAAAA+A", "ä" * 22])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a uuid"):
        uuid_from_string(text)
