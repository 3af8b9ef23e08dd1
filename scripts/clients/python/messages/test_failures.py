"""Errors as the SDK's own, streams that break, and clients that leave."""

import os
import unittest

import anthropic

from deployment import DECODE, LAST, MODEL, decode_stats, fault, new_id, until
from talk import ROUTE, client, comparable, new_session, opening, whole

ASKED = {"model": MODEL, "max_tokens": 120, "system": opening("1"), "messages": [{"role": "user", "content": "What did you see last night?"}]}


class Errors(unittest.TestCase):
    def refusal(self, kind, variable="CARRYOVER_URL", sdk=None, **request):
        id = new_id()
        with sdk or client(variable) as sdk:
            with self.assertRaises(kind) as caught:
                sdk.messages.create(**ASKED | {"extra_headers": {"X-Request-Id": id}} | request)
        error = caught.exception
        self.assertEqual(error.response.headers["X-Request-Id"], id)
        return error

    def told(self, error):
        """What Anthropic's body says of itself, and what the SDK has read in it."""
        self.assertEqual(error.body["type"], "error")
        self.assertEqual(error.body["error"]["type"], error.type)
        return error.status_code, error.type

    def test_bad_request(self):
        for stream in (False, True):
            error = self.refusal(anthropic.BadRequestError, extra_body={"conversation_id": True}, stream=stream)
            self.assertEqual(self.told(error), (400, "invalid_request_error"))
            self.assertIn("conversation_id must be a string", error.message)

    def test_engines_refusal(self):
        for stream in (False, True):
            error = self.refusal(anthropic.BadRequestError, messages=[{"role": "user", "content": "And then? " * 15_000}], stream=stream)
            self.assertEqual(error.status_code, 400)
            self.assertIn("context length", error.message)  # by which agents know that they have to compact

    def test_unknown_model(self):
        for stream in (False, True):
            error = self.refusal(anthropic.NotFoundError, model="another", stream=stream)
            self.assertEqual(error.status_code, 404)
            self.assertIn("does not exist", error.message)

    def test_engines_gone(self):
        for stream in (False, True):
            error = self.refusal(anthropic.InternalServerError, variable="NOWHERE_URL", stream=stream)
            self.assertEqual(self.told(error), (503, "overloaded_error"))
            self.assertEqual(error.response.headers["Retry-After"], "1")

    def test_key_refused(self):
        for stream in (False, True):
            error = self.refusal(anthropic.AuthenticationError, variable="KEYED_URL", stream=stream)
            self.assertEqual(error.status_code, 401)
        with client("KEYED_URL", auth_token=os.environ["ENGINE_KEY"]) as sdk:
            self.assertTrue(sdk.messages.create(**ASKED).content[0].text)

    def test_sdk_tries_again(self):
        """What can be tried again says so, and the SDK's second try succeeds."""
        fault(DECODE, route=ROUTE, kind="status", status=429, retry_after="0", count=1)
        with client(max_retries=2) as sdk:
            raw = sdk.messages.with_raw_response.create(**ASKED)
        self.assertGreater(raw.retries_taken, 0)
        self.assertTrue(raw.parse().content[0].text)

    def test_stream_that_breaks(self):
        """The SDK raises the event that says so, and its message has no end."""
        fault(DECODE, route=ROUTE, kind="die_mid_event", events=5, count=1)
        seen = []
        with client() as sdk, self.assertRaises(anthropic.APIStatusError) as caught:
            with sdk.messages.stream(**ASKED) as stream:
                for event in stream:
                    seen.append(event.type)
        self.assertIn("text", seen)
        self.assertNotIn("message_stop", seen)
        self.assertEqual(caught.exception.type, "api_error")
        self.assertIn("decode engine failed", caught.exception.message)


class Cancellation(unittest.TestCase):
    """A client that leaves in the middle: the engines stop, and the conversation goes on."""

    def test_next_turn_works(self):
        named, before = {"X-Claude-Code-Session-Id": new_session()}, decode_stats()
        fault(DECODE, route=ROUTE, kind="slow_stream", delay=50_000_000, count=1)
        with client() as sdk, client("LONE_URL") as lone:
            with sdk.messages.stream(**ASKED, extra_headers=named) as stream:
                for event in stream:
                    if event.type == "text":
                        break
            until("decode has stopped", lambda: self.stopped(before))
            _, message = whole(sdk, **ASKED, extra_headers=named | LAST)
            _, alone = whole(lone, **ASKED)
        self.assertEqual(comparable(message), comparable(alone))

    def stopped(self, before):
        now = decode_stats()
        return now["aborts"] > before["aborts"] and now["running"] == 0
