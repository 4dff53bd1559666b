"""A Barnabas that is broken on purpose, which the checker must detect. `python -m tests.stress --broken NAME`.

It runs instead of `barnabas.broker.main`: it patches one bug into the broker, then starts it. It uses the checkout's
sources, since compiled modules call each other directly and would ignore the patch.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3]


def acknowledge_before_replication() -> None:
    """Acknowledge acks=all once the leader has the records, as if every replica had them."""
    from barnabas.broker.replication.delayed import delayed_produce
    from barnabas.broker.replication.delayed.delayed_produce import DelayedProduce
    from barnabas.protocol.errors import ErrorCode

    assert Path(delayed_produce.__file__).parents[4].resolve() == SOURCE, "what is installed may be compiled"
    DelayedProduce._progress = lambda *_: (True, ErrorCode.NONE)  # type: ignore[method-assign]


BROKEN: dict[str, Callable[[], None]] = {
    "acknowledge-before-replication": acknowledge_before_replication,
}


def main() -> None:
    """`broken.py NAME FILE`: a broker with this fault."""
    name = sys.argv.pop(1)
    sys.path.insert(0, str(SOURCE))
    BROKEN[name]()
    runpy.run_module("barnabas.broker.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
