// The panel "Groups": the groups and open transactions that this broker coordinates, the partitions that it delivers to
// share groups, and its fetchers.

import { count, duration, listed, rate, whole } from "./format.js";
import { block, showTable } from "./threads.js";

/** Make the panel; returns the function that shows an answer in it. */
export function groupsPanel(panel) {
  const groups = block(
    "Groups",
    "coordinated here: the leader of a partition of __consumer_offsets coordinates its groups",
  );
  const transactions = block("Open transactions", "coordinated here");
  const shares = block(
    "Share partitions",
    "delivered here: the leader of a partition hands its records to the members of share groups",
  );
  const fetchers = block(
    "Replica fetchers",
    "threads that copy partitions from their leaders to this broker",
  );
  panel.append(groups.section, transactions.section, shares.section, fetchers.section);
  return (live) => {
    const more = (listing, thing) =>
      listing.total > listing.items.length
        ? `${whole(listing.items.length)} of ${count(listing.total, thing)}`
        : "";
    showTable(
      groups,
      GROUP_COLUMNS,
      live.groups.items,
      (g) => g.group_id,
      more(live.groups, "group"),
      "This broker coordinates no group.",
    );
    showTable(
      transactions,
      TRANSACTION_COLUMNS,
      live.transactions.items,
      (t) => t.transactional_id,
      more(live.transactions, "transaction"),
      "None.",
    );
    showTable(
      shares,
      SHARE_COLUMNS,
      live.shares.items,
      (s) => `${s.topic}-${s.partition} ${s.group_id}`,
      more(live.shares, "share partition"),
      "None.",
    );
    showTable(fetchers, FETCHER_COLUMNS, live.fetchers, (f) => f.name, "", "This broker follows no partition.");
  };
}

const GROUP_COLUMNS = [
  ["group", (g) => g.group_id],
  [
    "state",
    (g) => `${g.state} (${g.type})`,
    "",
    (g) => [g.state === "Stable" ? "working" : g.members.total > 0 ? "waiting_for_room" : "sleeping", null],
  ],
  ["status", (g) => g.sentence],
  ["members", (g) => membersOf(g)],
  ["assignor", (g) => g.protocol || "–"],
  ["offsets in", (g) => `__consumer_offsets-${g.coordinator_partition}`, "mono"],
];
const TRANSACTION_COLUMNS = [
  ["transactional id", (t) => t.transactional_id],
  ["state", (t) => t.state],
  ["producer", (t) => `${t.producer_id}, epoch ${t.producer_epoch}`],
  ["partitions", (t) => t.partitions.join(", ")],
  ["age", (t) => (t.age_ms < 0 ? "–" : duration(t.age_ms)), "number"],
  ["timeout", (t) => duration(t.timeout_ms), "number"],
];
const SHARE_COLUMNS = [
  ["group", (s) => s.group_id],
  ["partition", (s) => `${s.topic}-${s.partition}`, "mono"],
  ["status", (s) => s.sentence],
  ["held by", (s) => holdersOf(s)],
  ["in flight", (s) => count(s.in_flight, "record"), "number"],
  ["offsets", (s) => (s.is_loading ? "–" : `${s.start_offset} to ${s.end_offset}`), "mono"],
];
const FETCHER_COLUMNS = [
  ["thread", (f) => f.name, "", (f) => [f.is_alive ? "working" : "waiting_for_room", null]],
  ["copies from", (f) => `broker ${f.leader}`],
  ["partitions", (f) => whole(f.partitions), "number"],
  ["failed", (f) => whole(f.failed), "number"],
  ["furthest behind", (f) => count(f.max_lag, "record"), "number"],
  ["fetches per second", (f) => rate(f.per_second), "number"],
];

function holdersOf(share) {
  const held = share.held.items.slice(0, 4).map((h) => {
    const offsets = h.first_offset === h.last_offset ? `${h.first_offset}` : `${h.first_offset}–${h.last_offset}`;
    const times = h.delivery_count > 1 ? `, delivery ${h.delivery_count}` : "";
    return `${h.member_id}: ${offsets} for ${duration(h.left_ms)}${times}`;
  });
  if (share.held.total > held.length) held.push(`${whole(share.held.total - held.length)} more`);
  return held.join("; ") || "nobody";
}

function membersOf(group) {
  const names = group.members.items
    .slice(0, 4)
    .map((m) => {
      const notes = [m.state === "member" || m.state === "stable" ? "" : m.state, m.tasks ?? ""].filter(Boolean);
      return notes.length ? `${m.client_id} (${notes.join("; ")})` : m.client_id;
    });
  if (group.members.total > names.length) names.push(`${group.members.total - names.length} more`);
  return listed(names) || "none";
}
