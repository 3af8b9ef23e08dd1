"""Streams of /v1/messages: params and ids on message_delta, and nothing else changes."""

import importlib
import inspect
import json
import shutil

from standins import CHAT, LEFT, MESSAGES, PACKAGE, TEXT, Case, ask, chunk, engine, events, outputs, three

RECORDED = PACKAGE.parents[1] / "testdata/exchanges/vllm-0.32/28-messages-decode-stream-own-plugin.json"
WANT = {**LEFT, "output_token_ids": [7, 8, 9, 2]}


def is_delta(event):
    return event.startswith("event: message_delta\n")


class Recorded(Case):
    async def test_recorded_stream_byte_for_byte(self):
        self.plugged()
        exchange = json.loads(RECORDED.read_text())
        asked, want = exchange["request"]["body"]["kv_transfer_params"], exchange["response"]["text"]
        recorded = [chunk(event) for event in want.split("\n\n") if event]
        texts = [event["delta"]["text"] for event in recorded if event["type"] == "content_block_delta"]
        left = next(event for event in recorded if event["type"] == "message_delta")["kv_transfer_params"]
        ids = left.pop("output_token_ids")
        # The tokenizer held back the text of the last tokens; which one brought which text makes no difference here.
        last = len(texts) - 1
        steps = [*zip(texts[:last], ([i] for i in ids)), (texts[last], ids[last:])]

        def make():
            results = outputs(*steps, params=left, finish="length")
            for result in results:
                result.prompt_token_ids = asked["prompt_token_ids"]
            return engine(results)

        got = await events(self.message_stream(ask(asked), make(), request_id="chatcmpl-proto-1"))
        self.assertEqual("".join(got), want)
        stock = await events(self.message_stream(ask(asked), make(), request_id="chatcmpl-proto-1", stock=True))
        at = want.index(',"kv_transfer_params":')
        self.assertEqual("".join(stock), want[:at] + "}\n\n" + want[at:].split("\n\n", 1)[1])


class Placement(Case):
    async def assert_on_message_delta(self, make=three, want=WANT):
        """The plugged stream is the stock one, with `want` as the last member of message_delta."""
        self.plugged()
        stock = await events(self.message_stream(ask(), engine(make()), stock=True))
        got = await events(self.message_stream(ask(), engine(make())))
        self.assertEqual(sum(map(is_delta, stock)), 1)
        piece = ',"kv_transfer_params":' + json.dumps(want, separators=(",", ":")) + "}\n\n"
        self.assertEqual(got, [e.removesuffix("}\n\n") + piece if is_delta(e) else e for e in stock])
        self.assertEqual(self.log.warnings(), [])
        return got

    async def test_params_and_ids_on_message_delta(self):
        got = await self.assert_on_message_delta()
        self.assertEqual([is_delta(e) for e in got[-2:]], [True, False])

    async def test_text_that_looks_like_the_event(self):
        text = '\n\nevent: message_delta\ndata: {"type":"message_delta"}\n\n'
        odd = {**LEFT, "remote_host": 'a}\n\n"\\\u2028', "x": {"lone": "\ud800"}}
        got = await self.assert_on_message_delta(
            lambda: outputs((text, [7]), (text, [8]), params=odd), {**odd, "output_token_ids": [7, 8]}
        )
        for event in got:
            event.encode("utf-8")
            self.assertEqual(event.count("\n"), 3)

    async def test_the_converter_reads_the_stock_chat_stream(self):
        # So it need not bear a member that it does not know, and can't show it.
        first = "                if first:"
        self.edit(MESSAGES, first, "                assert 'kv_transfer_params' not in chunk\n" + first)
        await self.assert_on_message_delta()

    async def test_params_only_once(self):
        self.edit(
            MESSAGES, "            first, block", "            yield event('message_delta')\n            first, block"
        )
        self.edit(MESSAGES, 'yield event("message_stop")', 'yield event("message_delta")')
        self.plugged()
        got = [e for e in await events(self.message_stream(ask(), engine(three()))) if is_delta(e)]
        self.assertEqual(["kv_transfer_params" in e for e in got], [False, True, False])

    async def test_vllm_that_sends_params_by_itself(self):
        finish = "                    if finish is not"
        self.edit(CHAT, finish, '                    chunk["kv_transfer_params"] = res.kv_transfer_params\n' + finish)
        self.edit(MESSAGES, "(choice, *_) =", 'left = chunk.get("kv_transfer_params")\n                (choice, *_) =')
        self.edit(MESSAGES, "**cached})", "**cached}, kv_transfer_params=left)")
        self.plugged()
        got = await events(self.message_stream(ask(), engine(three())))
        self.assertEqual(got[-2].count('"kv_transfer_params"'), 1)
        self.assertEqual(chunk(got[-2])["kv_transfer_params"], WANT)
        self.assertEqual(self.log.warnings(), [])


