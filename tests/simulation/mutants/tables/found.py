"""The faults that the issue *What readers and reviewers found* names, each with the mutants that take out its mending.

A fault that no simulated life can reach has the reason in their place, and what tests its mending instead.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Found(NamedTuple):
    """A fault, by its number in the issue."""

    number: str
    fault: str
    mutants: tuple[str, ...] = ()
    why_not: str = ""  # empty if the mutants show all of it


FOUND: Final = (
    Found(
        "A1",
        "several controllers, each active alone, had metadata of their own",
        ("one-vote-elects", "one-log-commits", "active-before-it-has-replayed"),
    ),
    Found(
        "A1",
        "late, reordered and repeated pushes were obeyed",
        ("a-repeated-push-forgets-the-joining",),
        "a late one must be read after those of a newer connection, which some 30 lives with broken connections did "
        "not show; tests/broker/metadata/test_push_gate.py",
    ),
    Found(
        "A1",
        "a push deleted each log that it did not name: of a controller with an empty disk, or of another broker's",
        why_not="a lone controller keeps its disk, and no two brokers have one address; tests/stress has both",
    ),
    Found(
        "A1",
        "any client could push",
        why_not="no simulated client is an enemy; tests/fuzz sends every API to every listener",
    ),
    Found(
        "A2",
        "a configuration that could not be encoded ended the controller, again and again",
        why_not="simulated admins send small values; tests/controller/test_any_request.py, tests/fuzz",
    ),
    Found(
        "A3",
        "a record that a coordinator could not load ended one broker after the other",
        why_not="only brokers write to internal topics here; tests/broker/coordinators have records of all kinds",
    ),
    Found(
        "A4",
        "a pattern of a client took exponential time",
        why_not="virtual time stands still while Python computes; tests/barnabas/common/regex",
    ),
    Found("A5", "a broker that pushes did not reach stayed alive, and was elected", ("the-deaf-are-not-fenced",)),
    Found(
        "A6",
        "a large frame stopped a process, in C and in loops of quadratic time",
        why_not="virtual time, as for A4, and no memory is measured; tests/barnabas/protocol, tests/fuzz",
    ),
    Found("A7", "a topic that was made anew kept its predecessor's offsets", ("offsets-of-former-topics-stay",)),
    Found(
        "A8",
        "keys were made to collide, so that compaction dropped another key's record",
        ("keys-of-the-map-stay", "the-older-value-stays"),
        "a collision takes keys that are computed for one hash, which is keyed now: test_offset_map.py",
    ),
    Found(
        "A9",
        "pages obeyed a POST of a foreign site",
        why_not="there is no HTTP in a life; tests/broker/faults/test_pages.py, tests/metrics/test_http.py",
    ),
    Found(
        "A10",
        "a heartbeat that unfenced a broker elected it in a directory that it reported as failed",
        why_not="the directory of the only eligible replica must fail between its registration and the heartbeat that "
        "ends its fence; rule 4 of cluster/leaders.py would show it; tests/controller/test_broker_registry.py",
    ),
    Found(
        "A11",
        "a produce with a negative timeout waited for ever",
        ("operations-are-not-timed",),
        "simulated clients give time; with a negative one: test_k21_delete_records.py",
    ),
    Found(
        "A11",
        "a push claimed the offset of an image without all of its changes",
        why_not="what it claims too early goes out with the next push, at once; tests/controller/push",
    ),
    Found("A11", "pushes waited behind the requests of clients", ("pushes-wait-behind-clients",)),
    Found(
        "A11",
        "valid batches of more than 64 MiB were refused",
        why_not="simulated batches are small, so that a life is fast; tests/broker/storage/log/test_validator.py",
    ),
    Found(
        "A11",
        "followers took records of an epoch that went back",
        ("append-from-a-former-leader",),
        "it is the only way to such records here; the log's own check is a second one: tests/broker/storage/log",
    ),
    Found(
        "A12",
        "Kafka's tools did not read the metadata log",
        why_not="nobody else reads it in a life; tests/controller/metadata, tests/clients",
    ),
    Found(
        "A13",
        "settings without an effect were accepted in silence",
        why_not="a life has settings that are honoured; tests/barnabas/config/test_honoured.py",
    ),
    Found(
        "A14",
        "transactions fenced their own producer",
        ("the-next-end-is-fenced", "guards-are-not-renewed", "refused-ends-are-forgotten"),
    ),
    Found(
        "B",
        "installation, names, commands, compose files, the pipeline",
        why_not="a life begins with the server classes; tests/packaging, tests/barnabas/cli, tests/pipeline",
    ),
)
