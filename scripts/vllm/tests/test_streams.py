"""Where the params and ids are put, and that nothing else of a stream changes."""

import asyncio
import copy
import inspect
import json
from types import SimpleNamespace

from standins import ASKED, CHAT, LEFT, TEXT, Case, ask, chunk, engine, events, outputs, three

WANT = {**LEFT, "output_token_ids": [7, 8, 9, 2]}


class Placement(Case):
    def setUp(self):
        super().setUp()
        self.plugged()

    async def assert_on_finish_chunk(self, stream, request, make=three, want=WANT, finish="stop"):
        """The plugged stream is the stock one, with `want` as the last member of the chunk with the finish_reason."""
        stock = await events(stream(request, engine(make()), stock=True))
        got = await events(stream(request, engine(make())))
        at = [i for i, e in enumerate(stock) if '"finish_reason":"' in e]
        self.assertEqual(len(at), 1)
        piece = ',"kv_transfer_params":' + json.dumps(want, separators=(",", ":"))
        expected = stock[:]
        expected[at[0]] = stock[at[0]].removesuffix("}\n\n") + piece + "}\n\n"
        self.assertEqual(got, expected)
        finished = chunk(got[at[0]])
        self.assertEqual(finished["kv_transfer_params"], want)
        self.assertEqual(finished["choices"][0]["finish_reason"], finish)
        self.assertEqual(self.log.warnings(), [])
        return got

    async def test_params_and_ids_on_the_chunk_with_the_finish_reason(self):
        for name, stream in self.both():
            with self.subTest(name):
                got = await self.assert_on_finish_chunk(stream, ask())
                self.assertEqual(got[-1], "data: [DONE]\n\n")

    async def test_one_token_answer(self):
        for name, stream in self.both():
            with self.subTest(name):
                want = {**LEFT, "output_token_ids": [7]}

                def make():
                    return outputs(("a", [7]), finish="length")

                await self.assert_on_finish_chunk(stream, ask(n=1), make, want, "length")

    async def test_usage_chunk_follows(self):
        for name, stream in self.both():
            with self.subTest(name):
                got = await self.assert_on_finish_chunk(stream, ask(include_usage=True))
                self.assertEqual(chunk(got[-2])["choices"], [])
                self.assertNotIn("kv_transfer_params", got[-2])

    async def test_continuous_usage_and_echo_and_token_ids(self):
        request = ask(include_usage=True, continuous_usage=True, echo=True, return_token_ids=True)
        for name, stream in self.both():
            with self.subTest(name):
                got = await self.assert_on_finish_chunk(stream, request)
                asked = [i for e in got[:-1] for c in chunk(e)["choices"] for i in c.get("token_ids") or ()]
                self.assertEqual(asked, WANT["output_token_ids"])

    async def test_stream_interval_brings_several_tokens_in_one_output(self):
        def make():
            return outputs(("a", [1]), ("bcde", [2, 3, 4, 5]), ("f", [6, 0]))

        want = {**LEFT, "output_token_ids": [1, 2, 3, 4, 5, 6, 0]}
        for name, stream in self.both():
            with self.subTest(name):
                await self.assert_on_finish_chunk(stream, ask(), make, want)

    async def test_tool_calls(self):
        def make():
            return outputs(("<tool_call>", [7, 8]), ("", [2]))

        want = {**LEFT, "output_token_ids": [7, 8, 2]}
        await self.assert_on_finish_chunk(self.chat_stream, ask(), make, want, "tool_calls")

    async def test_strings_that_look_like_the_end_of_an_event(self):
        odd = {**LEFT, "remote_host": 'a}\n\n"\\\u2028', "x": {"lone": "\ud800"}}

        def make():
            return outputs(('}\n\n"finish', [7]), ("}\n\n", [8]), params=odd)

        for name, stream in self.both():
            with self.subTest(name):
                got = await self.assert_on_finish_chunk(stream, ask(), make, {**odd, "output_token_ids": [7, 8]})
                for event in got:
                    event.encode("utf-8")
                    self.assertEqual(event.count("\n"), 2)

    async def test_the_engines_own_objects_are_not_changed(self):
        for name, stream in self.both():
            with self.subTest(name):
                params, results = copy.deepcopy(LEFT), three()
                results[-1].kv_transfer_params = params
                request = ask(copy.deepcopy(ASKED))
                await events(stream(request, engine(results)))
                self.assertEqual(params, LEFT)
                self.assertEqual(request.kv_transfer_params, ASKED)
                self.assertEqual([r.outputs[0].token_ids for r in results], [[7], [8, 9], [2]])

    async def test_streams_at_the_same_time_do_not_mix(self):
        for name, stream in self.both():
            with self.subTest(name):
                made = [outputs((str(i), [i]), ("", [100 + i]), params={"remote_engine_id": i}) for i in range(5)]
                got = await asyncio.gather(*(events(stream(ask(), engine(m))) for m in made))
                for i, stream_events in enumerate(got):
                    want = {"remote_engine_id": i, "output_token_ids": [i, 100 + i]}
                    self.assertEqual(chunk(stream_events[-2])["kv_transfer_params"], want)