class Stock(Case):
    """Streams that stay stock, byte for byte."""

    async def assert_stock(self, request=None, make=three, error=None):
        request = request or ask()
        stock = await events(self.message_stream(request, engine(make(), error), stock=True))
        got = await events(self.message_stream(request, engine(make(), error)))
        self.assertEqual(got, stock)
        return got

    async def test_not_eligible_requests_get_the_stock_generator_itself(self):
        self.plugged()
        for request in (ask(None), ask({}), ask(n=2)):
            with self.subTest(f"{request}"):
                stream = self.message_stream(request, engine(three()))
                self.assertTrue(inspect.isasyncgen(stream), f"got {stream}")
                await events(stream)
                await self.assert_stock(request)
        self.assertEqual(self.log.warnings(), [])

    async def test_generator_that_is_not_ours(self):
        self.plugged()

        async def theirs(stream):
            async for event in stream:
                yield event

        request = ask(include_usage=True, continuous_usage=True)
        method = type(self.messages).message_stream_converter
        stock = await events(self.message_stream(request, engine(three()), stock=True))
        for kind in (True, False):
            stream = method(self.messages, theirs(self.chat_stream(request, engine(three()), stock=kind)))
            self.assertTrue(inspect.isasyncgen(stream), f"got {stream}")
            self.assertEqual(await events(stream), stock)

    async def test_null_or_empty_params_of_the_answer(self):
        self.plugged()
        for params in (None, {}):
            await self.assert_stock(make=lambda params=params: three(params=params))
        self.assertEqual(self.log.warnings(), [])

    async def test_engine_fails(self):
        self.plugged()
        for results in (0, 1, 2):
            got = await self.assert_stock(make=lambda results=results: three()[:results], error=RuntimeError("dead"))
            self.assertTrue(got[-1].startswith("event: error\n"), got[-1])
        self.assertEqual(self.log.warnings(), [])

    async def test_engine_fails_after_the_finish(self):
        self.plugged()
        for _ in range(2):
            got = await self.assert_stock(error=RuntimeError("dead"))
            self.assertTrue(got[-1].startswith("event: error\n"), got[-1])
        self.assert_warned_once("no message_delta")

    async def test_engine_output_that_is_not_as_expected(self):
        self.plugged()
        await self.assert_stock(make=lambda: three(params=[1]))
        self.assert_warned_once("engine output")

    async def test_params_with_a_number_that_json_does_not_have(self):
        self.plugged()
        await self.assert_stock(make=lambda: three(params={"remote_blocks_expiry_time": float("nan")}))
        self.assert_warned_once("stream chunk")

    async def test_call_with_wrong_arguments_fails_as_in_stock(self):
        self.plugged()
        with self.assertRaises(TypeError):
            self.messages.message_stream_converter()

    async def assert_other_events(self, old, new, *words):
        self.edit(MESSAGES, old, new)
        self.plugged()
        for _ in range(2):
            await self.assert_stock()
        self.assert_warned_once(*words)

    async def test_events_with_another_beginning(self):
        await self.assert_other_events("\\ndata: {data}", "\\ndata:{data}", "no message_delta")

    async def test_events_with_another_end(self):
        await self.assert_other_events("{data}\\n\\n", "{data}\\r\\n\\r\\n", "no message_delta")

    async def test_message_delta_without_members(self):
        empty = '    data = "{}" if kind == "message_delta" else data\n'
        await self.assert_other_events("    return f", empty + "    return f", "no message_delta")

    async def test_events_that_are_no_text(self):
        await self.assert_other_events('{data}\\n\\n"', '{data}\\n\\n".encode()', "stream chunk")

    async def test_events_that_are_no_json(self):
        await self.assert_other_events('separators=(",", ":")', 'separators=(",", "=")', "stream chunk")


class OtherEngines(Case):
    """A vLLM whose /v1/messages is another one: the other four methods are wrapped all the same."""

    async def assert_message_streams_stay_stock(self, *words):
        self.register()
        self.plugged()
        self.assert_warned_once(*words)
        await self.assert_others_carry()
        stream = self.message_stream(ask(), engine(three()))
        self.assertNotIn("kv_transfer_params", "".join(await events(stream)))

    async def assert_others_carry(self):
        (line,) = [message for level, message in self.log.lines if level == "INFO"]
        for others in (
            "adds output_token_ids to whole chat answers, whole text answers;",
            "kv_transfer_params with output_token_ids to chat streams, text streams (vLLM",
        ):
            self.assertIn(others, line)
        for name, stream in self.both():
            got = await events(stream(ask(), engine(three())))
            self.assertEqual(chunk(got[-2])["kv_transfer_params"], WANT, name)

    async def test_changed_parameter(self):
        self.edit(MESSAGES, "generator", "stream")
        await self.assert_message_streams_stay_stock(
            "message streams stay stock: AnthropicServingMessages.message_stream_converter: no parameter generator"
        )

    async def test_method_that_is_no_generator_any_more(self):
        self.edit(
            MESSAGES,
            "    async def message_stream_converter(self, generator):",
            "    def message_stream_converter(self, generator):\n        return self.convert(generator)\n\n"
            "    async def convert(self, generator):",
        )
        await self.assert_message_streams_stay_stock("message streams", "not the kind of function")

    async def test_no_such_module(self):
        shutil.rmtree(self.vllm / "vllm/entrypoints/anthropic")
        self.register()
        self.assert_warned_once(MESSAGES)
        self.chat = importlib.import_module(CHAT).OpenAIServingChat()
        self.text = importlib.import_module(TEXT).OpenAIServingCompletion()
        await self.assert_others_carry()
        self.assertIn("message streams stay stock", self.log.warnings()[-1])
