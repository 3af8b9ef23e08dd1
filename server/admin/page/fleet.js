// The fleet, and what tickets pin of it.

import { drainButton } from "./drain.js";
import { bar, byId, h, Table, tagged } from "./dom.js";
import { count, none, percent } from "./format.js";

const bad = new Set(["down", "open", "quarantined"]);

function state(instance) {
  const kind = instance.state === "up" ? "hit" : bad.has(instance.state) ? "bad" : "miss";
  const words = tagged(instance.state, kind, instance.state.replace("_", " "));
  return instance.why ? h("div", {}, words, h("span", { class: "why" }, instance.why)) : words;
}

// shared is a share with its bar, and perhaps a mark on it.
function shared(share, kind, mark) {
  return h("span", {}, bar(share, kind, mark), percent(share));
}

const fleetColumns = [
  { head: "Instance", title: "The name in the configuration, or of the source of instances", text: (i) => i.name },
  { head: "Role", title: "What the instance does: prefill computes prompts, decode writes answers", text: (i) => (i.rank === undefined ? i.role : `${i.role}, rank ${i.rank}`) },
  { head: "State", title: "What this replica knows of the instance; only instances that are up are picked while there are any", key: (i) => i.state + (i.why ?? ""), make: state },
  { head: "In flight", title: "Legs of this replica that run there now", class: "number", text: (i) => count(i.in_flight) },
  { head: "Of others", title: "Requests there that are not of this replica, as the engine reported last", class: "number", text: (i) => count(i.others) },
  { head: "Running", title: "Requests that the engine computes, as it reported last", class: "number", text: (i) => count(i.running) },
  { head: "Waiting", title: "Requests that wait within the engine, as it reported last", class: "number", text: (i) => count(i.waiting) },
  {
    head: "KV cache in use", title: "Share of the KV blocks that the engine has in use, as it reported last", class: "number", key: (i) => i.kv_usage,
    make: (i) => (i.kv_usage === undefined ? none : shared(i.kv_usage, "")),
  },
  { head: "µs per token", title: "How long prefill takes for a token of a prompt, as this replica has learnt it", class: "number", text: (i) => (i.us_per_prompt_token ? i.us_per_prompt_token.toFixed(0) : none) },
  { head: "Started", title: "When the engine process was started, as it reports it", class: "code", text: (i) => started(i.incarnation) },
  { head: "Models", title: "What the instance serves", class: "wide", text: (i) => i.models?.join(", ") ?? none },
  { head: "Turns", title: "Drain the instance, or take it back", key: (i) => [i.role, i.name, i.drained, i.removed].join(), make: drainButton },
];

// started is when an engine was started, which its incarnation names in seconds. It is the engine's word: not every number is a date.
function started(incarnation) {
  const date = new Date(Number(incarnation) * 1000);
  if (!incarnation || Number.isNaN(date.getTime())) {
    return incarnation || "not known";
  }
  return date.toISOString().slice(0, 19).replace("T", " ");
}

const pinnedColumns = [
  { head: "Instance", title: "The decode instance", text: (i) => i.name },
  {
    head: "Of the cache", title: "Pinned tokens as a share of the KV cache; the line is the budget", class: "number", key: (i) => [i.pinned_tokens, i.budget_tokens, i.kv_tokens].join(),
    make: (i) => (i.kv_tokens ? shared(i.pinned_tokens / i.kv_tokens, "hit", i.budget_tokens ? i.budget_tokens / i.kv_tokens : undefined) : none),
  },
  { head: "Pinned", title: "Tokens that tickets of this replica keep", class: "number", text: (i) => count(i.pinned_tokens) },
  { head: "Budget", title: "Tokens that tickets may pin before the oldest are released (--pinned-share)", class: "number", text: (i) => (i.budget_tokens ? count(i.budget_tokens) : none) },
  { head: "Capacity", title: "Tokens that the KV cache holds", class: "number", text: (i) => (i.kv_tokens ? count(i.kv_tokens) : none) },
];

export class Fleet {
  constructor() {
    this.fleet = new Table(byId("fleet-table"), fleetColumns);
    this.pinned = new Table(byId("pinned-table"), pinnedColumns);
  }

  show(snapshot) {
    const key = (i) => [i.role, i.name, i.url, i.rank ?? ""].join("\n");
    this.fleet.show(snapshot.instances, key);
    this.pinned.show(snapshot.instances.filter((i) => i.role === "decode"), key);
  }
}
