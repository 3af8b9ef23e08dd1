// The timeline of a conversation: its turns, oldest first.

import { bar, byId, h, Table, tagged, text } from "./dom.js";
import { count, milliseconds, none, span, time } from "./format.js";
import { ask } from "./token.js";

function columns() {
  return [
    { head: "Began", title: "When the turn began", key: (t) => t.began, make: (t) => h("time", { datetime: t.began }, time(t.began)) },
    { head: "After", title: "Time since the end of the turn before", class: "number", text: (t) => (t.gap === undefined ? none : span(t.gap)) },
    {
      head: "Outcome", title: "Whether KV was reused, and why not", key: (t) => [t.outcome, t.reason, t.differs].join(),
      make: (t) => tagged(t.outcome, t.outcome, [t.outcome, t.reason?.replaceAll("_", " "), t.differs].filter(Boolean).join(" · "), t.hint),
    },
    { head: "Prefill → decode", title: "The instances of its last legs", text: (t) => `${t.prefill || none} → ${t.decode || none}` },
    {
      head: "Reused of prompt", title: "Tokens of the ticket that could be used, and tokens of the prompt", class: "number", key: (t) => [t.tokens_offered, t.prompt_tokens].join(),
      make: (t) => h("span", {}, bar((t.tokens_offered ?? 0) / (t.prompt_tokens || Infinity), t.outcome), `${count(t.tokens_offered ?? 0)} / ${count(t.prompt_tokens)}`),
    },
    { head: "First token", title: "From the request to the first byte of the answer", class: "number", text: (t) => (t.ttft_ms ? milliseconds(t.ttft_ms) : none) },
    { head: "Took", title: "From the request to the end of the answer", class: "number", text: (t) => milliseconds(t.duration_ms) },
    { head: "Ticket kept", title: "Whether the answer left a ticket for the next turn, or why not", text: (t) => t.stored ?? none },
    { head: "Turn", title: "X-Request-Id, as the log names the turn", class: "code", text: (t) => t.turn },
  ];
}

export class Conversation {
  #table = new Table(byId("conversation-table"), columns());
  #asked = 0;

  constructor() {
    byId("conversation-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.open(byId("conversation-hash").value.trim());
    });
  }

  // open asks for a conversation and shows it.
  async open(hash) {
    const asked = ++this.#asked;
    byId("conversation-hash").value = hash;
    byId("conversation-hash").focus();
    const [turns, words] = await fetchTurns(hash);
    if (asked !== this.#asked) {
      return; // another was asked for meanwhile
    }
    text(byId("conversation-note"), words);
    byId("conversation-table").hidden = turns.length === 0;
    this.#table.show(turns, (turn) => `${turn.turn} ${turn.began}`);
  }
}

// fetchTurns returns the turns of a conversation, oldest first, and what is to be said.
async function fetchTurns(hash) {
  let answer;
  try {
    answer = await ask(`admin/conversations/${encodeURIComponent(hash)}`);
  } catch {
    return [[], "The listener does not answer."];
  }
  const body = await answer.json().catch(() => undefined);
  if (body === undefined) {
    return [[], "This listener tells nothing of conversations."];
  }
  if (answer.status !== 200 && answer.status !== 404) {
    return [[], body.error?.message ?? `The listener answers ${answer.status}.`];
  }
  const turns = [...(body.turns ?? [])].reverse();
  const tickets = body.tickets ?? [];
  if (turns.length + tickets.length === 0) {
    return [[], `Nothing is kept of conversation ${hash}.`];
  }
  for (let i = 1; i < turns.length; i++) {
    turns[i].gap = Date.parse(turns[i].began) - Date.parse(turns[i - 1].began) - turns[i - 1].duration_ms;
  }
  const hits = turns.filter((turn) => turn.outcome === "hit").length;
  return [turns, [`Conversation ${hash}: ${count(turns.length)} turns are kept, ${count(hits)} of them hits.`, ...tickets.map(inWords)].join(" ")];
}

function inWords(ticket) {
  return `A ticket for ${count(ticket.tokens)} tokens on ${ticket.instance} can be used until ${time(ticket.deadline)}.`;
}
