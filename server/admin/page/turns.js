// Recent turns with their records, filtered.

import { byId, h, tagged, text } from "./dom.js";
import { count, milliseconds, none, time } from "./format.js";
import { meaning } from "./reasons.js";
import { record } from "./record.js";
import { ask } from "./token.js";

const most = 200; // turns on the page; open records stay beyond that

const columns = [
  ["Ended", "", "When the turn ended; the button opens its record"],
  ["Outcome", "wide", "Whether KV was reused, and why not"],
  ["First token", "number", "From the request to the first byte of the answer"],
  ["Took", "number", "From the request to the end of the answer"],
  ["Model", "wide", "As the client named it"],
  ["Prefill → decode", "", "The instances of its last legs"],
  ["Prompt", "number", "Tokens of the prompt, by decode's usage"],
  ["Reused", "number", "Tokens of a ticket that could be used"],
  ["Read", "number", "Tokens that prefill did not compute because of what was reused"],
  ["Confirmed", "number", "Tokens that prefill says it took from caches, its own included"],
  ["Status", "number", "What the client got, with the error if there was one"],
  ["Conversation", "code", "The beginning of its keyed hash, as the log names it"],
];

// The filters: which choices a turn belongs to, and the parameter with which the listener finds older turns, if there is one.
const filters = [
  ["by-outcome", (turn) => [turn.outcome]],
  ["by-reason", (turn) => [turn.reason]],
  ["by-instance", (turn) => [turn.prefill, turn.decode, turn.blame], (value) => ["instance", value]],
  ["by-status", (turn) => [failed(turn) && "failed", `${turn.status}`, `${Math.floor(turn.status / 100)}xx`], (value) => (value === "failed" ? ["failed", "true"] : ["status", value])],
  ["by-time", (turn) => Object.keys(ago).filter((span) => Date.now() - endOf(turn) <= ago[span] * 60_000), (value) => ["since", value]],
];

const ago = { "1m": 1, "5m": 5, "15m": 15, "1h": 60 }; // minutes

const endOf = (turn) => Date.parse(turn.began) + turn.duration_ms;

// failed is the listener's failed=true: a request that asks for what can't be had says nothing of the fleet.
function failed({ status, kind, code }) {
  return ![400, 404, 413, 422].includes(status) && Boolean(status !== 200 || kind || (code && code !== "client_gone"));
}

export class Turns {
  #turns = []; // newest first: {turn, row, detail}
  #body = h("tbody");
  #openConversation;
  #asked = 0;
  #only; // names of the conversations that are shown, undefined for all

