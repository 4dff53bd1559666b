"""`barnabas top` searches the pages of a cluster again while it runs."""

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
    """Returns the pages that a test sets, and counts the searches."""

    def __init__(self, *pages: Page) -> None:
        self.pages: Sequence[Page] = pages
        self.searches = 0

    def find(self) -> Sequence[Page]:
        self.searches += 1
        if not self.pages:
            raise UserError("no cluster answers")
        return self.pages


def test_added_and_moved_pages_are_found_and_lost_ones_kept() -> None:
    cluster, clock = Cluster(ZERO, ONE), FakeClock()
    finder = PageFinder(cluster.find, clock)
    cluster.pages = (ONE_ELSEWHERE, Page("broker", 2, "h:2"))
    clock.advance_ms(AGAIN_MS)
    finder.find_again(is_one_silent=False)
    eventually("they are found again", lambda: finder.pages() == [ZERO, ONE_ELSEWHERE, Page("broker", 2, "h:2")])


@pytest.mark.parametrize(("is_one_silent", "wait_ms"), [(False, AGAIN_MS), (True, SOON_MS)])
def test_a_search_is_due_sooner_while_a_broker_does_not_answer(*, is_one_silent: bool, wait_ms: int) -> None:
    cluster, clock = Cluster(ZERO), FakeClock()
    finder = PageFinder(cluster.find, clock)
    for turn in (1, 2):
        clock.advance_ms(wait_ms - 1)
        finder.find_again(is_one_silent=is_one_silent)
        assert cluster.searches == turn
        clock.advance_ms(1)

        def is_found(turn: int = turn) -> bool:
            finder.find_again(is_one_silent=is_one_silent)  # the previous thread may still be ending
            return cluster.searches == turn + 1

        eventually("it searches again", is_found)


def test_known_pages_are_kept_while_no_process_answers() -> None:
    cluster, clock = Cluster(ZERO), FakeClock()
    finder = PageFinder(cluster.find, clock)
    cluster.pages = ()
    clock.advance_ms(AGAIN_MS)
    finder.find_again(is_one_silent=True)
    eventually("it has searched", lambda: cluster.searches == 2)
    assert finder.pages() == [ZERO]
    with pytest.raises(UserError):
        PageFinder(cluster.find, clock)
