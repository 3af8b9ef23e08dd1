"""Errors as the SDK's own, streams that break, and clients that leave."""

import asyncio
import os
import unittest

import openai

from deployment import DECODE, LAST, MODEL, PREFILLS, client, decode_stats, fault, new_id, system, until

ASKED = [system("1"), {"role": "user", "content": "What did you see last night?"}]


class Errors(unittest.TestCase):
    def refusal(self, kind, variable="CARRYOVER_URL", **request):
        with client(variable) as sdk:
            with self.assertRaises(kind) as caught:
                sdk.chat.completions.create(**{"model": MODEL, "messages": ASKED} | request)
        error = caught.exception
        self.assertTrue(error.request_id)
        self.assertEqual(error.response.headers["X-Request-Id"], error.request_id)
        return error

    def test_bad_request(self):
        error = self.refusal(openai.BadRequestError, extra_body={"conversation_id": True})
        self.assertEqual((error.status_code, error.type, error.param, error.code), (400, "invalid_request_error", "conversation_id", "invalid_conversation_id"))
        self.assertIn("conversation_id must be a string", error.message)

    def test_engines_refusal(self):
        for stream in (False, True):
            error = self.refusal(openai.BadRequestError, messages=[{"role": "user", "content": "And then? " * 15_000}], stream=stream)
            self.assertEqual((error.status_code, error.type, error.param, error.code), (400, "BadRequestError", "input_tokens", "invalid_request"))
            self.assertIn("context length", error.message)  # by which agents know that they have to compact

    def test_unknown_model(self):
        error = self.refusal(openai.NotFoundError, model="another")
        self.assertEqual((error.status_code, error.code, error.param), (404, "model_not_found", "model"))

    def test_engines_gone(self):
        error = self.refusal(openai.InternalServerError, variable="NOWHERE_URL")
        self.assertEqual((error.status_code, error.type, error.code, error.param), (503, "server_error", "decode_unavailable", None))
        self.assertEqual(error.response.headers["Retry-After"], "1")

    def test_key_refused(self):
        for stream in (False, True):
            error = self.refusal(openai.AuthenticationError, variable="KEYED_URL", stream=stream)
            self.assertEqual((error.status_code, error.type, error.code, error.param), (401, "invalid_request_error", "invalid_api_key", None))
        with client("KEYED_URL") as sdk:
            with self.assertRaises(openai.AuthenticationError):
                sdk.models.list()
            answer = sdk.with_options(api_key=os.environ["ENGINE_KEY"]).chat.completions.create(model=MODEL, messages=ASKED)
        self.assertTrue(answer.choices[0].message.content)

    def test_request_id_is_the_clients(self):
        id = new_id()
        error = self.refusal(openai.NotFoundError, model="another", extra_headers={"X-Request-Id": id})
        self.assertEqual(error.request_id, id)
        with client() as sdk:
            self.assertTrue(sdk.chat.completions.create(model=MODEL, messages=ASKED)._request_id)

    def test_sdk_tries_again(self):
        """What can be tried again says so, and the SDK's second try succeeds."""
        for url in PREFILLS:
            fault(url, kind="status", status=429, retry_after="0", count=1)
        with client() as sdk:
            raw = sdk.with_options(max_retries=2).chat.completions.with_raw_response.create(model=MODEL, messages=ASKED)
        self.assertGreater(raw.retries_taken, 0)
        self.assertTrue(raw.parse().choices[0].message.content)

    def test_stream_that_breaks(self):
        fault(DECODE, kind="die_mid_event", events=5, count=1)
        seen = []
        with client() as sdk, self.assertRaises(openai.APIError) as caught:
            for chunk in sdk.chat.completions.create(model=MODEL, messages=ASKED, stream=True):
                seen.append(chunk)
        self.assertGreater(len(seen), 1)
        self.assertEqual((caught.exception.code, caught.exception.type), ("decode_failed", "upstream_error"))


class Cancellation(unittest.TestCase):
    """A client that leaves in the middle: the engines stop, and the conversation goes on."""

    def leave(self, conversation):
        with client() as sdk:
            stream = sdk.chat.completions.create(model=MODEL, messages=ASKED, stream=True, extra_body={"conversation_id": conversation})
            for n, _ in enumerate(stream):
                if n == 3:
                    stream.close()
                    break

    async def leave_async(self, conversation):
        sdk, begun = client(kind=openai.AsyncOpenAI), asyncio.Event()

        async def read():
            async for _ in await sdk.chat.completions.create(
                model=MODEL, messages=ASKED, stream=True, extra_body={"conversation_id": conversation}
            ):
                begun.set()

        reading = asyncio.create_task(read())
        await begun.wait()
        reading.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await reading
        await sdk.close()

    def test_next_turn_works(self):
        for leave in (self.leave, lambda id: asyncio.run(self.leave_async(id))):
            conversation, before = new_id(), decode_stats()
            fault(DECODE, kind="slow_stream", delay=50_000_000, count=1)
            leave(conversation)
            until("decode has stopped", lambda: self.stopped(before))
            with client() as sdk, client("LONE_URL") as lone:
                answer = sdk.chat.completions.create(model=MODEL, messages=ASKED, extra_body={"conversation_id": conversation}, extra_headers=LAST)
                alone = lone.chat.completions.create(model=MODEL, messages=ASKED)
            self.assertEqual(answer.choices[0].message.content, alone.choices[0].message.content)

    def stopped(self, before):
        now = decode_stats()
        return now["aborts"] > before["aborts"] and now["running"] == 0
