"""Turns with tools: the call that the model makes, and what it says to the result."""

import json
import unittest

from deployment import HIT, LAST, MODEL, client, new_id, system, warm_up

TOOLS = [{"type": "function", "function": {
    "name": "look_up", "description": "Looks up the weather of a place.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}, "required": ["place"]},
}}]
ASKED = {"role": "user", "content": 'CALL look_up {"place": "Fastnet Rock", "days": 3}'}


class Tools(unittest.TestCase):
    def setUp(self):
        self.carryover, self.lone = client(), client("LONE_URL")
        self.addCleanup(self.carryover.close)
        self.addCleanup(self.lone.close)

    def whole(self, sdk, messages, **options):
        raw = sdk.chat.completions.with_raw_response.create(model=MODEL, messages=messages, tools=TOOLS, max_tokens=120, **options)
        choice = raw.parse().choices[0]
        return raw.headers["X-KV-Reuse"] if sdk is self.carryover else None, choice.message.model_dump(exclude_none=True), choice.finish_reason

    def streamed(self, sdk, messages, **options):
        """The SDK's accumulator makes the message of the deltas."""
        headers = {}
        with sdk.chat.completions.with_streaming_response.create(
            model=MODEL, messages=messages, tools=TOOLS, max_tokens=120, stream=True, **options
        ) as raw:
            headers = raw.headers
            message, calls, finish = {"role": "assistant"}, {}, None
            for chunk in raw.parse():
                choice = chunk.choices[0]
                finish = choice.finish_reason or finish
                if choice.delta.content:
                    message["content"] = message.get("content", "") + choice.delta.content
                for delta in choice.delta.tool_calls or []:
                    call = calls.setdefault(delta.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
                    call["id"] += delta.id or ""
                    call["function"]["name"] += delta.function.name or ""
                    call["function"]["arguments"] += delta.function.arguments or ""
        if calls:
            message["tool_calls"] = [calls[index] for index in sorted(calls)]
        return headers.get("X-KV-Reuse"), message, finish

    def converse(self, ask):
        """Asks, gives the tool's result, and asks for more. Each answer must be that of a lone request."""
        id, outcomes = new_id(), []
        messages = [system(id), ASKED]
        for n in range(3):
            final = {"extra_headers": LAST} if n == 2 else {}
            outcome, message, finish = ask(self.carryover, messages, extra_body={"conversation_id": id}, **final)
            _, alone, _ = ask(self.lone, messages)
            self.assertEqual(message.get("content"), alone.get("content"))
            outcomes.append(outcome)
            messages.append(message)
            if n == 0:
                self.assertEqual(finish, "tool_calls")
                (call,) = message["tool_calls"]
                self.assertEqual(call["function"]["name"], "look_up")
                self.assertEqual(json.loads(call["function"]["arguments"]), {"place": "Fastnet Rock", "days": 3})
                self.assertEqual(call["function"], alone["tool_calls"][0]["function"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": "Gales from the south-west, and rain."})
            else:
                self.assertEqual(finish, "stop")
                messages.append({"role": "user", "content": "And what follows from it?"})
        return outcomes

    def test_call_and_result_hit(self):
        for ask in (self.whole, self.streamed):
            with self.subTest(ask.__name__):
                warm_up(lambda: self.converse(ask))
                outcomes = self.converse(ask)
                self.assertRegex(outcomes[0], r"^(miss|prefix;tokens=\d+);reason=first_turn$")
                for outcome in outcomes[1:]:
                    self.assertRegex(outcome, HIT)
