"""A Barnabas that is broken on purpose: what the checker must find. `python -m tests.stress --broken NAME`.

Run in place of `barnabas.broker.main`: puts one wrong thing into the broker, then starts it. It is the checkout's
source: compiled modules call each other directly, and would not notice.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]


def acknowledge_before_replication() -> None:
    """acks=all is answered as soon as the leader has the records, as if every replica had them."""
    from barnabas.broker.replication import delayed_produce
    from barnabas.broker.replication.delayed_produce import DelayedProduce
    from barnabas.protocol.errors import ErrorCode

    assert Path(delayed_produce.__file__).parents[3].resolve() == SOURCE, "what is installed may be compiled"
    DelayedProduce._look_at = lambda *_: (True, ErrorCode.NONE)  # type: ignore[method-assign]


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
