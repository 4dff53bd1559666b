"""Stories: drawn by a seed, given by a text."""

from __future__ import annotations

import pytest

from tests.simulation.load.story import Story, StoryError


def test_a_seed_has_one_story() -> None:
    assert Story.drawn(7) == Story.drawn(7)
    assert len({Story.drawn(seed) for seed in range(50)}) > 40


def test_what_is_given_changes_nothing_else() -> None:
    for seed in range(20):
        drawn = Story.drawn(seed)
        changed = Story.drawn(seed, producers=9, copiers=9)
        assert (changed.producers, changed.copiers) == (9, 9)
        assert Story.drawn(seed, **Story.given(str(changed))) == changed
        assert (changed.meddlers, changed.pause_ms) == (drawn.meddlers, drawn.pause_ms)


def test_every_kind_of_client_takes_part_in_some_story() -> None:
    stories = [Story.drawn(seed) for seed in range(60)]
    for name in (
        "producers",
        "readers",
        "plain",
        "silent",
        "transactional",
        "copiers",
        "classic",
        "consumers",
        "kafka_python",
        "aiokafka",
    ):
        assert {0} < {getattr(story, name) for story in stories}, name


@pytest.mark.parametrize("text", ["singers=1", "producers=many", "producers=-1", "producers"])
def test_a_wrong_text_is_one_line(text: str) -> None:
    with pytest.raises(StoryError) as caught:
        Story.given(text)
    assert "\n" not in str(caught.value)


def test_an_empty_text_gives_nothing() -> None:
    assert Story.given("") == {}
