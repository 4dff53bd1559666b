"""The clients that push metrics to this broker (KIP-714): their own view of latency beside the broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.metrics.table import catalogue

if TYPE_CHECKING:
    from barnabas.broker.live.look import Look
    from barnabas.broker.telemetry.series import ClientSeries, SeriesStore
    from barnabas.common.pages.live_shape import Listed, PushingClient
    from barnabas.metrics.registry import Registry


class _Kind(NamedTuple):
    """A kind of client: the beginning of its metrics' names, the latency to show, and the broker's requests for it."""

    name: str
    latencies: tuple[str, ...]
    api: str

    @property
    def prefix(self) -> str:
        return f"org_apache_kafka_{self.name}_"


# Why two latencies: librdkafka has only that by node.
_KINDS: Final = (
    _Kind("producer", ("request_latency", "node_request_latency"), "Produce"),
    _Kind("consumer", ("fetch_manager_fetch_latency", "node_request_latency"), "FetchConsumer"),
)
_OTHER: Final = _Kind("", (), "")
_QUEUE_TIME: Final = "record_queue_time_avg"


def clients(store: SeriesStore, registry: Registry, look: Look) -> Listed:
    """Return the clients, by client id."""
    found = sorted(store.clients(), key=lambda client: (client.own_labels["client_id"], client.instance.id))
    medians = {kind.api: _median_ms(registry, kind.api) for kind in _KINDS} if found else {}
    return look.some([_client(client, medians, look) for client in found[: look.limit]], len(found))


def _client(client: ClientSeries, medians: dict[str, float | None], look: Look) -> PushingClient:
    kind = next((kind for kind in _KINDS if any(name.startswith(kind.prefix) for name, _ in client.by_key)), _OTHER)
    attributes = client.instance.attributes
    software = f"{attributes.get('client_software_name')} {attributes.get('client_software_version')}"

    def measured(ending: str) -> float | None:
        return client.value(f"{kind.prefix}{latency}_{ending}" for latency in kind.latencies)

    return {
        "client_id": client.own_labels["client_id"],
        "client_instance_id": client.own_labels["client_instance_id"],
        "kind": kind.name,
        "software": software,
        "address": f"{attributes.get('client_source_address')}:{attributes.get('client_source_port')}",
        "interval_ms": client.instance.wanted.interval_ms,
        "pushed_ms": max(0, look.now_ms - client.pushed_ms),
        "series": len(client.by_key),
        "latency_avg_ms": measured("avg"),
        "latency_max_ms": measured("max"),
        "queue_avg_ms": client.value([kind.prefix + _QUEUE_TIME]),
        "broker_api": kind.api,
        "broker_median_ms": medians.get(kind.api),
    }


def _median_ms(registry: Registry, api: str) -> float | None:
    """Return the median time of the recent requests of an API; None without any."""
    histogram = registry.histogram(catalogue.TOTAL_TIME_MS, request=api)
    with registry.scraping:
        snapshot = histogram.snapshot(registry.now_s())
    return round(snapshot.quantiles(["0.50"])[0], 3) if snapshot.count else None
