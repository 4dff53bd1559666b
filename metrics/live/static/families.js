// Requests by kind: each family has a name and, in base.css, a colour (--family-...).

/** In the order of the legend. */
export const FAMILIES = {
  produce: "Produce",
  consume: "Fetch by consumers",
  follow: "Fetch by replicas",
  group: "Groups",
  transaction: "Transactions",
  control: "Controller",
  other: "Others",
};

const BY_API = {
  produce: ["Produce"],
  consume: ["Fetch", "FetchConsumer"],
  follow: ["FetchFollower"],
  group: [
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetDelete",
    "DescribeGroups",
    "ListGroups",
    "DeleteGroups",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
  ],
  transaction: [
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "DescribeTransactions",
    "ListTransactions",
    "DescribeProducers",
  ],
  control: [
    "LeaderAndIsr",
    "UpdateMetadata",
    "StopReplica",
    "BrokerRegistration",
    "BrokerHeartbeat",
    "AlterPartition",
    "AllocateProducerIds",
    "Envelope",
    "AssignReplicasToDirs",
  ],
};
const FAMILY_OF = new Map(
  Object.entries(BY_API).flatMap(([family, apis]) => apis.map((api) => [api, family])),
);

/** The family of an API by its name. */
export function familyOfApi(api) {
  return FAMILY_OF.get(api) ?? "other";
}

/** The family of a request in progress; null (an append by a coordinator) belongs to the groups. */
export function familyOf(request) {
  if (request === null) return "group";
  return request.follower_id === null ? familyOfApi(request.api) : "follow";
}

/** A key that no other request has. */
export function keyOf(request) {
  return `${request.connection} ${request.correlation_id}`;
}

/** Requests per second by family, from two answers; null without an earlier answer. */
export function ratesBetween(before, now) {
  if (before === null || now.at_ms <= before.at_ms) return null;
  const rates = Object.fromEntries(Object.keys(FAMILIES).map((family) => [family, 0]));
  for (const [api, finished] of Object.entries(now.requests.finished)) {
    const added = finished - (before.requests.finished[api] ?? 0);
    rates[familyOfApi(api)] += Math.max(0, added) / ((now.at_ms - before.at_ms) / 1000);
  }
  return rates;
}
