"""What the suite knows of the program and of the simulated engines behind it."""

import json
import os
import time
import urllib.request
import uuid

import openai

MODEL = "sim"
QUESTIONS = [
    "What did you see last night from the gallery, of the ships, of the weather and of the birds that rest there?",
    "And which of it did you write down?",
    "Who is going to read it?",
]
DECODE, PREFILLS = os.environ["DECODE_URL"], os.environ["PREFILL_URLS"].split()
LAST = {"X-Conversation-Final": "true"}
HIT = r"^hit;tokens=\d+;read=\d+;age=\d+\.\d;proof=tokens;confirmed=\d+(;reason=\w+)?(;differs=.+)?$"


def client(variable="CARRYOVER_URL", kind=openai.OpenAI, **options):
    return kind(base_url=os.environ[variable] + "/v1", api_key="a client's key", max_retries=0, timeout=60, **options)


def new_id():
    return f"python-{uuid.uuid4()}"


def system(id):
    """Opens a conversation as no other: of what prefill has computed for another, it would read nothing."""
    return {"role": "system", "content": f"You keep log {id} of a lighthouse on an island far out at sea. You answer in whole sentences, and briefly."}


def fault(url, route="/v1/chat", **fault):
    """Sets a fault of a simulated engine, for requests of a route. Legs that release tickets take that of text completions."""
    request = urllib.request.Request(url + "/_sim/faults", data=json.dumps({"route": route} | fault).encode())
    urllib.request.urlopen(request, timeout=60).close()


def decode_stats():
    with urllib.request.urlopen(DECODE + "/_sim/stats", timeout=60) as answer:
        return json.load(answer)


def until(what, holds):
    """Asks again until it holds, for a minute."""
    end = time.monotonic() + 60
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain until {what}")


def warm_up(converse):
    """Repeats a conversation until two in a row reuse KV: each prefill instance has to see each shape of request once first.

    converse holds a conversation under a fresh id and returns the X-KV-Reuse of its turns.
    """
    hits = lambda: all(reuse.startswith("hit;") for reuse in converse()[1:])
    until("turns reuse KV", lambda: hits() and hits())
