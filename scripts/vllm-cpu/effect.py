"""Measures what reuse saves on a real prefill/decode pair: conversations of 600 to 2,300 tokens through Carryover, each turn with reuse and
without, in alternating order. What prefill computes is its own count (vllm:prompt_tokens_by_source), the time to the first token the client's.

Each answer must equal that of a lone request, sent straight to the prefill instance. Conversations have a cache_salt each, so that none
finds what another has left in a prefix cache.
"""

import argparse
import json
import platform
import re
import statistics
import sys
import time
import urllib.request
import uuid

from demo import TIMEOUT, counted, prompt_tokens_by_source

CONVERSATIONS, TURNS, ANSWER = 2, 6, 160  # and tokens of each answer
SHORT = 32  # tokens of short ones
PATH = "/v1/chat/completions"
ABOUT = ("You answer questions about a service that moves the memory of a language model between two machines. The first machine reads the "
         "prompt, the second writes the answer and keeps what it has computed. When the next question comes, the first machine reads that from "
         "the second. You answer in one short sentence, and you say so when you do not know. You never repeat a question, you name no "
         "machine by its maker, and you do not say what you would do next. ")
QUESTION = "Question {} of {}: what does the first machine read of the second before it computes this, and what does it compute by itself?"
HABIT_TURNS = 4


