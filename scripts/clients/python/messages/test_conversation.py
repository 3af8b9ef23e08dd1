"""Conversations of several turns, with each way to name them: hits from the second turn, and the message of a lone request."""

import unittest

from deployment import HIT, LAST, MODEL, QUESTIONS, warm_up
from talk import ASKS, WAYS, client, comparable, new_session, opening, streamed, whole


class Conversation(unittest.TestCase):
    def setUp(self):
        self.carryover, self.lone = client(), client("LONE_URL")
        self.addCleanup(self.carryover.close)
        self.addCleanup(self.lone.close)

    def converse(self, ask, way, questions=QUESTIONS, **options):
        """Holds a conversation. Each message must be that of a lone request."""
        id = new_session()
        named, messages, outcomes = WAYS[way](id), [], []
        for n, question in enumerate(questions):
            messages.append({"role": "user", "content": question})
            asked = {"system": opening(id), "messages": messages} | options
            final = {"extra_headers": named.get("extra_headers", {}) | LAST} if n == len(questions) - 1 else {}
            outcome, message = ask(self.carryover, **asked | named | final)
            _, alone = ask(self.lone, **asked)
            self.assertEqual(comparable(message), comparable(alone))
            self.assertNotIn("kv_transfer_params", message.model_dump())
            outcomes.append(outcome)
            messages.append({"role": "assistant", "content": message.content})
        return outcomes, messages

    def want_hits(self, outcomes):
        self.assertRegex(outcomes[0], r"^(miss|prefix;tokens=\d+);reason=first_turn$")
        for outcome in outcomes[1:]:
            self.assertRegex(outcome, HIT)

    def test_turns_after_the_first_hit(self):
        for ask in ASKS:
            warm_up(lambda: self.converse(ask, "extra_body")[0])
            for way in WAYS:
                with self.subTest(ask=ask.__name__, way=way):
                    self.want_hits(self.converse(ask, way)[0])

    def test_thoughts_are_sent_again(self):
        questions = ["THINK " + question for question in QUESTIONS]
        thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}
        for ask in ASKS:
            with self.subTest(ask=ask.__name__):
                warm_up(lambda: self.converse(ask, "extra_body", questions, **thinking)[0])
                outcomes, messages = self.converse(ask, "extra_body", questions, **thinking)
                self.want_hits(outcomes)
                for answer in messages[1::2]:
                    self.assertEqual([block.type for block in answer["content"]], ["thinking", "text"])
                    self.assertTrue(answer["content"][0].signature)

    def test_marks_of_a_cache_change_nothing(self):
        """cache_control moves to the newest message from turn to turn, as agents have it."""

        def converse():
            id, messages, outcomes = new_session(), [], []
            for n, question in enumerate(QUESTIONS):
                last = {"type": "text", "text": question, "cache_control": {"type": "ephemeral"}}
                system = [{"type": "text", "text": opening(id), "cache_control": {"type": "ephemeral"}}]
                final = LAST if n == len(QUESTIONS) - 1 else {}
                named = WAYS["Claude Code's header"](id)["extra_headers"]
                outcome, message = streamed(
                    self.carryover, system=system, messages=[*messages, {"role": "user", "content": [last]}], extra_headers=named | final
                )
                outcomes.append(outcome)
                messages += [{"role": "user", "content": question}, {"role": "assistant", "content": message.content}]
            return outcomes

        warm_up(converse)
        self.want_hits(converse())

    def test_stop_sequence(self):
        asked = {"messages": [{"role": "user", "content": "SAY One, two, three."}], "stop_sequences": [", three"]}
        for ask in ASKS:
            _, message = ask(self.carryover, **asked)
            _, alone = ask(self.lone, **asked)
            self.assertEqual(comparable(message), comparable(alone))
            self.assertEqual((message.stop_reason, message.stop_sequence, message.content[0].text), ("stop_sequence", ", three", "One, two"))

    def test_limit(self):
        for ask in ASKS:
            _, message = ask(self.carryover, messages=[{"role": "user", "content": "SAY One, two, three."}], max_tokens=2)
            self.assertEqual((message.stop_reason, message.usage.output_tokens), ("max_tokens", 2))

    def test_off(self):
        for options in (
            {"extra_body": {"conversation_id": None}},
            {"extra_headers": {"X-KV-Reuse": "off", "X-Conversation-Id": new_session()}},
        ):
            outcome, message = whole(self.carryover, messages=[{"role": "user", "content": QUESTIONS[0]}], **options)
            self.assertEqual(outcome, "off")
            self.assertTrue(message.content[0].text)

    def test_tokens_are_counted(self):
        asked = {"model": MODEL, "system": opening("1"), "messages": [{"role": "user", "content": QUESTIONS[0]}]}
        counted = self.carryover.messages.count_tokens(**asked)
        self.assertEqual(counted.input_tokens, self.lone.messages.count_tokens(**asked).input_tokens)
        self.assertEqual(counted.input_tokens, whole(self.lone, system=asked["system"], messages=asked["messages"])[1].usage.input_tokens)

    def test_models(self):
        self.assertEqual([model.id for model in self.carryover.models.list()], [MODEL])
