"""Answers that are not streamed: vLLM shows kv_transfer_params itself; the ids are added to them."""

import copy
import inspect
import json

from standins import LEFT, Case, ask, engine, outputs, three

ALL = ("Hello", [7, 8, 9, 2])
WANT = {**LEFT, "output_token_ids": [7, 8, 9, 2]}


class WholeAnswers(Case):
    def setUp(self):
        super().setUp()
        self.plugged()

    async def chat_answer(self, request, results, stock=False):
        method = type(self.chat).chat_completion_full_generator
        if stock:
            method = inspect.unwrap(method)
        return await method(self.chat, request, engine(results), "chatcmpl-1", "tiny", [], None, None)

    async def text_answer(self, request, results, stock=False, prompts=1):
        method = type(self.text).request_output_to_completion_response
        if stock:
            method = inspect.unwrap(method)
        return method(self.text, [results[-1]] * prompts, request, "cmpl-1", 1, "tiny", None, None)

    def kinds(self):
        return (("chat", self.chat_answer), ("text", self.text_answer))

    async def assert_stock(self, answer, request, make, **more):
        stock = await answer(request, make(), stock=True, **more)
        self.assertEqual(await answer(request, make(), **more), stock)

    async def test_ids_are_a_member_of_the_params(self):
        for name, answer in self.kinds():
            with self.subTest(name):
                stock = json.loads(await answer(ask(), outputs(ALL), stock=True))
                got = json.loads(await answer(ask(), outputs(ALL)))
                self.assertEqual(stock["kv_transfer_params"], LEFT)
                self.assertEqual(got, {**stock, "kv_transfer_params": WANT})

    async def test_the_last_of_several_outputs_has_all_ids(self):
        results = [*outputs(("Hel", [7, 8]), params=None, finish=None), *outputs(ALL)]
        got = json.loads(await self.chat_answer(ask(), results))
        self.assertEqual(got["kv_transfer_params"], WANT)

    async def test_the_engines_own_params_are_not_changed(self):
        for name, answer in self.kinds():
            with self.subTest(name):
                params = copy.deepcopy(LEFT)
                await answer(ask(), outputs(ALL, params=params))
                self.assertEqual(params, LEFT)

    async def test_stock_for_other_requests_and_answers_without_params(self):
        for name, answer in self.kinds():
            for request in (ask(None), ask({}), ask(n=2)):
                with self.subTest(f"{name} {request}"):
                    await self.assert_stock(answer, request, lambda: outputs(ALL))
            with self.subTest(f"{name} null"):
                await self.assert_stock(answer, ask(), lambda: outputs(ALL, params=None))
        await self.assert_stock(self.text_answer, ask(), lambda: outputs(ALL), prompts=2)
        self.assertEqual(self.log.warnings(), [])

    async def test_surprises_leave_it_stock(self):
        def odd():
            results = outputs(ALL)
            results[-1].outputs[0].token_ids = [7, 8.5]
            return results

        for name, answer in 2 * self.kinds():
            with self.subTest(name):
                await self.assert_stock(answer, ask(), odd)
        self.assert_warned_once("engine output")

    async def test_request_without_a_member_that_is_read(self):
        for name, answer in self.kinds():
            with self.subTest(name):
                request = ask()
                del request.n
                await self.assert_stock(answer, request, three)
        self.assertEqual(len(self.log.warnings()), 2, self.log.warnings())