def ask(base: str, body: dict, **headers: str) -> tuple[str, float, str]:
    """The answer's text, seconds until its first token, and X-KV-Reuse."""
    request = urllib.request.Request(base + PATH, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    began, first, text = time.monotonic(), 0.0, ""
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                sys.exit(f"error event: {event['error']}")
            for choice in event["choices"]:
                said = choice["delta"].get("content") or ""
                first = first or (time.monotonic() - began if said else 0.0)
                text += said
        return text, first, response.headers.get("X-KV-Reuse", "-")


def clock(messages: list[dict], number: int) -> list[dict]:
    return [{**messages[0], "content": f"It is 12:{number:02} o'clock. {messages[0]['content']}"}, *messages[1:]]


def trimmed(messages: list[dict], number: int) -> list[dict]:
    """Keeps the last question and answer before this question, from the third turn on."""
    return [messages[0], *messages[-3:]] if number > 2 else messages


def reasoning(messages: list[dict], _: int) -> list[dict]:
    """Sends back the second half of each answer: what comes behind the thoughts."""
    return [{**m, "content": m["content"][ANSWER // 2:]} if m["role"] == "assistant" else m for m in messages]


# What clients and templates make of a history, besides sending it as it was.
HABITS = {"a clock in front of the prompt": clock, "the oldest turns are left out": trimmed, "reasoning is not sent back": reasoning,
          "short answers": None}


class Effect:
    def __init__(self, carryover: str, prefill: str, model: str) -> None:
        self.carryover, self.prefill, self.model = carryover, prefill, model
        self.computed: dict[bool, list[int]] = {True: [], False: []}  # by later turn, with reuse and without
        self.ratios: list[float] = []  # of times to the first token, with reuse to without
        self.prompts: list[int] = []
        self.answers = self.wrong = self.hits = 0
        self.limit = ANSWER

    def turn(self, messages: list[dict], reuse: bool, salt: str) -> tuple[str, float, int, str]:
        body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": self.limit, "stream": True, "cache_salt": salt}
        before = prompt_tokens_by_source(self.prefill)
        text, first, said = ask(self.carryover, body, **({"X-Conversation-Id": salt} if reuse else {"X-KV-Reuse": "off"}))
        time.sleep(0.2)  # the engine's counters follow its answer
        return text, first, counted(self.prefill, before, 1)["local_compute"], said

    def habit(self, name: str, change) -> str:
        """The row of one habit: the share of later prompts that prefill was spared, and what X-KV-Reuse says."""
        self.limit = SHORT if change is None else ANSWER
        messages, salt, outcomes = [{"role": "system", "content": ABOUT}], uuid.uuid4().hex, []
        prompts = read = 0
        for number in range(1, HABIT_TURNS + 1):
            messages.append({"role": "user", "content": QUESTION.format(number, name)})
            sent = change(messages, number) if change else messages
            before = prompt_tokens_by_source(self.prefill)
            text, _, _, said = self.turn(sent, True, salt)
            tokens = sum(counted(self.prefill, before, 1).values())
            want, _, _ = ask(self.prefill, {"model": self.model, "messages": sent, "temperature": 0, "max_tokens": self.limit, "stream": True,
                                            "cache_salt": uuid.uuid4().hex})
            self.answers += 1
            self.wrong += text != want
            messages.append({"role": "assistant", "content": text})
            if number > 1:
                prompts += tokens
                read += int(found[1]) if (found := re.search(r";read=(\d+)", said)) else 0
                outcomes.append(re.sub(r";(tokens|read|age|proof|confirmed|differs)=[^;]*", "", said).replace(";reason", " reason").replace(";", " "))
            print(f"  {name}, turn {number}: {said}", file=sys.stderr, flush=True)
        return f"| {name} | {100 * read / prompts:.0f} % | {', '.join(dict.fromkeys(f'`{o}`' for o in outcomes))} |"

    def conversation(self, name: str, measured: bool) -> None:
        messages = [{"role": "system", "content": ABOUT}]
        salts = {reuse: uuid.uuid4().hex for reuse in (True, False)}
        for number in range(1, (TURNS if measured else 2) + 1):
            messages.append({"role": "user", "content": QUESTION.format(number, name)})
            body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": ANSWER, "stream": True}
            want, _, _ = ask(self.prefill, {**body, "cache_salt": uuid.uuid4().hex})
            order = (True, False) if number % 2 else (False, True)
            got = {reuse: self.turn(messages, reuse, salts[reuse]) for reuse in order}
            messages.append({"role": "assistant", "content": want})
            self.answers += 2
            self.wrong += sum(text != want for text, *_ in got.values())
            if number > 1 and measured:
                self.hits += got[True][3].startswith("hit;")
                self.ratios.append(got[True][1] / got[False][1])
                for reuse, (_, _, computed, _) in got.items():
                    self.computed[reuse].append(computed)
                print(f"  {name}, turn {number}: computed {got[False][2]} without, {got[True][2]} with; "
                      f"first token {got[False][1] * 1000:.0f} and {got[True][1] * 1000:.0f} ms; {got[True][3]}", file=sys.stderr, flush=True)


def row(effect: Effect, caching: str) -> str:
    without, reuse = (effect.computed[arm] for arm in (False, True))
    low, middle, high = statistics.quantiles(effect.ratios, n=4)
    return (f"| {caching} | {statistics.mean(without):,.0f} ({min(without):,} to {max(without):,}) | {statistics.mean(reuse):,.0f} "
            f"({min(reuse):,} to {max(reuse):,}) | {middle:.2f} ({low:.2f} to {high:.2f}) | {effect.hits} of {len(reuse)} | "
            f"{effect.wrong} of {effect.answers} |")


def machine() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        name = re.search(r"^model name\s*: (.*)$", info.read(), re.MULTILINE)
    return f"{name[1] if name else platform.processor()}, a core for each engine"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carryover", required=True, metavar="URL")
    parser.add_argument("--prefill", required=True, metavar="URL")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--caching", required=True, choices=("on", "off"), help="of the prefill instance's own prefixes")
    parser.add_argument("--habits", metavar="FILE", help="for the table of what clients do, with --caching on")
    parser.add_argument("--head", action="store_true", help="print the head of the table, too")
    args = parser.parse_args()
    effect = Effect(args.carryover, args.prefill, args.model)
    effect.conversation("warm-up", measured=False)
    for number in range(1, CONVERSATIONS + 1):
        effect.conversation(f"conversation {number}", measured=True)
    if args.head:
        with urllib.request.urlopen(args.prefill + "/version", timeout=TIMEOUT) as response:
            version = json.load(response)["version"]
        print(f"Measured on {time.strftime('%Y-%m-%d')} with vLLM {version} on {machine()}.\n")
        print("| prefix caching | computed without reuse | with reuse | first token, with to without | hits | wrong |\n|---|---|---|---|---|---|")
    print(row(effect, args.caching), flush=True)
    if args.caching == "on":
        habits = [effect.habit(name, change) for name, change in {"the history as it was": lambda m, _: m, **HABITS}.items()]
        with open(args.habits, "w", encoding="utf-8") as file:
            print("| habit | prefill spared, of later prompts | later turns say |\n|---|---|---|", *habits, sep="\n", file=file)
    if effect.wrong or not effect.hits:
        sys.exit("answers are wrong, or nothing was reused")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