class Stock(Case):
    """Streams that stay stock, byte for byte."""

    def setUp(self):
        super().setUp()
        self.plugged()

    async def assert_stock(self, stream, request, make, **more):
        stock = await events(stream(request, make(), stock=True, **more))
        got = await events(stream(request, make(), **more))
        self.assertEqual(got, stock)
        return got

    async def test_not_eligible_requests_get_the_stock_generator_itself(self):
        for name, stream in self.both():
            for request in (ask(None), ask({}), ask(n=2)):
                with self.subTest(f"{name} {request}"):
                    generator = stream(request, engine(three()))
                    self.assertTrue(inspect.isasyncgen(generator), f"got {generator}")
                    await events(generator)
                    await self.assert_stock(stream, request, lambda: engine(three()))
        two = self.text_stream(ask(), engine(three()), prompts=2)
        self.assertTrue(inspect.isasyncgen(two), f"got {two} for two prompts")
        await events(two)
        self.assertEqual(self.log.warnings(), [])

    async def test_null_or_empty_params_of_the_answer(self):
        for name, stream in self.both():
            for params in (None, {}):
                with self.subTest(f"{name} {params}"):
                    await self.assert_stock(stream, ask(), lambda params=params: engine(three(params=params)))
        self.assertEqual(self.log.warnings(), [])

    async def test_params_before_the_finish_do_not_count(self):
        def make():
            results = three(params=None)
            results[0].kv_transfer_params = dict(LEFT)
            return engine(results)

        for name, stream in self.both():
            with self.subTest(name):
                await self.assert_stock(stream, ask(), make)

    async def test_engine_fails_in_the_middle(self):
        def make():
            return engine(three()[:2], RuntimeError("the engine has died"))

        for name, stream in self.both():
            with self.subTest(name):
                got = await self.assert_stock(stream, ask(), make)
                self.assertIn("the engine has died", got[-2])
        self.assertEqual(self.log.warnings(), [])

    async def test_engine_fails_before_the_first_output(self):
        for name, stream in self.both():
            with self.subTest(name):
                await self.assert_stock(stream, ask(), lambda: engine([], RuntimeError("no")))

    async def test_answer_finishes_with_an_error(self):
        got = await self.assert_stock(self.chat_stream, ask(), lambda: engine(three(finish="error")))
        self.assertIn('"error"', got[-2])

    async def test_no_chunk_to_carry_the_params(self):
        # vLLM sends no chunk for an answer without text and tokens.
        for _ in range(2):
            await self.assert_stock(self.chat_stream, ask(), lambda: engine(outputs(("", []))))
        self.assert_warned_once("no chunk with a finish_reason")

    async def assert_surprise(self, change, *words):
        """Results after `change` leave both kinds of stream stock, with one warning however many streams there are."""

        def make():
            results = three()
            change(results)
            return engine(results)

        for name, stream in 2 * self.both():
            with self.subTest(name):
                await self.assert_stock(stream, ask(), make)
        self.assert_warned_once(*words)

    async def test_token_ids_that_are_no_integers(self):
        def change(results):
            results[1].outputs[0].token_ids = ["8", "9"]

        await self.assert_surprise(change, "engine output")

    async def test_two_answers_in_one_output(self):
        def change(results):
            results[1].outputs.append(results[0].outputs[0])

        await self.assert_surprise(change, "engine output")

    async def test_outputs_without_a_member_that_is_read(self):
        def change(results):
            results[-1] = SimpleNamespace(outputs=results[-1].outputs, prompt_token_ids=[1])

        await self.assert_surprise(change, "engine output")

    async def test_params_that_are_no_object(self):
        def change(results):
            results[-1].kv_transfer_params = [1, 2]

        await self.assert_surprise(change, "engine output")

    async def test_params_that_are_no_json(self):
        def change(results):
            results[-1].kv_transfer_params = {"remote_host": object()}

        await self.assert_surprise(change, "stream chunk")

    async def test_params_with_a_number_that_json_does_not_have(self):
        def change(results):
            results[-1].kv_transfer_params = {"remote_blocks_expiry_time": float("nan")}

        await self.assert_surprise(change, "stream chunk")

    async def test_request_without_a_member_that_is_read(self):
        for name, stream in 2 * self.both():
            with self.subTest(name):
                request = ask(include_usage=True)
                del request.n
                await self.assert_stock(stream, request, lambda: engine(three()))
        self.assertEqual(len(self.log.warnings()), 2, self.log.warnings())
        for warning in self.log.warnings():
            self.assertIn("a call is not as expected", warning)

    async def test_call_with_wrong_arguments_fails_as_in_stock(self):
        with self.assertRaises(TypeError):
            self.chat.chat_completion_stream_generator(ask())


