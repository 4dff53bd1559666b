// The live page: requests the state of the process twice a second and shows it.

import { brokersPanel } from "./brokers.js";
import { clientsPanel } from "./clients.js";
import { element, setText, set, sync } from "./dom.js";
import { ratesBetween } from "./families.js";
import { duration } from "./format.js";
import { groupsPanel } from "./groups.js";
import { headline } from "./headline.js";
import { partitionsPanel } from "./partitions.js";
import { Picture } from "./picture.js";
import { Poll } from "./poll.js";
import { slowPanel } from "./slow.js";
import { threadsPanel } from "./threads.js";
import { oldCount, waitingPanel } from "./waiting.js";

const LIMIT = 50; // of each list
const ANNOUNCE_MS = 5000; // at least this long between two announcements

const ROLE = new URLSearchParams(location.search).get("role"); // of a process with both; null: that of the page

const at = (id) => document.getElementById(id);

class App {
  constructor() {
    this.before = null; // the last answer
    this.rates = null;
    this.panels = null;
    this.announcedAt = -Infinity;
    this.poll = new Poll(
      () => this.queries(),
      (live) => this.show(live),
      () => this.lost(),
    );
    at("pause").addEventListener("click", () => this.pause());
    addEventListener("hashchange", () => this.showPanel());
    document.addEventListener("theme", () => this.before && this.showPeers(this.before));
    this.poll.soon();
  }

  /** The queries of a turn: everything, and the partitions of the chosen topic if there is one. */
  queries() {
    const topic = this.partitions?.topic();
    const all = ROLE === null ? { limit: LIMIT } : { limit: LIMIT, role: ROLE };
    return [all, ...(topic ? [{ limit: LIMIT, section: "partitions", topic }] : [])];
  }

  pause() {
    const isPaused = !this.poll.isPaused;
    set(at("pause"), "aria-pressed", String(isPaused));
    setText(at("pause"), isPaused ? "Resume" : "Pause");
    this.pulse(isPaused ? "paused" : "live", isPaused ? "paused" : "live");
    this.poll.pause(isPaused);
  }

  show(live) {
    if (this.panels === null) this.build(live.node);
    const isRestart = this.before !== null && live.node.up_ms < this.before.node.up_ms;
    if (isRestart) this.before = null;
    this.rates = smoothed(this.rates, ratesBetween(this.before, live));
    this.before = live;
    this.pulse("live", "live");
    this.showPeers(live);
    const { text, mood } = headline(live, this.rates);
    setText(at("headline").lastElementChild, text);
    set(at("headline"), "data-mood", mood || null);
    this.announce(mood === "" ? "" : text);
    this.picture.show(live, this.rates);
    this.showTabs(live);
    this.current()?.show(live);
    const { role, id, cluster_id, version, up_ms } = live.node;
    setText(at("about"), `${role} ${id} of cluster ${cluster_id} · Barnabas ${version} · up ${duration(up_ms)}`);
  }

  build(node) {
    document.title = `${node.role} ${node.id} · Barnabas`;
    this.picture = new Picture(at("picture"), node.role);
    const make = (id, name, fill, mark = () => null) => {
      const panel = element("section", { id: `panel-${id}`, class: "panel", "aria-label": name });
      at("panels").append(panel);
      return { id, name, panel, show: fill(panel), mark };
    };
    const asked = () => this.poll.soon();
    const partitions = (panel) => {
      this.partitions = partitionsPanel(panel, asked);
      return this.partitions.show;
    };
    this.panels =
      node.role === "broker"
        ? [
            make("waiting", "Waiting", waitingPanel, (live) => oldCount(live) || null),
            make("threads", "Threads and queues", threadsPanel),
            make("slow", "Slow requests", slowPanel),
            make("partitions", "Partitions", partitions),
            make("groups", "Groups and fetchers", groupsPanel),
            make("clients", "Clients", clientsPanel, (live) => live.clients.total || null),
          ]
        : [
            make("brokers", "Brokers", brokersPanel),
            make("threads", "Threads and queues", threadsPanel),
            make("slow", "Slow requests", slowPanel),
          ];
    this.showPanel();
  }

  current() {
    const id = location.hash.slice(1);
    return this.panels?.find((panel) => panel.id === id) ?? this.panels?.[0];
  }

  showPanel() {
    const current = this.current();
    for (const each of this.panels ?? []) each.panel.hidden = each !== current;
    if (this.before !== null) {
      this.showTabs(this.before);
      current.show(this.before);
    }
  }

  showTabs(live) {
    const makeTab = ({ id, name }) => element("li", {}, element("a", { href: `#${id}` }, name));
    sync(
      at("tabs"),
      this.panels,
      (panel) => panel.id,
      makeTab,
      (child, panel) => {
        const link = child.firstElementChild;
        const mark = panel.mark(live);
        set(link, "aria-current", panel === this.current() ? "page" : null);
        if (mark !== null && link.childElementCount === 0)
          link.append(element("span", { class: "badge", "data-mood": "warn" }));
        if (mark === null) link.firstElementChild?.remove();
        else setText(link.firstElementChild, mark);
      },
    );
  }

  showPeers(live) {
    const { node } = live;
    setText(at("who"), `${node.role} ${node.id} · ${node.state.replaceAll("_", " ")}`);
    const theme = document.documentElement.dataset.theme;
    sync(
      at("peers"),
      node.peers,
      (peer) => `${peer.role}@${peer.address}`,
      () => element("li", {}, element("a")),
      (child, peer) => {
        const link = child.firstElementChild;
        setText(link, `${peer.role} ${peer.id}`);
        set(
          link,
          "href",
          peer.is_self
            ? location.pathname + location.search
            : `${location.protocol}//${peer.address}/live?theme=${theme}${roleOf(peer, node.peers)}${location.hash}`,
        );
        set(link, "aria-current", peer.is_self ? "page" : null);
      },
    );
  }

  lost() {
    this.pulse("lost", "no answer");
    const shown = this.before === null ? "There is nothing to show." : "This is its last known state.";
    const text = `This ${this.before?.node.role ?? "process"} does not answer. ${shown}`;
    setText(at("headline").lastElementChild, text);
    set(at("headline"), "data-mood", "bad");
    this.announce(text);
  }

  pulse(state, text) {
    set(at("pulse"), "data-state", state);
    setText(at("pulse-text"), text);
  }

  /** Announce a problem to screen readers: once, and not again when only its numbers change. */
  announce(text) {
    const gist = text.replaceAll(/[\d.,]+ (ms|s|min|h)\b/g, "some time");
    const now = performance.now();
    if (gist === this.announced || (text !== "" && now - this.announcedAt < ANNOUNCE_MS)) return;
    this.announced = gist;
    if (text !== "") this.announcedAt = now;
    setText(at("announcement"), text);
  }
}

/** What names the role in a link to a process that has both. */
function roleOf({ role, address }, peers) {
  return peers.filter((peer) => peer.address === address).length > 1 ? `&role=${role}` : "";
}

/** Smoothed rates: the mean of the new ones and those shown before. */
function smoothed(before, now) {
  if (now === null || before === null) return now ?? before;
  return Object.fromEntries(
    Object.entries(now).map(([family, each]) => [
      family,
      each < 0.05 && before[family] < 0.1 ? 0 : (each + before[family]) / 2,
    ]),
  );
}

new App();
