"""What ACLs cost: the same load on two clusters of Barnabas, one of them with an authorizer and 1,000 ACLs, in turns.

The clients are ANONYMOUS on a PLAINTEXT listener, since the load generator cannot log in. ACLs allow what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median

from benchmarks.bench import MANY, PARTITIONS, Bench, Measure, Round, Samples, admin_of
from benchmarks.security import acls
from benchmarks.systems import AUTHORIZER, Barnabas, System, port_of, remove, running, used_cpu_seconds
from benchmarks.workloads.throughput import KIB, produce

KEPT, CPU = "rate kept with 1,000 ACLs", "CPU with 1,000 ACLs"
Both = tuple[System, System]  # without an authorizer, and with it


@dataclass(frozen=True, slots=True)
class Load:
    """The result of one run."""

    rate: float
    cpu: float  # for one request, or a byte


Run = Callable[[System], Load]


def beside_each_other(name: str, pairs: int, prepare: Callable[[Bench, Both, ExitStack], Run]) -> Measure:
    """Measure a load on both clusters, `pairs` times: the share of the rate that is kept with an authorizer, and how
    many times the CPU time is needed.
    """

    @contextmanager
    def measure(bench: Bench, system: System) -> Iterator[Round]:
        assert isinstance(system, Barnabas)
        checked = system.beside("acls", AUTHORIZER)
        with ExitStack() as stack:
            stack.callback(remove, checked)
            both: Both = stack.enter_context(running(system)), stack.enter_context(running(checked))
            acls.add(admin_of(checked), acls.many(acls.ANONYMOUS))
            run = prepare(bench, both, stack)

            def once() -> Samples:
                kept, cpu = [], []
                for number in range(pairs):
                    loads = {system.directory: run(system) for system in (both if number % 2 else reversed(both))}
                    plain, limited = (loads[system.directory] for system in both)
                    kept.append(limited.rate / plain.rate)
                    cpu.append(limited.cpu / plain.cpu)
                return {f"{name}, {KEPT}": median(kept), f"{name}, {CPU}": median(cpu)}

            yield once

    return measure


def _small_produce(bench: Bench, both: Both, stack: ExitStack) -> Run:
    topics = {system.directory: stack.enter_context(bench.topic(system)) for system in both}
    work = {
        system.directory: bench.generator.produce_work(port_of(system), topics[system.directory], PARTITIONS)
        for system in both
    }

    def run(system: System) -> Load:
        before = used_cpu_seconds(system)
        size = bench.size
        result = bench.generator.run(port_of(system), work[system.directory], MANY, size.loop_warm_up_ms, size.loop_ms)
        return Load(result.requests_per_second, (used_cpu_seconds(system) - before) / result.answers)

    return run


def _produce_1k(bench: Bench, _: Both, __: ExitStack) -> Run:
    def run(system: System) -> Load:
        name = "produce"
        with bench.topic(system) as topic:
            samples = produce(bench, system, name, topic, bench.size.records_1k, KIB, "acks=1")
        return Load(samples[name], samples[f"{name}, CPU"])

    return run


small_produce = beside_each_other("small produce 32x2", 2, _small_produce)
produce_1k = beside_each_other("produce 1 KiB", 1, _produce_1k)
