"""The pages of a cluster are found again while one watches."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.cli.errors import UserError
from barnabas.cli.inside.finder import AGAIN_MS, SOON_MS, PageFinder
from barnabas.cli.inside.pages import Page
from barnabas.common.clock import FakeClock
from tests.support.waiting import eventually

ZERO, ONE, ONE_ELSEWHERE = Page("broker", 0, "h:0"), Page("broker", 1, "h:1"), Page("broker", 1, "h:7")


class Cluster:
    """Answers what a test says, and counts how often it was asked."""

    def __init__(self, *pages: Page) -> None:
        self.pages: Sequence[Page] = pages
        self.asked = 0

    def find(self) -> Sequence[Page]:
        self.asked += 1
        if not self.pages:
            raise UserError("no cluster answers")
        return self.pages


def test_who_is_added_and_who_moves_is_seen_and_who_goes_is_kept() -> None:
    cluster, clock = Cluster(ZERO, ONE), FakeClock()
    finder = PageFinder(cluster.find, clock)
    cluster.pages = (ONE_ELSEWHERE, Page("broker", 2, "h:2"))
    clock.advance_ms(AGAIN_MS)
    finder.find_again(is_one_silent=False)
    eventually("they are found again", lambda: finder.pages() == [ZERO, ONE_ELSEWHERE, Page("broker", 2, "h:2")])


@pytest.mark.parametrize(("is_one_silent", "wait_ms"), [(False, AGAIN_MS), (True, SOON_MS)])
def test_when(*, is_one_silent: bool, wait_ms: int) -> None:
    cluster, clock = Cluster(ZERO), FakeClock()
    finder = PageFinder(cluster.find, clock)
    for turn in (1, 2):
        clock.advance_ms(wait_ms - 1)
        finder.find_again(is_one_silent=is_one_silent)
        assert cluster.asked == turn
        clock.advance_ms(1)

        def is_found(turn: int = turn) -> bool:
            finder.find_again(is_one_silent=is_one_silent)  # the thread of the turn before may still be ending
            return cluster.asked == turn + 1

        eventually("it looks again", is_found)


def test_while_nobody_answers_those_that_were_known_stay() -> None:
    cluster, clock = Cluster(ZERO), FakeClock()
    finder = PageFinder(cluster.find, clock)
    cluster.pages = ()
    clock.advance_ms(AGAIN_MS)
    finder.find_again(is_one_silent=True)
    eventually("it has asked", lambda: cluster.asked == 2)
    assert finder.pages() == [ZERO]
    with pytest.raises(UserError):
        PageFinder(cluster.find, clock)
