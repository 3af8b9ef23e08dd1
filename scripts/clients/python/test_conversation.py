"""Conversations of several turns, with each way to name them: hits from the second turn, and the text of a lone request."""

import unittest

from deployment import HIT, LAST, MODEL, QUESTIONS, client, new_id, system, warm_up

WAYS = {
    "extra_body": lambda id: {"extra_body": {"conversation_id": id}},
    "extra_headers": lambda id: {"extra_headers": {"X-Conversation-Id": id}},
    "metadata": lambda id: {"metadata": {"conversation_id": id}},
}


class Conversation(unittest.TestCase):
    def setUp(self):
        self.carryover, self.lone = client(), client("LONE_URL")
        self.addCleanup(self.carryover.close)
        self.addCleanup(self.lone.close)

    def whole(self, sdk, messages, options):
        raw = sdk.chat.completions.with_raw_response.create(model=MODEL, messages=messages, max_tokens=120, **options)
        completion = raw.parse()
        return raw.headers, completion.choices[0].message, completion.usage

    def streamed(self, sdk, messages, options):
        raw = sdk.chat.completions.with_raw_response.create(
            model=MODEL, messages=messages, max_tokens=120, stream=True, stream_options={"include_usage": True}, **options
        )
        text, usage, finish = "", None, None
        for chunk in raw.parse():
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
        self.assertEqual(finish, "stop")
        return raw.headers, {"role": "assistant", "content": text}, usage

    def converse(self, ask, way):
        """Holds a conversation. The text and the usage of each turn must be those of a lone request."""
        id = new_id()
        options, messages, outcomes = WAYS[way](id), [system(id)], []
        for n, question in enumerate(QUESTIONS):
            messages.append({"role": "user", "content": question})
            final = {"extra_headers": options.get("extra_headers", {}) | LAST} if n == len(QUESTIONS) - 1 else {}
            headers, message, usage = ask(self.carryover, messages, options | final)
            _, alone, counted = ask(self.lone, messages, {})
            self.assertEqual(self.text(message), self.text(alone))
            self.assertEqual(
                (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens),
                (counted.prompt_tokens, counted.completion_tokens, counted.total_tokens),
            )
            outcomes.append(headers["X-KV-Reuse"])
            messages.append(message)
        return outcomes

    @staticmethod
    def text(message):
        return message["content"] if isinstance(message, dict) else message.content

    def test_turns_after_the_first_hit(self):
        for ask in (self.whole, self.streamed):
            warm_up(lambda: self.converse(ask, "extra_body"))
            for way in WAYS:
                with self.subTest(ask=ask.__name__, way=way):
                    outcomes = self.converse(ask, way)
                    self.assertRegex(outcomes[0], r"^(miss|prefix;tokens=\d+);reason=first_turn$")
                    for outcome in outcomes[1:]:
                        self.assertRegex(outcome, HIT)

    def test_off(self):
        for options in (
            {"extra_body": {"conversation_id": None}},
            {"extra_headers": {"X-KV-Reuse": "off", "X-Conversation-Id": new_id()}},
            {"extra_headers": {"X-Conversation-Task": "title_generation", "X-Conversation-Id": new_id()}},
        ):
            headers, message, _ = self.whole(self.carryover, [system("1"), {"role": "user", "content": QUESTIONS[0]}], options)
            self.assertEqual(headers["X-KV-Reuse"], "off")
            self.assertTrue(message.content)

    def test_no_usage_unless_asked_for(self):
        stream = self.carryover.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "SAY Yes."}], stream=True)
        chunks = list(stream)
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), "Yes.")
        self.assertEqual([chunk.usage for chunk in chunks if chunk.usage], [])

    def test_models(self):
        self.assertEqual([model.id for model in self.carryover.models.list()], [MODEL])

    def test_text_completions(self):
        """A text prompt goes on where the answer has ended."""
        id, outcomes = new_id(), []
        prompt, options = " ".join([system(id)["content"], *QUESTIONS]), {"extra_body": {"conversation_id": id}}
        for n in range(3):
            final = {"extra_headers": LAST} if n == 2 else {}
            raw = self.carryover.completions.with_raw_response.create(model=MODEL, prompt=prompt, max_tokens=64, **options, **final)
            text = raw.parse().choices[0].text
            alone = self.lone.completions.create(model=MODEL, prompt=prompt, max_tokens=64)
            self.assertEqual(text, alone.choices[0].text)
            outcomes.append(raw.headers["X-KV-Reuse"])
            prompt += text + " What else?"
        self.assertRegex(outcomes[2], HIT)
