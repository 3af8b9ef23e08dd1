// Search by the id that a client sent. The listener hashes it; the page forgets it with the input.

import { byId, h, text } from "./dom.js";
import { count } from "./format.js";
import { ask } from "./token.js";

export class Search {
  #asked = 0;

  // only(names) has the table of turns show only conversations of these names, all with undefined; open(name) shows a timeline.
  constructor(only, open) {
    byId("search-form").addEventListener("submit", async (event) => {
      event.preventDefault();
      const asked = ++this.#asked;
      const [found, words] = await find(byId("search-id").value);
      if (asked !== this.#asked) {
        return; // another was asked for meanwhile
      }
      text(byId("search-note"), words);
      byId("search-clear").hidden = false;
      byId("search-found").replaceChildren(...found.map(({ conversation }) => {
        const button = h("button", { type: "button", "aria-label": `Timeline of conversation ${conversation}` }, conversation);
        button.addEventListener("click", () => open(conversation));
        return button;
      }));
      only(new Set(found.map(({ conversation }) => conversation)));
    });
    byId("search-clear").addEventListener("click", () => {
      this.#asked++;
      byId("search-clear").hidden = true;
      byId("search-id").value = "";
      byId("search-id").focus();
      text(byId("search-note"), "");
      byId("search-found").replaceChildren();
      only(undefined);
    });
  }
}

// find returns the conversations of an id, newest first, and what is to be said.
async function find(id) {
  let answer;
  try {
    answer = await ask("admin/conversations/search", { method: "POST", body: JSON.stringify({ id }) });
  } catch {
    return [[], "The listener does not answer."];
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    return [[], body.error?.message ?? `The listener answers ${answer.status}.`];
  }
  const found = body.conversations ?? [];
  if (found.length === 0) {
    return [[], "No turn with this id is kept."];
  }
  const turns = found.reduce((sum, { turns }) => sum + turns, 0);
  return [found, `${count(turns)} turns of ${count(found.length)} conversation${found.length === 1 ? "" : "s"}:`];
}
