"""Share partitions on the live page: who holds which records until when, and what share fetches wait for."""

from __future__ import annotations

import pytest

from barnabas.broker.live.look import Look
from barnabas.broker.live.shares import shares
from tests.broker.share.share_rig import ACCEPT, LOCK_MS, RELEASE, ShareRig

LOOK = Look(now_ns=0, now_ms=0, wall_ms=0)


@pytest.fixture
def rig() -> ShareRig:
    return ShareRig()


def test_who_holds_which_records_until_when(rig: ShareRig) -> None:
    rig.append(5)
    m, n = rig.member("m"), rig.member("n")
    m.fetch()
    m.acknowledge((2, 3, RELEASE, ACCEPT))
    rig.advance_ms(1000)
    n.fetch()
    (shown,) = shares(rig.share_partitions, LOOK)["items"]
    assert (shown["group_id"], shown["topic"], shown["partition"]) == ("g", "t", 0)
    assert (shown["start_offset"], shown["end_offset"], shown["in_flight"]) == (0, 4, 5)
    assert [tuple(held.values()) for held in shown["held"]["items"]] == [
        ("m", 0, 1, 1, LOCK_MS - 1000),
        ("n", 2, 2, 2, LOCK_MS),
        ("m", 4, 4, 1, LOCK_MS - 1000),
    ]
    assert shown["sentence"] == "2 members hold 4 records; the first lock runs out in 29.0 s"


def test_they_are_found_by_group_and_partition_and_limited(rig: ShareRig) -> None:
    rig.initialize(0, group="h")
    rig.member("m").fetch(1, 0)
    rig.member("n", group="h").fetch()
    names = [(one["group_id"], one["partition"]) for one in shares(rig.share_partitions, LOOK)["items"]]
    assert names == [("g", 0), ("g", 1), ("h", 0)]
    for about, total in (({"group": "g"}, 2), ({"partition": 0}, 2), ({"topic": "u"}, 0), ({"limit": 1}, 3)):
        assert shares(rig.share_partitions, LOOK._replace(**about))["total"] == total  # type: ignore[arg-type]
    assert shares(rig.share_partitions, LOOK)["items"][0]["sentence"] == "no member holds records"


def reasons(rig: ShareRig) -> list[str]:
    ((operation, _),) = rig.purgatories.share_fetch.waiting(10)
    return [reason["text"] for reason in operation.waits_for()]


def test_what_a_share_fetch_waits_for(rig: ShareRig) -> None:
    rig.append(2)
    m = rig.member("m")
    m.fetch()
    waiting = m.fetch(wait_ms=500)
    assert reasons(rig) == ["for records of t-0 for share group 'g' from offset 2 on"]
    rig.advance_ms(500)
    assert waiting.response is not None
    waiting = m.fetch(wait_ms=500, min_bytes=1000)
    rig.append()
    assert reasons(rig) == ["for 1000 bytes of records (min_bytes)"]
    rig.advance_ms(500)
    rig.set_group(share_partition_max_record_locks="100")
    rig.append(97)
    m.fetch()
    waiting = m.fetch(wait_ms=500)
    assert reasons(rig) == ["for members to acknowledge: 100 records of t-0 for share group 'g' are in flight"]
    assert waiting.response is None
