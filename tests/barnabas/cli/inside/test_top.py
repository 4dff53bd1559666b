"""`barnabas top` of a real broker: a frame into a pipe, and a screen on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios

from barnabas.cli.address import VARIABLE
from tests.barnabas.cli.conftest import Barnabas
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

TIMEOUT_S = 30


def test_one_frame(barnabas: Barnabas, topic: str) -> None:
    outcome = barnabas("top", "--once", "--interval", "0.1")
    assert outcome.code == 0, outcome.err
    assert re.match(r"barnabas top \d\d:\d\d:\d\d  1 of 1 broker  ", outcome.out)
    assert "\x1b" not in outcome.out, "no colours into a pipe"
    assert re.search(r"^0 +running +\d+ +\d+ % +\d+/500 ", outcome.out, re.M)
    assert re.search(r"^partition +leader ", outcome.out, re.M)


def test_frames_as_json(barnabas: Barnabas, topic: str) -> None:
    frame = json.loads(barnabas("top", "--once", "--json", "--interval", "0.1").out)
    assert [row["state"] for row in frame["brokers"]] == ["running"]
    assert {f"{topic}-0", f"{topic}-1"} <= {row["name"] for row in frame["partitions"]}


def test_an_unknown_broker_and_a_page_that_does_not_answer_are_refused(barnabas: Barnabas, bootstrap: str) -> None:
    outcome = barnabas("top", "--once", "--broker", "7")
    assert (outcome.code, outcome.err) == (1, "barnabas: no broker 7 is known; the brokers are 0\n")
    outcome = barnabas("top", "--once", "--page", "127.0.0.1:1")
    assert (outcome.code, outcome.err) == (
        1,
        "barnabas: its page at 127.0.0.1:1 does not answer (Connection refused)\n",
    )


def test_a_screen_until_q(cluster: BarnabasCluster) -> None:
    """On a terminal of 80 by 24, whose settings are restored at the end."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(slave)
    environment = {**os.environ, VARIABLE: cluster.bootstrap, "TERM": "xterm"}
    command = [sys.executable, "-P", "-m", "barnabas.cli", "top", "--interval", "0.1"]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        try:
            shown = bytearray()

            def is_shown() -> bool:
                if select.select([master], [], [], 0.1)[0]:
                    shown.extend(os.read(master, 65536))
                return bytes(shown).count(b"barnabas top ") >= 2

            eventually("two frames", is_shown)
            assert b"q quits" in shown
            os.write(master, b"q")

            def has_ended() -> bool:
                if select.select([master], [], [], 0.05)[0]:
                    with contextlib.suppress(OSError):
                        shown.extend(os.read(master, 65536))
                return process.poll() is not None

            eventually("it ends", has_ended)
            assert process.returncode == 0
        finally:
            process.kill()
    assert b"\x1b[?1049h" in shown, "the alternate screen"
    assert b"\x1b[?1049l" in shown, "and back"
    assert termios.tcgetattr(slave)[3] == before[3]
    os.close(master)
    os.close(slave)