  constructor(openConversation) {
    this.#openConversation = openConversation;
    byId("turns-table").append(h("thead", {}, h("tr", {}, ...columns.map(([head, kind, title]) => h("th", { scope: "col", class: kind, title }, head)))), this.#body);
    for (const [id] of filters) {
      byId(id).prepend(h("option", { value: "" }, "all"));
      byId(id).value = "";
      byId(id).addEventListener("change", () => this.#find());
    }
  }

  // only shows no turns but those of some conversations, or all turns.
  only(names) {
    this.#only = names;
    this.#filter(true);
  }

  clear() {
    this.#turns = [];
    this.#body.replaceChildren();
  }

  // show adds the records of turns that ended since.
  show({ records }) {
    const newest = Math.max(0, this.#turns[0]?.turn.n ?? 0);
    const first = newest === 0;
    for (const turn of records.filter((turn) => turn.n > newest)) {
      const shown = this.#row(turn, first);
      this.#turns.unshift(shown);
      this.#body.prepend(shown.row, shown.detail);
      this.#offer(turn);
    }
    this.#drop();
    this.#filter(false);
  }

  // find shows what is chosen, with turns that the listener keeps and the page does not.
  async #find() {
    this.#drop(0);
    this.#filter(true);
    const asked = ++this.#asked;
    const chosen = filters.filter(([id, , parameter]) => parameter && byId(id).value !== "").map(([id, , parameter]) => parameter(byId(id).value));
    if (chosen.length === 0) {
      return;
    }
    const answer = await ask(`admin/turns?${new URLSearchParams([["limit", most], ...chosen])}`).catch(() => undefined);
    const { turns } = await answer?.json().catch(() => ({})) ?? {};
    if (asked !== this.#asked || turns === undefined) {
      return;
    }
    const known = new Set(this.#turns.map(({ turn }) => turn.turn));
    for (const turn of turns.filter(({ turn }) => !known.has(turn))) {
      const older = { ...this.#row({ ...turn, n: -this.#turns.length - 1 }, true), found: true };
      this.#turns.push(older);
      this.#body.append(older.row, older.detail);
    }
    this.#filter(true);
  }

  // drop forgets the oldest turns, but for those that are being looked at, and all but so many of those that were found.
  #drop(found = most) {
    for (const old of [...this.#turns.filter((shown) => !shown.found).slice(most), ...this.#turns.filter((shown) => shown.found).slice(found)]) {
      if (old.detail.hidden && !old.row.contains(document.activeElement)) {
        old.row.remove();
        old.detail.remove();
        old.dropped = true;
      }
    }
    this.#turns = this.#turns.filter((shown) => !shown.dropped);
  }

  #row(turn, first) {
    const id = `record-${turn.n}`;
    const ended = new Date(endOf(turn));
    const button = h("button", { type: "button", "aria-expanded": "false", "aria-controls": id, "aria-label": `Record of the turn that ended ${time(ended)}` }, time(ended));
    const detail = h("tr", { id, class: "record", hidden: true });
    button.addEventListener("click", () => this.#toggle(turn, button, detail));
    const cells = [
      outcome(turn),
      turn.ttft_ms ? milliseconds(turn.ttft_ms) : none, milliseconds(turn.duration_ms), turn.model ?? none, `${turn.prefill || none} → ${turn.decode || none}`, count(turn.prompt_tokens), count(turn.tokens_offered), count(turn.tokens_read), count(turn.tokens_confirmed),
      statusOf(turn), turn.conversation ?? none,
    ];
    const row = h("tr", { class: first ? undefined : "new" }, h("th", { scope: "row" }, button),
      ...cells.map((cell, i) => h("td", { class: columns[i + 1][1] || undefined }, cell)));
    return { turn, row, detail };
  }

  #toggle(turn, button, detail) {
    const open = detail.hidden;
    detail.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    if (!open || detail.firstChild !== null) {
      return;
    }
    const cell = h("td", { colspan: columns.length }, record(turn));
    if (turn.conversation) {
      const timeline = h("button", { type: "button" }, `Timeline of conversation ${turn.conversation}`);
      timeline.addEventListener("click", () => this.#openConversation(turn.conversation));
      cell.append(timeline);
    }
    detail.append(cell);
  }

  // offer adds a turn's reason and instances to the choices.
  #offer(turn) {
    for (const [id, choices] of filters.filter(([id]) => id !== "by-time")) {
      const select = byId(id);
      for (const choice of choices(turn)) {
        if (choice && ![...select.options].some((option) => option.value === choice)) {
          const after = [...select.options].find((option) => option.value > choice);
          select.insertBefore(h("option", { value: choice }, choice.replaceAll("_", " ")), after ?? null);
        }
      }
    }
  }

  // filter shows what is chosen. It says so aloud only where somebody has chosen.
  #filter(aloud) {
    const wanted = filters.map(([id, choices]) => [byId(id).value, choices]);
    let shown = 0;
    for (const { turn, row, detail } of this.#turns) {
      const fits = (this.#only?.has(turn.conversation) ?? true) && wanted.every(([value, choices]) => value === "" || choices(turn).includes(value));
      row.hidden = !fits;
      if (!fits && !detail.hidden) {
        row.querySelector("button").click();
      }
      shown += fits ? 1 : 0;
    }
    const words = `${count(shown)} of the last ${count(this.#turns.length)} turns`; // with those that were found
    text(byId("turns-shown"), words);
    if (aloud) {
      text(byId("said"), words);
    }
  }
}

// outcome is a turn's outcome, with what its reason means.
function outcome(turn) {
  const words = tagged(turn.outcome, turn.outcome, [turn.outcome, turn.reason?.replaceAll("_", " ")].filter(Boolean).join(" · "));
  const means = turn.hint ?? meaning(turn.reason);
  if (means !== undefined) {
    words.title = means;
  }
  return words;
}

function statusOf(turn) {
  const words = [turn.status, turn.code, turn.kind].filter(Boolean).join(" ");
  return turn.status === 200 && !turn.code && !turn.kind ? words : h("span", { class: "bad" }, `✕ ${words}`);
}
