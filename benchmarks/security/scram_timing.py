"""`python -m benchmarks.security.scram_timing`: does the time of a failed SCRAM login reveal a user, or a token?

An attacker guesses names and measures. Here the server's part of a login with a wrong password is measured in this
process, without a network that would hide small differences: for a user that exists and for one that does not, in
random order. The report says how often a login of the one takes longer than a login of the other; 0.5 means that the
times reveal nothing. The same number for two halves of the logins of existing users shows the effect of chance. The
medians may differ by at most a microsecond: one dictionary has an entry more, and memory is colder.
"""

from __future__ import annotations

import base64
import os
import random
import statistics
import sys
from bisect import bisect_left, bisect_right
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from barnabas.common.clock import SystemClock
from barnabas.config.config import Config
from barnabas.security.image import SecurityImage
from barnabas.security.sasl.mechanism import InvalidCredentialsError
from barnabas.security.sasl.scram.formulas import make_credential
from barnabas.security.sasl.scram.lookup import SecurityLookup
from barnabas.security.sasl.scram.server import ScramServer
from barnabas.security.values import ScramKey, ScramMechanism, TokenInformation

USERS: Final = 200
SECRET: Final = "secret of the cluster"
DIFFERENCE_MAX_US: Final = 1.0
PROOF_BYTES: Final = {ScramMechanism.SCRAM_SHA_256: 32, ScramMechanism.SCRAM_SHA_512: 64}
FOREVER_MS: Final = 1 << 50


def make_lookup(mechanism: ScramMechanism, iterations: tuple[int, ...]) -> SecurityLookup:
    """Users `user-0`, `user-1` … whose credentials have these iterations in turn, and as many tokens."""
    credentials = {
        ScramKey(f"user-{number}", mechanism): make_credential(mechanism, "right", iterations[number % len(iterations)])
        for number in range(USERS)
    }
    tokens = {
        f"user-{number}": TokenInformation(f"user-{number}", "User:o", "User:o", (), 0, FOREVER_MS, FOREVER_MS)
        for number in range(USERS)
    }
    image = SecurityImage(credentials=credentials, tokens=tokens)
    config = Config.from_properties({"node.id": "1", "delegation.token.secret.key": SECRET})
    return SecurityLookup(lambda: image, config, SystemClock())


def failed_login_ns(lookup: SecurityLookup, mechanism: ScramMechanism, user: str, *, is_token: bool) -> int:
    """Fail to log in; return the nanoseconds that the server took for both messages."""
    clock = SystemClock()
    server = ScramServer(mechanism, lookup, SECRET.encode())
    first = f"n,,n={user},r=nonce{',tokenauth=true' if is_token else ''}".encode()
    began_ns = clock.monotonic_ns()
    challenge = server.evaluate(first)
    took_ns = clock.monotonic_ns() - began_ns
    nonce = challenge.split(b",")[0]
    final = b"c=biws," + nonce + b",p=" + base64.b64encode(bytes(PROOF_BYTES[mechanism]))
    began_ns = clock.monotonic_ns()
    try:
        server.evaluate(final)
    except InvalidCredentialsError:
        return took_ns + clock.monotonic_ns() - began_ns
    raise AssertionError("a wrong password was right")


def share_of_longer(these: list[int], those: list[int]) -> float:
    """Return how often one of these is longer than one of those; equal ones count half (Mann and Whitney's U)."""
    ordered = sorted(those)
    wins = sum(bisect_left(ordered, value) + bisect_right(ordered, value) for value in these)
    return wins / 2 / len(these) / len(those)


@click.command()
@click.option("--logins", default=4_000, show_default=True, help="Of each kind.")
def main(logins: int) -> None:
    """Compare the times of failed logins of users that exist and of those that do not."""
    chance = random.Random(7)
    title = f"{logins} failed logins of each kind"
    table = Table("", "exists", "does not", "takes longer", "by chance", title=title, title_justify="left")
    worst = 0.0
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        for iterations in ((4096,), (8192,), (4096, 8192, 10_000)):
            lookup = make_lookup(mechanism, iterations)
            for is_token in (False, True) if len(iterations) == 1 else (False,):
                times: dict[bool, list[int]] = {True: [], False: []}
                for exists in chance.sample([True, False] * logins, 2 * logins):
                    user = f"{'user' if exists else 'none'}-{chance.randrange(USERS)}"
                    times[exists].append(failed_login_ns(lookup, mechanism, user, is_token=is_token))
                longer = share_of_longer(times[True], times[False])
                alone = share_of_longer(times[True][::2], times[True][1::2])
                kind = "tokens" if is_token else f"users, {'/'.join(map(str, iterations))}"
                what = f"{mechanism.mechanism_name}, {kind}"
                medians = [statistics.median(times[exists]) / 1000 for exists in (True, False)]
                worst = max(worst, abs(medians[0] - medians[1]))
                table.add_row(what, *(f"{median:.1f} us" for median in medians), f"{longer:.3f}", f"{alone:.3f}")
    Console(width=int(os.environ.get("COLUMNS", "110"))).print(table)
    if worst > DIFFERENCE_MAX_US:
        sys.exit(f"the time tells which users exist: the medians differ by {worst:.1f} us")


if __name__ == "__main__":
    main()
