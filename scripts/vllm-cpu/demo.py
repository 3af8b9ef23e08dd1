"""Runs a conversation through Carryover against a real prefill/decode pair and checks it against the engines.

Of every turn two things must hold:
  - the answer equals that of a lone request, sent straight to the prefill instance without kv_transfer_params;
  - decode read the prompt's KV and computed none of it itself, by its own counters (see check_transfer).

Every request has a cache_salt of its own, so no prefix cache of either engine helps: what decode does not read, it
has to compute. Carryover forwards the member to both legs like any other.
"""

import argparse
import json
import re
import sys
import time
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass, field, replace

TIMEOUT = 120  # seconds for one request; a turn takes 0.1 to 0.5 on two idle cores, the first transfer about 1

SYSTEM = ("You answer questions about a service that moves the memory of a language model between two machines. "
          "You answer in one short sentence and you never repeat the question. ") * 2

QUESTIONS = (
    "Which instance holds the blocks after a turn?",
    "And for how long are they kept there?",
    "What does the next prompt begin with?",
    "Why must nobody read a block twice?",
)

ROW = "{:8} {:6} {:>7} {:>7} {:>9} {:>8}  {:5}  {}"

# Long enough for several blocks of 32 tokens: swapped blocks must show.
TEXT = ("The prefill instance computes the prompt once, and the decode instance reads what it computed. "
        "The next prompt begins with the prompt before it and the answer that was given to it. After that")


@dataclass
class Answer:
    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    reuse: str  # Carryover's X-KV-Reuse

    def same_as(self, other: "Answer") -> bool:
        return replace(self, reuse="") == replace(other, reuse="")


def salted(body: dict) -> dict:
    return {**body, "cache_salt": uuid.uuid4().hex}


def ask(base: str, path: str, body: dict) -> Answer:
    request = urllib.request.Request(base + path, json.dumps(salted(body)).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            raw = response.read().decode()
            reuse = response.headers.get("X-KV-Reuse", "-")
    except urllib.error.HTTPError as e:
        sys.exit(f"POST {base}{path}: {e.code} {e.read().decode(errors='replace')[:500]}")
    except OSError as e:
        sys.exit(f"POST {base}{path}: {e}")
    events = stream_events(raw) if body.get("stream") else [json.loads(raw)]
    return assemble(events, reuse)


def stream_events(raw: str) -> list[dict]:
    data = [line.removeprefix("data: ") for line in raw.splitlines() if line.startswith("data: ")]
    if not data or data[-1] != "[DONE]":
        sys.exit(f"the stream ends without [DONE]: ...{raw[-500:]}")
    return [json.loads(event) for event in data[:-1]]


def assemble(events: list[dict], reuse: str) -> Answer:
    text, finish_reason, usage = "", "", {}
    for event in events:
        if "error" in event:
            sys.exit(f"error event: {event['error']}")
        for choice in event["choices"]:
            said = choice.get("message") or choice.get("delta") or choice
            text += said.get("content") or said.get("text") or ""
            finish_reason = choice.get("finish_reason") or finish_reason
        usage = event.get("usage") or usage
    return Answer(text, finish_reason, usage.get("prompt_tokens", -1), usage.get("completion_tokens", -1), reuse)


def prompt_tokens_by_source(base: str) -> dict[str, int]:
    with urllib.request.urlopen(base + "/metrics", timeout=TIMEOUT) as response:
        lines = response.read().decode()
    found = re.findall(r'^vllm:prompt_tokens_by_source_total\{[^}]*source="(\w+)"[^}]*\} (\S+)$', lines, re.MULTILINE)
    counters: dict[str, int] = {}
    for source, value in found:
        counters[source] = counters.get(source, 0) + int(float(value))
    return counters


def counted(base: str, before: dict[str, int], total: int) -> dict[str, int]:
    """What decode counted since before. Its counters may follow an answer by a moment: wait until they add up."""
    deadline = time.monotonic() + 5
    while True:
        after = prompt_tokens_by_source(base)
        delta = {source: after[source] - before.get(source, 0) for source in after}
        if sum(delta.values()) >= total or time.monotonic() > deadline:
            return delta
        time.sleep(0.1)


@dataclass
class Demo:
    carryover: str
    prefill: str
    decode: str
    model: str
    faults: list[str] = field(default_factory=list)

    def turn(self, name: str, path: str, body: dict, **identity: str) -> str:
        """One turn through Carryover and the lone request it must equal; returns the answer's text."""
        body = {"model": self.model, "temperature": 0, "max_tokens": 24, **body}
        if body["stream"]:
            body["stream_options"] = {"include_usage": True}
        lone = ask(self.prefill, path, body)
        before = prompt_tokens_by_source(self.decode)
        got = ask(self.carryover, path, {**body, **identity})
        delta = counted(self.decode, before, lone.prompt_tokens)
        equal = self.check_answer(name, got, lone)
        self.check_transfer(name, delta, lone.prompt_tokens)
        print(ROW.format(name, "yes" if body["stream"] else "no", lone.prompt_tokens, lone.completion_tokens,
                         delta["external_kv_transfer"], delta["local_compute"], "yes" if equal else "NO", got.reuse), flush=True)
        return got.text

    def check_answer(self, name: str, got: Answer, lone: Answer) -> bool:
        equal = got.same_as(lone)
        if not equal:
            self.faults.append(f"{name}: the answer is\n    {got}\n  and that of the lone request is\n    {lone}")
        return equal

    def check_transfer(self, name: str, delta: dict[str, int], prompt_tokens: int) -> None:
        """A full hand-over, as measured on vLLM 0.32 for prompts of 2 to 400 tokens, multiples of the block size or
        not: decode counts every prompt token as external_kv_transfer and none as local_compute. A decode instance
        that is given no params counts them the other way round, and its answer is the same."""
        want = {"external_kv_transfer": prompt_tokens, "local_compute": 0, "local_cache_hit": 0}
        if delta != want:
            self.faults.append(f"{name}: decode's prompt tokens by source are {delta}, want {want}")

    def run(self) -> None:
        print(ROW.format("turn", "stream", "prompt", "answer", "external", "local", "equal", "X-KV-Reuse"))
        print(ROW.format("", "", "tokens", "tokens", "transfer", "compute", "", ""))
        conversation = f"demo-{uuid.uuid4()}"
        messages = [{"role": "system", "content": SYSTEM}]
        for number, question in enumerate(QUESTIONS, start=1):
            messages.append({"role": "user", "content": question})
            answer = self.turn(f"chat {number}", "/v1/chat/completions", {"messages": messages, "stream": number % 2 == 1},
                               conversation_id=conversation)
            messages.append({"role": "assistant", "content": answer})
        for number, stream in enumerate((False, True), start=1):
            self.turn(f"text {number}", "/v1/completions", {"prompt": TEXT, "stream": stream})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carryover", required=True, metavar="URL")
    parser.add_argument("--prefill", required=True, metavar="URL")
    parser.add_argument("--decode", required=True, metavar="URL")
    parser.add_argument("--model", default="tiny")
    demo = Demo(**vars(parser.parse_args()))
    demo.run()
    if demo.faults:
        sys.exit("\n".join(["", "not as it must be:", *demo.faults]))
    print("every answer equals that of a lone request, and decode computed nothing of any prompt")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