class OtherEngines(Case):
    """Streams of a vLLM that is not 0.32."""

    async def test_vllm_that_sends_params_by_itself(self):
        for module in (CHAT, TEXT):
            self.edit(
                module,
                'chunk = {**base, "choices": [choice]}',
                'chunk = {**base, "choices": [choice]}\n'
                "                    if output.finish_reason:\n"
                '                        chunk["kv_transfer_params"] = res.kv_transfer_params',
            )
        self.plugged()
        for name, stream in self.both():
            with self.subTest(name):
                got = await events(stream(ask(), engine(three())))
                finish = got[-2]
                self.assertEqual(finish.count('"kv_transfer_params"'), 1)
                self.assertEqual(chunk(finish)["kv_transfer_params"], WANT)
        self.assertEqual(self.log.warnings(), [])

    async def assert_stock(self, old, new, *words):
        """With `new` for `old` in both serving modules, streams are stock, with one warning."""
        for module in (CHAT, TEXT):
            self.edit(module, old, new)
        self.plugged()
        for name, stream in self.both():
            stock = await events(stream(ask(), engine(three()), stock=True))
            self.assertEqual(await events(stream(ask(), engine(three()))), stock, name)
        self.assert_warned_once(*words)

    async def test_events_with_another_beginning(self):
        await self.assert_stock('return f"data: {', 'return f"data:{', "no chunk with a finish_reason")

    async def test_events_with_another_end(self):
        await self.assert_stock("\\n\\n", "\\r\\n\\r\\n", "no chunk with a finish_reason")

    async def test_events_that_are_no_text(self):
        await self.assert_stock("yield dump(chunk)", "yield dump(chunk).encode()", "stream chunk")

    async def test_events_that_are_no_json(self):
        await self.assert_stock("yield dump(chunk)", "yield dump(chunk).replace('\"id\":', '\"id\"=')", "stream chunk")

    async def test_outputs_without_the_index_of_their_prompt(self):
        self.edit(TEXT, "async for prompt_index, res in result_generator:", "async for res in result_generator:")
        self.edit(TEXT, "output.index + prompt_index", "output.index")
        self.plugged()
        method = type(self.text).completion_stream_generator

        async def run(method):
            return await events(method(self.text, ask(), [], engine(three()), "cmpl-1", 1, "tiny", 1, None, None))

        self.assertEqual(await run(method), await run(inspect.unwrap(method)))
        self.assert_warned_once("engine output")
