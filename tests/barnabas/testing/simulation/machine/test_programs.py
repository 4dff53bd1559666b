"""Programs on the standard library's interfaces, in an interpreter with the simulated machine.

Tests programs.py, interpreter.py, and of threads.py, times.py and network/polling.py what only other people's programs
use.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from barnabas.testing.simulation.machine import interpreter

ROOT = Path(__file__).resolve().parents[5]
START = """
import os, sys, traceback
from barnabas.testing.simulation.machine import patches
from barnabas.testing.simulation.machine.digest import Digest
from barnabas.testing.simulation.machine.process import Process
from barnabas.testing.simulation.machine.scheduler import Scheduler

scheduler = Scheduler(0)
patches.install(scheduler)
network = patches.begin(scheduler, 5, Digest())
import asyncio, datetime, queue, select, selectors, socket, threading, time

def main():
{body}

try:
    scheduler.run(Process(scheduler, "test", "10.0.0.1"), main)
    print(*scheduler.failures)
except BaseException:
    traceback.print_exc()
sys.stdout.flush()
os._exit(0)
"""


def run(body: str) -> str:
    """What a program prints."""
    text = START.format(body=textwrap.indent(textwrap.dedent(body), "    "))
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=ROOT,
        env={**os.environ, **interpreter.ENVIRONMENT},
        preexec_fn=interpreter.fix_addresses,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.strip()


PROGRAMS = {
    "a local has class attributes and an __init__ for each thread": (
        """
        class Mine(threading.local):
            kind = "none"
            def __init__(self, start):
                self.count = start
        mine = Mine(3)
        mine.kind, mine.count = "main", 7
        seen = []
        thread = threading.Thread(target=lambda: seen.append((mine.kind, mine.count)))
        thread.start()
        thread.join()
        print(seen, mine.kind, mine.count, sorted(mine.__dict__))
        """,
        "[('none', 3)] main 7 ['count', 'kind']",
    ),
    "timers": (
        """
        seen = []
        kept, ended = threading.Timer(5, seen.append, ["kept"]), threading.Timer(5, seen.append, ["ended"])
        kept.start(); ended.start(); ended.cancel()
        time.sleep(6)
        print(seen)
        """,
        "['kept']",
    ),
    "dates agree with the clock": (
        """
        time.sleep(86_400)
        now = datetime.datetime.now(datetime.timezone.utc)
        print(abs(now.timestamp() - time.time()) < 1, now.year, datetime.date.today() == now.date())
        print(isinstance(now + datetime.timedelta(days=1), datetime.datetime), time.gmtime().tm_year)
        print(time.clock_gettime(time.CLOCK_REALTIME) - time.time() < 1, time.strftime("%Y"))
        """,
        "True 2023 True\nTrue 2023\nTrue 2023",
    ),
    "no two readings of a clock are equal": (
        "print(len({time.monotonic() for _ in range(1000)}), len({time.time_ns() for _ in range(1000)}))",
        "1000 1000",
    ),
    "two threads have an event loop each": (
        """
        async def wait(seconds, name):
            await asyncio.sleep(seconds)
            return name, await asyncio.to_thread(lambda: threading.current_thread().name != "MainThread")
        seen = []
        def loop(each):
            seen.append(asyncio.run(wait(10 - each, each)))
        threads = [threading.Thread(target=loop, args=[each]) for each in range(2)]
        before = time.monotonic()
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(seen, 10 <= time.monotonic() - before < 11)
        """,
        "[(1, True), (0, True)] True",
    ),
    "streams of asyncio reach a server": (
        """
        async def serve(reader, writer):
            writer.write((await reader.readline()).upper())
            await writer.drain()
            writer.close()
        async def both():
            server = await asyncio.start_server(serve, "localhost", 7000)
            reader, writer = await asyncio.open_connection("localhost", 7000)
            writer.write(b"tea\\n")
            print(await reader.read())
            writer.close()
            server.close()
        asyncio.run(both())
        """,
        "b'TEA\\n'",
    ),
    "poll, select and every selector": (
        """
        first, second = socket.socketpair()
        poll = select.poll()
        poll.register(first, select.POLLIN)
        print(poll.poll(1000), select.select([first], [], [], 1)[0])
        threading.Timer(2, second.send, [b"x"]).start()
        before = time.monotonic()
        print(poll.poll() == [(first.fileno(), select.POLLIN)], 2 <= time.monotonic() - before < 3)
        print(select.select([first, second], [second], [], 5) == ([first], [second], []))
        for kind in (selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector):
            with kind() as selector:
                key = selector.register(first, selectors.EVENT_READ)
                print(selector.select(1) == [(key, selectors.EVENT_READ)])
        with second.makefile("wb") as file:
            file.write(b"yz")
        second.close()
        print(first.makefile("rb").read())
        """,
        "[] []\nTrue True\nTrue\nTrue\nTrue\nTrue\nb'xyz'",
    ),
    "names": (
        """
        network.names["there"] = "10.0.0.2"
        print(socket.gethostbyname("there"), socket.gethostbyaddr("10.0.0.2")[0])
        print(socket.getnameinfo(("10.0.0.2", 1), 0))
        try:
            socket.getaddrinfo("nowhere", 80)
        except socket.gaierror as error:
            print(error.args[1])
        """,
        "10.0.0.2 there\n('there', '1')\nName or service not known",
    ),
    "objects are hashed in order": (
        """
        class Thing:
            def __init__(self, number):
                self.number = number
        things = [Thing(number) for number in range(5)]
        print([thing.number for thing in set(things)], len({asyncio.Event() for _ in range(9)}))
        """,
        "[0, 1, 2, 3, 4] 9",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str) -> None:
    body, printed = PROGRAMS[name]
    assert run(body) == printed


def test_asyncio_must_not_be_imported_before() -> None:
    command = "import asyncio\nfrom barnabas.testing.simulation.machine import patches, scheduler\n"
    command += "patches.install(scheduler.Scheduler(0))"
    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "SimulationError: asyncio was imported before the machine was replaced" in done.stderr
