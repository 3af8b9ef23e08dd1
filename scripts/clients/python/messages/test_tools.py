"""Turns with tools: the call that the model makes, what it says to the result, and the SDK's own loop over both."""

import unittest

from anthropic import beta_tool

from deployment import HIT, LAST, MODEL, warm_up
from talk import ASKS, client, comparable, new_session, opening

TOOLS = [{
    "name": "look_up", "description": "Looks up the weather of a place.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}, "required": ["place"]},
}]
ORDER = 'CALL look_up {"place": "Fastnet Rock", "days": 3}'
WEATHER = "Gales from the south-west, and rain."


class Tools(unittest.TestCase):
    def setUp(self):
        self.carryover, self.lone = client(), client("LONE_URL")
        self.addCleanup(self.carryover.close)
        self.addCleanup(self.lone.close)

    def converse(self, ask):
        """Asks, gives the tool's result, and asks for more. Each answer must be that of a lone request."""
        id, outcomes = new_session(), []
        messages = [{"role": "user", "content": ORDER}]
        for n in range(3):
            asked = {"system": opening(id), "messages": messages, "tools": TOOLS}
            outcome, message = ask(self.carryover, **asked, extra_headers={"X-Claude-Code-Session-Id": id} | (LAST if n == 2 else {}))
            _, alone = ask(self.lone, **asked)
            self.assertEqual(comparable(message), comparable(alone))
            outcomes.append(outcome)
            messages.append({"role": "assistant", "content": message.content})
            if n == 0:
                self.assertEqual(message.stop_reason, "tool_use")
                (call,) = message.content
                self.assertEqual((call.type, call.name, call.input), ("tool_use", "look_up", {"place": "Fastnet Rock", "days": 3}))
                messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": WEATHER}]})
            else:
                self.assertEqual(message.stop_reason, "end_turn")
                messages.append({"role": "user", "content": "And what follows from it?"})
        return outcomes

    def test_call_and_result_hit(self):
        for ask in ASKS:
            with self.subTest(ask.__name__):
                warm_up(lambda: self.converse(ask))
                outcomes = self.converse(ask)
                self.assertRegex(outcomes[0], r"^(miss|prefix;tokens=\d+);reason=first_turn$")
                for outcome in outcomes[1:]:
                    self.assertRegex(outcome, HIT)

    def test_sdks_own_loop(self):
        asked_for = []

        @beta_tool
        def look_up(place: str, days: int = 1) -> str:
            """Looks up the weather of a place."""
            asked_for.append((place, days))
            return WEATHER

        def loop(sdk, **named):
            return sdk.beta.messages.tool_runner(
                model=MODEL, max_tokens=120, tools=[look_up], system=opening("1"), messages=[{"role": "user", "content": ORDER}], **named
            ).until_done()

        id = new_session()
        message, alone = loop(self.carryover, extra_headers={"X-Claude-Code-Session-Id": id}), loop(self.lone)
        self.assertEqual(asked_for, [("Fastnet Rock", 3)] * 2)
        self.assertEqual(comparable(message), comparable(alone))
        self.carryover.messages.create(
            model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "SAY Bye."}], extra_headers={"X-Claude-Code-Session-Id": id} | LAST
        )
