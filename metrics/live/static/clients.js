// The panel "Clients": what clients measure themselves and push (KIP-714), beside the broker's own view.

import { count, duration, whole } from "./format.js";
import { block, showTable } from "./threads.js";

/** Make the panel; returns the function that shows an answer in it. */
export function clientsPanel(panel) {
  const clients = block(
    "Clients that push their metrics",
    "the time that a client waits for its answers, beside the time that they take here",
  );
  panel.append(clients.section);
  return (live) => {
    const { items, total } = live.clients;
    showTable(
      clients,
      COLUMNS,
      items,
      (c) => c.client_instance_id,
      total > items.length ? `${whole(items.length)} of ${count(total, "client")}` : "",
      "No client pushes its metrics to this broker. kafka-client-metrics subscribes to them.",
    );
  };
}

const time = (ms) => (ms === null ? "–" : duration(ms));
const COLUMNS = [
  ["client", (c) => c.client_id || "–"],
  ["kind", (c) => c.kind || "–"],
  ["waits, on average", (c) => time(c.latency_avg_ms), "number"],
  ["at most", (c) => time(c.latency_max_ms), "number"],
  ["here, median", (c) => (c.broker_api ? `${c.broker_api} ${time(c.broker_median_ms)}` : "–"), "number"],
  ["records wait for it", (c) => time(c.queue_avg_ms), "number"],
  ["software", (c) => c.software],
  ["address", (c) => c.address, "mono"],
  ["metrics", (c) => whole(c.series), "number"],
  ["pushed", (c) => `${duration(c.pushed_ms)} ago, every ${duration(c.interval_ms)}`],
];
