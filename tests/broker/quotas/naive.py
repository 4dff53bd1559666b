"""A second, slow implementation of Kafka's sampled rate, to compare with: every event is kept."""

from __future__ import annotations


class NaiveRate:
    """Kafka's Rate over WindowedSum: samples as records of a ring, reset one by one."""

    def __init__(self, samples: int, sample_ms: int) -> None:
        self.samples, self.sample_ms = samples, sample_ms
        self.ring: list[dict[str, float]] = []
        self.at = 0

    def _sample(self, now_ms: int) -> dict[str, float]:
        if not self.ring:
            self.ring.append({"start": now_ms, "last": now_ms, "value": 0.0})
        return self.ring[self.at]

    def record(self, value: float, now_ms: int) -> None:
        sample = self._sample(now_ms)
        if now_ms - sample["start"] >= self.sample_ms:
            self.at = (self.at + 1) % (self.samples + 1)
            if self.at >= len(self.ring):
                self.ring.append({"start": now_ms, "last": now_ms, "value": 0.0})
            else:
                self.ring[self.at].update(start=now_ms, last=now_ms, value=0.0)
            sample = self.ring[self.at]
        sample["value"] += value
        sample["last"] = now_ms

    def measure(self, now_ms: int) -> float:
        self._sample(now_ms)
        for sample in self.ring:
            if now_ms - sample["last"] >= self.samples * self.sample_ms:
                sample.update(start=now_ms, last=now_ms, value=0.0)
        elapsed = now_ms - min(sample["start"] for sample in self.ring)
        whole = int(elapsed / self.sample_ms)
        if whole < self.samples - 1:
            elapsed += (self.samples - 1 - whole) * self.sample_ms
        return sum(sample["value"] for sample in self.ring) / (max(elapsed, 1) / 1000)
