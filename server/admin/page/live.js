// The live data: server-sent events, read with fetch, because an EventSource can't send the token.

import { ask, forget } from "./token.js";

const silence = 10_000; // ms without an event, of which there is one a second, after which a connection counts as lost
const longest = 10_000; // ms between two attempts

// Live follows the live data. tell(state, why) hears how that goes: "connecting", "live", "lost", "full", "token", "refused", "paused".
export class Live {
  #tell;
  #show;
  #end = null; // ends what is under way, an AbortController

  constructor(show, tell) {
    this.#show = show;
    this.#tell = tell;
  }

  // start begins anew, whatever is under way.
  start() {
    this.stop();
    this.#end = new AbortController();
    this.#follow(this.#end.signal);
  }

  stop(state) {
    this.#end?.abort();
    this.#end = null;
    if (state !== undefined) {
      this.#tell(state);
    }
  }

  async #follow(signal) {
    this.#tell("connecting");
    for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, longest)) {
      const outcome = await this.#once(signal, () => { wait = 500; });
      if (signal.aborted) {
        return;
      }
      this.#tell(...outcome);
      if (outcome[0] === "token" || outcome[0] === "refused") {
        return;
      }
      await pause(wait, signal);
    }
  }

  // once reads one answer to its end, and returns what to tell.
  async #once(signal, came) {
    const quiet = new AbortController();
    let watch = setTimeout(() => quiet.abort(), silence);
    try {
      const answer = await ask("admin/live", { signal: AbortSignal.any([signal, quiet.signal]) });
      switch (answer.status) {
        case 200: break;
        case 401: return forget() ? ["token", "that was another one"] : ["token"];
        case 403: return ["refused", await reason(answer)];
        case 503: return ["full"];
        default: return ["lost"];
      }
      for await (const event of events(answer.body)) {
        clearTimeout(watch);
        watch = setTimeout(() => quiet.abort(), silence);
        came();
        this.#tell("live");
        try {
          this.#show(event);
        } catch (error) {
          reportError(error); // of this page, which the connection has nothing to do with
        }
      }
    } catch (error) {
      if (error instanceof SyntaxError) { // an answer of something else than this listener
        return ["lost"];
      }
      if (!(error instanceof TypeError || error instanceof DOMException)) { // not the connection's fault
        throw error;
      }
    } finally {
      clearTimeout(watch);
    }
    return ["lost"];
  }
}

async function reason(answer) {
  const body = await answer.json().catch(() => ({}));
  return body.error?.message ?? "";
}

// events yields the data of each event of a stream.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      return;
    }
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const data = text.slice(0, end).split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      text = text.slice(end + 2);
      yield JSON.parse(data.join("\n"));
    }
  }
}

// pause waits, or until the signal.
function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
