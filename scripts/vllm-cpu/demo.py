"""Runs conversations through Carryover against a real prefill/decode pair and checks them against the engines.

Of every turn these must hold:
  - the answer equals that of a lone request, sent straight to the prefill instance without kv_transfer_params;
  - decode computed nothing of the prompt, by its own counters (see check_decode);
  - prefill read from decode as many tokens as X-KV-Reuse says, by its own counters (see check_prefill).
And most turns after the second must reuse KV: the first is nothing to continue, and with the second Carryover learns
that /tokenize of this instance can be believed for requests with an answer in their history.

The prefill instance runs without a prefix cache of its own, so that what it does not compute it has read from decode.
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

ROW = "{:8} {:6} {:>7} {:>8} {:>9} {:>9} {:>8}  {:5}  {}"
BLOCK = 32  # tokens, as `up` starts the engines

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


def ask(base: str, path: str, body: dict) -> Answer:
    request = urllib.request.Request(base + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
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
    """What an engine counted since before. Counters may follow an answer by a moment: wait until they add up."""
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
    turns: int = 0
    hits: int = 0
    read: int = 0  # tokens that prefill has read from decode
    faults: list[str] = field(default_factory=list)

    def turn(self, name: str, path: str, body: dict, **identity: str) -> str:
        """One turn through Carryover and the lone request it must equal; returns the answer's text."""
        body = {"model": self.model, "temperature": 0, "max_tokens": 24, **body}
        if body["stream"]:
            body["stream_options"] = {"include_usage": True}
        lone = ask(self.prefill, path, {**body, "cache_salt": uuid.uuid4().hex})
        before = {base: prompt_tokens_by_source(base) for base in (self.prefill, self.decode)}
        got = ask(self.carryover, path, {**body, **identity})
        prefill, decode = (counted(base, before[base], lone.prompt_tokens) for base in (self.prefill, self.decode))
        equal = self.check_answer(name, got, lone)
        self.check_decode(name, decode, lone.prompt_tokens)
        self.check_prefill(name, prefill, got.reuse)
        self.read += prefill["external_kv_transfer"]
        print(ROW.format(name, "yes" if body["stream"] else "no", lone.prompt_tokens, prefill["external_kv_transfer"],
                         prefill["local_compute"], decode["external_kv_transfer"], decode["local_compute"],
                         "yes" if equal else "NO", got.reuse), flush=True)
        return got.text

    def check_answer(self, name: str, got: Answer, lone: Answer) -> bool:
        equal = got.same_as(lone)
        if not equal:
            self.faults.append(f"{name}: the answer is\n    {got}\n  and that of the lone request is\n    {lone}")
        return equal

    def check_decode(self, name: str, delta: dict[str, int], prompt_tokens: int) -> None:
        """After a full hand-over, as measured on vLLM 0.32 for prompts of 2 to 400 tokens, multiples of the block
        size or not, decode counts every prompt token as read or as found in its own prefix cache, and none as
        computed. A decode instance that is given no params computes them, and its answer is the same."""
        if delta["local_compute"] != 0 or sum(delta.values()) != prompt_tokens:
            self.faults.append(f"{name}: decode's prompt tokens by source are {delta}, want {prompt_tokens} and none computed")

    def check_prefill(self, name: str, delta: dict[str, int], reuse: str) -> None:
        offered = re.search(r"tokens=(\d+)", reuse)
        want = int(offered[1]) if offered else 0
        self.turns += 1
        self.hits += bool(offered)
        if abs(delta["external_kv_transfer"] - want) > BLOCK:
            self.faults.append(f"{name}: prefill read {delta['external_kv_transfer']} tokens, X-KV-Reuse is {reuse}")

    def run(self) -> None:
        print(ROW.format("turn", "stream", "prompt", "prefill", "prefill", "decode", "decode", "equal", "X-KV-Reuse"))
        print(ROW.format("", "", "tokens", "reads", "computes", "reads", "computes", "", ""))
        for talk in range(2):
            conversation = f"demo-{uuid.uuid4()}"
            messages = [{"role": "system", "content": SYSTEM}]
            for number, question in enumerate(QUESTIONS, start=1):
                messages.append({"role": "user", "content": f"{question} {talk}"})
                answer = self.turn(f"chat {number}", "/v1/chat/completions", {"messages": messages, "stream": number % 2 == 1},
                                   conversation_id=conversation)
                messages.append({"role": "assistant", "content": answer})
        conversation, prompt = f"demo-{uuid.uuid4()}", TEXT
        for number, stream in enumerate((False, True, False, True), start=1):
            prompt += self.turn(f"text {number}", "/v1/completions", {"prompt": prompt, "stream": stream},
                                conversation_id=conversation) + " and then"
        if self.hits < 6 or self.read == 0:
            self.faults.append(f"{self.hits} of {self.turns} turns reused KV, {self.read} tokens in all; want at least 6 turns")


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
    print(f"every answer equals that of a lone request; {demo.hits} of {demo.turns} turns reused KV: prefill read {demo.read} tokens\n"
          "from decode instead of computing them, and decode computed nothing of any prompt")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
