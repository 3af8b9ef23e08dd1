"""The plug-in on the serving classes of real vLLM packages: 0.28, 0.30, 0.32 and 0.33."""

import importlib
import json
import sys
import unittest
from types import SimpleNamespace

import real
from standins import ASKED, CHAT, LEFT, MESSAGES, TEXT, Case, chunk, engine, events, forget, numbered

IDS = [7, 8, 9, 2]
WANT = {**LEFT, "output_token_ids": IDS}

class Options(SimpleNamespace):
    include_usage = False
    continuous_usage_stats = False


class Request(SimpleNamespace):
    """What the stream generators read of a request."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def ask(params=ASKED, **members):
    return Request(kv_transfer_params=params, **{"max_tokens": 16, "stream": True, "add_generation_prompt": True, **members})


def outputs(params=LEFT, finish="stop"):
    made = [
        Request(
            outputs=[Request(index=0, text=text, token_ids=list(ids), finish_reason=None, stop_reason=None)],
            prompt_token_ids=[1, 2, 3],
            prompt="hi",
            kv_transfer_params=None,
        )
        for text, ids in (("Hel", [7]), ("lo", [8, 9]), ("!", [2]))
    ]
    made[-1].outputs[0].finish_reason = finish
    made[-1].kv_transfer_params = params
    return made


def whole_output(params=LEFT):
    whole = outputs(params)[-1]
    whole.outputs[0].text, whole.outputs[0].token_ids = "Hello!", list(IDS)
    return whole


OWNERS = ("OpenAIServingChat", "OpenAIServingCompletion", "AnthropicServingMessages")


def made(module, owner):
    """An instance that nothing has been given to: what it has not, real.Serving makes up."""
    kind = getattr(importlib.import_module(module), owner)
    return kind.__new__(kind)


class RealCase(Case):
    """vLLM is that of the version, with the plug-in."""

    version = ""

    def setUp(self):
        super().setUp()
        sys.path.remove(str(self.vllm))
        self.addCleanup(forget, *real.FOREIGN)
        forget(*real.FOREIGN)
        sys.meta_path.insert(0, real.RealPackage(self.version))
        self.shows_params = tuple(map(int, self.version.split("."))) >= (0, 33)
        self.register()
        self.chat, self.text, self.messages = map(made, (CHAT, TEXT, MESSAGES), OWNERS)

    def chat_stream(self, request, results):
        return self.chat.chat_completion_stream_generator(request, results, "chatcmpl-1", "tiny", [], None, Request())

    def text_stream(self, request, results):
        return self.text.completion_stream_generator(
            request, [], numbered(results), "cmpl-1", 1, "tiny", num_prompts=1, tokenizer=None, request_metadata=Request()
        )

    def message_stream(self, request, results):
        """What create_messages does with the request that it makes of its own."""
        request.stream_options = Options(include_usage=True, continuous_usage_stats=True)
        stream = self.messages.chat_completion_stream_generator(
            request, results, "chatcmpl-1", "tiny", [], None, Request()
        )
        return stream if self.shows_params else self.messages.message_stream_converter(stream)

    def streams(self):
        return (("chat", self.chat_stream), ("text", self.text_stream), ("messages", self.message_stream))

    def line(self):
        (line,) = [message for level, message in self.log.lines if level == "INFO"]
        return line


class OnReal:
    def line(self):
        (line,) = [message for level, message in self.log.lines if level == "INFO"]
        return line

    def test_no_warning_and_one_line_about_what_is_lacking(self):
        self.assertEqual(self.log.warnings(), [])
        ids, both = ["whole chat answers", "whole text answers"], ["chat streams", "text streams", "message streams"]
        if self.shows_params:
            ids, both = ["chat streams", ids[0], "text streams", ids[1]], ["message streams"]
        self.assertTrue(
            self.line().endswith(
                f": adds output_token_ids to {', '.join(ids)}; kv_transfer_params with output_token_ids to "
                f"{', '.join(both)} (vLLM {self.version})"
            ),
            self.line(),
        )

    async def test_streams_carry_params_and_ids_once(self):
        for name, stream in self.streams():
            got = await events(stream(ask(), engine(outputs())))
            (carrying,) = [event for event in got if "remote_engine_id" in event]
            self.assertEqual(chunk(carrying)["kv_transfer_params"], WANT, name)
            self.assertEqual(carrying.count('"kv_transfer_params"'), 1, name)
            if name == "messages":
                self.assertTrue(carrying.startswith("event: message_delta\n"), carrying)
            else:
                self.assertEqual(chunk(carrying)["choices"][0]["finish_reason"], "stop")
        self.assertEqual(self.log.warnings(), [])

    async def test_the_rest_of_a_stream_is_stock(self):
        for name, stream in self.streams():
            plugged = await events(stream(ask(), engine(outputs())))
            stock = await events(stream(ask({}), engine(outputs())))
            self.assertGreater(len(stock), 3, stock)
            self.assertEqual([without_params(e) for e in plugged], [without_params(e) for e in stock], name)
            params = [e for e in stock if "remote_engine_id" in e]
            self.assertEqual(len(params), 1 if self.shows_params and name != "messages" else 0, name)

    async def test_params_that_are_null_after_a_stop_string(self):
        for name, stream in self.streams():
            got = await events(stream(ask(), engine(outputs(params=None))))
            self.assertNotIn("output_token_ids", "".join(got), name)
        self.assertEqual(self.log.warnings(), [])

    async def test_whole_answers_carry_ids(self):
        answer = await self.chat.chat_completion_full_generator(
            ask(), engine([whole_output()]), "chatcmpl-1", "tiny", [], None, Request()
        )
        self.assertEqual(answer.kv_transfer_params, WANT)
        self.assertEqual(self.messages.messages_full_converter(answer).kv_transfer_params, WANT)
        answer = self.text.request_output_to_completion_response(
            [whole_output()], ask(), "cmpl-1", 1, "tiny", None, Request()
        )
        self.assertEqual(answer.kv_transfer_params, WANT)
        self.assertEqual(self.log.warnings(), [])

    async def test_a_stream_that_is_seen_only_when_it_begins(self):
        # As chat streams of 0.33.
        patch = importlib.import_module("carryover_vllm.patch")
        for door, owner, stream in zip(patch.DOORS, (self.chat, self.text, self.messages), self.streams()):
            self.assertTrue(hasattr(getattr(type(owner), door.name), "_carryover_vllm"), door)

            async def stock(self, request, raw_request=None, stream=stream[1]):
                return stream(request, engine(outputs()))

            got = await events(await patch.watch(door, stock)(owner, ask()))
            self.assertIn('"output_token_ids"', "".join(got))
        self.assertEqual(self.log.warnings(), [])

    async def test_a_stream_that_passes_unseen(self):
        # As those of /v1/messages of 0.33 did when only the method of 0.32 was wrapped.
        patch = importlib.import_module("carryover_vllm.patch")
        for door, owner in zip(patch.DOORS, (self.chat, self.text, self.messages)):
            begun = len(self.log.warnings())

            async def theirs():
                yield "data: {}\n\n"

            async def stock(self, request, raw_request=None):
                return theirs()

            opened = patch.watch(door, stock)
            for request in (ask(), ask(), ask({}), ask(n=2), ask(stream=False)):
                self.assertEqual(await events(await opened(owner, request)), ["data: {}\n\n"])
            self.assertEqual(len(self.log.warnings()), begun + 1, self.log.warnings())
            self.assertIn(f"a {door.what} passed unseen", self.log.warnings()[-1])


class On28(OnReal, RealCase):
    version = "0.28.0"


class On30(OnReal, RealCase):
    version = "0.30.0"


class On32(OnReal, RealCase):
    version = "0.32.0"


class On33(OnReal, RealCase):
    version = "0.33.0"


class Versions(unittest.TestCase):
    def test_each_that_is_fetched_is_tested(self):
        self.assertEqual(real.versions(), [kind.version for kind in (On28, On30, On32, On33)])


def without_params(event):
    """An event without its params and without what differs from stream to stream."""
    kind, _, text = event.partition("data: ")
    if not text.startswith("{"):
        return event
    members = json.loads(text)
    members.pop("kv_transfer_params", None)
    members.pop("created", None)
    return kind, members
