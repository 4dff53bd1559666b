// The panel "Waiting": each waiting operation, its reason and its progress.

import { element, setText, set, style, sync } from "./dom.js";
import { familyOf, keyOf } from "./families.js";
import { count, duration, listed, whole } from "./format.js";
import { isOld } from "./picture.js";

const PLACES = {
  Produce: ["Produce purgatory", "acks=all: completes when every in-sync replica has the records"],
  DeleteRecords: ["Delete records purgatory", "completes when every live replica has deleted the records"],
  topic: ["Topic purgatory", "completes when the controller has decided and this broker has its push"],
  elsewhere: [
    "With a coordinator",
    "members of groups, commits, transactions: completed by their coordinator or by another broker",
  ],
  Fetch: [
    "Fetch purgatory",
    "long polls: consumers and replicas wait here for new records, as intended",
  ],
};

/** Make the panel; returns the function that shows an answer in it. */
export function waitingPanel(panel) {
  const blocks = element("div");
  const none = element("p", { class: "none" });
  panel.append(blocks, none);
  return (live) => {
    const places = live.purgatories.map((place) => ({ ...place, total: place.delayed }));
    places.push({ name: "elsewhere", ...live.elsewhere });
    const order = Object.keys(PLACES);
    places.sort((one, two) => order.indexOf(one.name) - order.indexOf(two.name));
    const [inhabited, empty] = [
      places.filter((place) => place.total > 0),
      places.filter((place) => place.total === 0),
    ];
    sync(blocks, inhabited, (place) => place.name, makePlace, showPlace);
    setText(
      none,
      empty.length > 0
        ? `Nothing waits here: ${listed(empty.map((place) => PLACES[place.name]?.[0] ?? place.name))}.`
        : "",
    );
  };
}

/** The number of operations that wait longer than they should. */
export function oldCount(live) {
  return [...live.purgatories, live.elsewhere].flatMap((place) => place.items).filter(isOld).length;
}

function makePlace(place) {
  const [title, meaning] = PLACES[place.name] ?? [place.name, ""];
  const heading = element("h2", {}, title, element("span", { class: "badge" }));
  return element(
    "section",
    { class: "block" },
    heading,
    element("p", { class: "soft" }, meaning),
    element("ul", { class: "waiting" }),
    element("p", { class: "none" }),
  );
}

function showPlace(block, place) {
  const [heading, , list, rest] = block.children;
  const badge = heading.lastElementChild;
  setText(badge, whole(place.total));
  set(badge, "data-mood", place.items.some(isOld) ? "warn" : null);
  sync(list, place.items, waitingKey, makeItem, showItem);
  const hidden = Math.max(0, place.total - place.items.length);
  setText(rest, hidden > 0 ? `and ${whole(hidden)} more` : "");
}

function waitingKey(item) {
  return item.request === null ? `${item.keys.join()} ${item.sentence}` : keyOf(item.request);
}

function makeItem(item) {
  const family = familyOf(item.request);
  const dot = element("i", { class: "dot", "data-family": family, "aria-hidden": "true" });
  return element(
    "li",
    {},
    element("span", { class: "age" }),
    dot,
    element("p", { class: "sentence" }),
    element("span", { class: "deadline" }),
    element("ul", { class: "lag" }),
  );
}

function showItem(child, item) {
  const [age, , sentence, deadline, lag] = child.children;
  setText(age, duration(item.age_ms));
  set(age, "data-mood", isOld(item) ? "warn" : null);
  setText(sentence, `${item.sentence[0].toUpperCase()}${item.sentence.slice(1)}.`);
  setText(deadline, item.deadline_ms === null ? "" : `times out in ${duration(item.deadline_ms)}`);
  const replicas = item.reasons
    .filter((reason) => reason.kind === "replica" && reason.replica_offset >= 0)
    .slice(0, 3);
  sync(lag, replicas, (reason) => `${reason.topic} ${reason.partition} ${reason.replica}`, makeLag, showLag);
}

function makeLag() {
  return element(
    "li",
    {},
    element("span"),
    element("span", { class: "fill", "aria-hidden": "true" }, element("i")),
    element("span"),
  );
}

/** Show a replica's progress: the bar is the last part of the log before the offset that the operation waits for. */
function showLag(child, reason) {
  const missing = reason.offset - reason.replica_offset;
  const window = Math.max(10, missing * 2);
  setText(child.children[0], `on replica ${reason.replica}`);
  style(child.children[1], "--share", `${Math.max(0, 1 - missing / window) * 100}%`);
  setText(
    child.children[2],
    `${whole(reason.replica_offset)} of ${whole(reason.offset)}: ${count(missing, "record")} to go`,
  );
}
