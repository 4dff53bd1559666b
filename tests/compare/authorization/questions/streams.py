"""Questions about streams groups. They change nothing: the groups that they name are of other kinds, or missing."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.protocol.api_keys import ApiKey as Key
from tests.compare.authorization.questions.question import TOPICS, Question

_GROUPS = ["open-s", "shut-s", "open-c", "shut-c", "open-n", "shut-n"]
_STRANGER = {"group_id": "shut-s", "member_id": "stranger"}


def questions() -> Iterator[Question]:
    """Return the questions in their order."""
    joins = {
        **_STRANGER, "member_epoch": 0, "rebalance_timeout_ms": 1000, "process_id": "p", "active_tasks": [],
        "standby_tasks": [], "warmup_tasks": [],
    }  # fmt: skip
    by_member = {**_STRANGER, "member_epoch": 5}
    yield Question("StreamsGroupHeartbeat", Key.STREAMS_GROUP_HEARTBEAT, lambda _w, _v: by_member)
    for what, subtopology in (
        ("source topics", {"source_topics": TOPICS}),
        ("sinks", {"source_topics": TOPICS[:1], "repartition_sink_topics": TOPICS[1:]}),
        ("internal topics", {
            "source_topics": TOPICS[:1],
            "repartition_source_topics": [{"name": name} for name in TOPICS[1:3]],
            "state_changelog_topics": [{"name": name} for name in TOPICS[3:]],
        }),
    ):  # fmt: skip
        topology = {"epoch": 1, "subtopologies": [{"subtopology_id": "0", **subtopology}]}
        fields = {**joins, "topology": topology}
        yield Question(
            f"StreamsGroupHeartbeat with {what}", Key.STREAMS_GROUP_HEARTBEAT, lambda _w, _v, fields=fields: fields
        )
    described = {"group_ids": _GROUPS, "include_authorized_operations": True}
    yield Question("StreamsGroupDescribe", Key.STREAMS_GROUP_DESCRIBE, lambda _w, _v: described)
