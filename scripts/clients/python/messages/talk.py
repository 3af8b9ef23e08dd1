"""The Anthropic SDK, its two ways to ask, and the ways that a conversation is named in."""

import json
import os
import uuid

import anthropic

from deployment import MODEL

ROUTE = "/v1/messages"
LIMIT = 120


def client(variable="CARRYOVER_URL", kind=anthropic.Anthropic, **options):
    return kind(**{"base_url": os.environ[variable], "auth_token": "a client's key", "max_retries": 0, "timeout": 60} | options)


def opening(id):
    """Opens a conversation as no other: of what prefill has computed for another, it would read nothing."""
    return f"You keep log {id} of a lighthouse on an island far out at sea. You answer in whole sentences, and briefly."


# Claude Code names its session in a header and in metadata.user_id: as JSON since 2.1.78, before that as the end of a word.
WAYS = {
    "user_id, JSON": lambda id: {"metadata": {"user_id": json.dumps({"device_id": "d", "account_uuid": "", "session_id": id})}},
    "user_id, a word": lambda id: {"metadata": {"user_id": f"user_{'0' * 64}_account__session_{id}"}},
    "Claude Code's header": lambda id: {"extra_headers": {"X-Claude-Code-Session-Id": id}},
    "extra_headers": lambda id: {"extra_headers": {"X-Conversation-Id": id}},
    "extra_body": lambda id: {"extra_body": {"conversation_id": id}},
}


def new_session():
    return str(uuid.uuid4())


def whole(sdk, **asked):
    raw = sdk.messages.with_raw_response.create(**{"model": MODEL, "max_tokens": LIMIT} | asked)
    return raw.headers.get("X-KV-Reuse"), raw.parse()


def streamed(sdk, **asked):
    """The SDK's own helper puts the events together, and says what it makes of each."""
    text = ""
    with sdk.messages.stream(**{"model": MODEL, "max_tokens": LIMIT} | asked) as stream:
        for event in stream:
            if event.type == "text":
                text += event.text
        message = stream.get_final_message()
        reuse = stream.response.headers.get("X-KV-Reuse")
    said = "".join(block.text for block in message.content if block.type == "text")
    if text != said:
        raise AssertionError(f"the stream said {text!r}, and its message {said!r}")
    return reuse, message


def beta(sdk, **asked):
    raw = sdk.beta.messages.with_raw_response.create(**{"model": MODEL, "max_tokens": LIMIT} | asked)
    return raw.headers.get("X-KV-Reuse"), raw.parse()


ASKS = (whole, streamed, beta)


def comparable(message):
    """What two answers to one prompt have in common: ids of calls and signatures are drawn."""
    blocks = []
    for block in message.content:
        fields = block.model_dump(exclude_none=True)
        blocks.append({name: fields[name] for name in ("type", "text", "thinking", "name", "input") if name in fields})
    usage = message.usage
    prompt = usage.input_tokens + (usage.cache_read_input_tokens or 0)  # what prefill took from caches counts apart
    return blocks, message.stop_reason, message.stop_sequence, message.model, prompt, usage.output_tokens
