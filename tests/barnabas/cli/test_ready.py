"""What `barnabas up` says."""

from __future__ import annotations

from pathlib import Path

from barnabas.cli.ready import Ready


def test_the_line_for_programs_is_read_back() -> None:
    for ready in (Ready("h:1,h:2", "h:3"), Ready("h:1", "", "http://h:4")):
        assert Ready.parse(ready.line()) == ready
    assert Ready("h:1", "h:2").line() == "ready bootstrap=h:1 metrics=h:2"
    assert Ready.parse("barnabas: unknown config key x is ignored") is None
    assert Ready.parse("") is None


def test_a_person_is_told_what_comes_next() -> None:
    words = Ready("h:1,h:2", "h:3,h:4").words(Path("/data"), is_temporary=True, is_detached=False)
    assert words[0] == "Barnabas is ready: 2 brokers and a controller."
    assert words[1:5] == [
        "  bootstrap  h:1,h:2",
        "  live page  http://h:3/live",
        "  data       /data (removed at the end; --data-dir keeps it)",
        "  stop       Ctrl-C, or: barnabas down",
    ]
    words = Ready("h:1", "", "http://h:5").words(Path("/data"), is_temporary=False, is_detached=True)
    assert words[2:6] == [
        "  live page  none (barnabas.metrics.port=-1)",
        "  faults     http://h:5",
        "  data       /data (kept)",
        "  stop       barnabas down",
    ]
