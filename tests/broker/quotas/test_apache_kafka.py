"""Rates and token buckets measure what those of Apache Kafka's own client library measure."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from barnabas.broker.quotas.rates import SampledRate, TokenBucket, Window
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.kafka_tools import SMALL_JVM

SOURCE = Path(__file__).with_name("RateCheck.java")
CASES = 200
STEPS = 150
START_MS = 10**9  # Kafka's bucket is full if its clock began long ago


def test_rates_and_buckets_agree(apache_runtime: KafkaRuntime) -> None:
    rng = random.Random(5)
    commands: list[str] = []
    ours: list[tuple[float, ...]] = []
    for _ in range(CASES):
        window = Window(rng.choice((1, 2, 3, 11)), rng.choice((100, 1000, 30_000)))
        limit = rng.choice((0.5, 5.0, 1000.0))
        rate, bucket = SampledRate(window), TokenBucket(window)
        commands.append(f"new {window.samples} {window.sample_ms} {limit}")
        now_ms = START_MS + rng.randrange(10**6)
        for _ in range(STEPS):
            now_ms += rng.choice((0, 0, 1, 7, window.sample_ms // 2, window.sample_ms, window.length_ms, 40_000))
            if rng.random() < 0.7:
                value = rng.randrange(-50, 1000)
                commands.append(f"record {value} {now_ms}")
                rate.record(value, now_ms)
                bucket.record(value, limit, now_ms)
            if rng.random() < 0.5:
                commands.append(f"measure {now_ms}")
                ours.append((rate.measure(now_ms), rate.window_ms(now_ms), bucket.measure(limit, now_ms)))
    command = apache_runtime.command("RateCheck", *SMALL_JVM, classes=apache_runtime.compiled(SOURCE))
    output = subprocess.run(command, input="\n".join(commands), capture_output=True, text=True, check=True).stdout
    theirs = [tuple(map(float, line.split())) for line in output.splitlines()]
    assert len(theirs) == len(ours) > CASES * STEPS // 3
    for expected, found in zip(theirs, ours, strict=True):
        assert found == pytest.approx(expected, abs=1e-6)
