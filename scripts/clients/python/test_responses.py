"""The Responses API: conversations whose whole history is sent again, tools, what is refused, and streams that break."""

import json
import unittest

import openai

from deployment import DECODE, HIT, LAST, MODEL, QUESTIONS, client, decode_stats, fault, new_id, system, until, warm_up

ROUTE = "/v1/responses"
ASKED = {"model": MODEL, "store": False, "input": [{"role": "user", "content": "What did you see last night?"}]}
TOOLS = [{
    "type": "function", "name": "look_up", "description": "Looks up the weather of a place.", "strict": False,
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}, "required": ["place"]},
}]

WAYS = {
    "prompt_cache_key": lambda id: {"prompt_cache_key": id},
    "Codex's headers": lambda id: {"extra_headers": {"session-id": id, "thread-id": id}},
    "extra_body": lambda id: {"extra_body": {"conversation_id": id}},
}


def whole(sdk, **asked):
    raw = sdk.responses.with_raw_response.create(**ASKED | asked)
    return raw.headers.get("X-KV-Reuse"), raw.parse()


def streamed(sdk, **asked):
    """The SDK's own helper puts the events together, up to response.completed. It has no word for response.incomplete, which has the response."""
    numbers = []
    with sdk.responses.stream(**ASKED | asked) as stream:
        for event in stream:
            numbers.append(event.sequence_number)
        response = event.response if event.type == "response.incomplete" else stream.get_final_response()
        reuse = stream._response.headers.get("X-KV-Reuse")
    if numbers != list(range(len(numbers))):
        raise AssertionError(f"the events are numbered {numbers}")
    return reuse, response


ASKS = (whole, streamed)


def comparable(response):
    """What two answers to one prompt have in common: ids of items and of calls are drawn."""
    items = []
    for item in response.output:
        fields = item.model_dump(exclude_none=True)
        text = [part["text"] for part in fields.get("content", [])]
        items.append((item.type, text, fields.get("name"), fields.get("arguments")))
    usage = response.usage
    return items, response.status, response.model, usage.input_tokens, usage.output_tokens, usage.total_tokens


def sent_again(response):
    return [item.model_dump(exclude_none=True) for item in response.output]


class Responses(unittest.TestCase):
    def setUp(self):
        self.carryover, self.lone = client(), client("LONE_URL")
        self.addCleanup(self.carryover.close)
        self.addCleanup(self.lone.close)

    def converse(self, ask, way, questions=QUESTIONS, **options):
        """Holds a conversation. Each response must be that of a lone request. A question may be made of the output before."""
        id = new_id()
        named, history, outcomes, output = WAYS[way](id), [system(id)], [], None
        for n, question in enumerate(questions):
            history += question(output) if callable(question) else [{"role": "user", "content": question}]
            final = {"extra_headers": named.get("extra_headers", {}) | LAST} if n == len(questions) - 1 else {}
            outcome, response = ask(self.carryover, input=history, **options | named | final)
            _, alone = ask(self.lone, input=history, **options)
            self.assertEqual(comparable(response), comparable(alone))
            said = response.model_dump()
            for hidden in ("kv_transfer_params", "input_messages", "output_messages"):
                self.assertIsNone(said.get(hidden))
            outcomes.append(outcome)
            output = response.output
            history += sent_again(response)
        return outcomes

    def want_hits(self, outcomes):
        self.assertRegex(outcomes[0], r"^(miss|prefix;tokens=\d+);reason=first_turn$")
        for outcome in outcomes[1:]:
            self.assertRegex(outcome, HIT)

    def test_turns_after_the_first_hit(self):
        for ask in ASKS:
            warm_up(lambda: self.converse(ask, "extra_body"))
            for way in WAYS:
                with self.subTest(ask=ask.__name__, way=way):
                    self.want_hits(self.converse(ask, way))

    def test_call_and_result_hit(self):
        def result(output):
            (call,) = output
            self.assertEqual((call.type, call.name, json.loads(call.arguments)), ("function_call", "look_up", {"place": "Fastnet Rock", "days": 3}))
            return [{"type": "function_call_output", "call_id": call.call_id, "output": "Gales from the south-west, and rain."}]

        questions = ['CALL look_up {"place": "Fastnet Rock", "days": 3}', result, "And what follows from it?"]
        for ask in ASKS:
            with self.subTest(ask=ask.__name__):
                warm_up(lambda: self.converse(ask, "prompt_cache_key", questions, tools=TOOLS))
                self.want_hits(self.converse(ask, "prompt_cache_key", questions, tools=TOOLS))

    def test_thoughts_are_sent_again(self):
        for ask in ASKS:
            with self.subTest(ask=ask.__name__):
                questions = ["THINK " + question for question in QUESTIONS]
                warm_up(lambda: self.converse(ask, "extra_body", questions))
                self.want_hits(self.converse(ask, "extra_body", questions))
                self.assertEqual([item.type for item in ask(self.carryover, input=questions[0])[1].output], ["reasoning", "message"])

    def test_limit(self):
        for ask in ASKS:
            _, response = ask(self.carryover, input="SAY One, two, three.", max_output_tokens=2)
            self.assertEqual((response.status, response.incomplete_details.reason), ("incomplete", "max_output_tokens"))

    def refusal(self, kind, variable="CARRYOVER_URL", **request):
        with client(variable) as sdk, self.assertRaises(kind) as caught:
            sdk.responses.create(**ASKED | request)
        self.assertTrue(caught.exception.request_id)
        return caught.exception

    def test_state_of_the_server_is_refused(self):
        """What would be lost without a word is refused with its name."""
        for param, value in (("previous_response_id", "resp_1"), ("conversation", "conv_1"), ("background", True)):
            for stream in (False, True):
                with self.subTest(param=param, stream=stream):
                    error = self.refusal(openai.BadRequestError, stream=stream, **{param: value})
                    self.assertEqual((error.status_code, error.type, error.param), (400, "invalid_request_error", param))

    def test_stored_responses_are_not_there(self):
        with client() as sdk, self.assertRaises(openai.APIStatusError):
            sdk.responses.retrieve("resp_1")

    def test_errors(self):
        for stream in (False, True):
            error = self.refusal(openai.BadRequestError, stream=stream, extra_body={"conversation_id": True})
            self.assertEqual((error.param, error.code), ("conversation_id", "invalid_conversation_id"))
            error = self.refusal(openai.BadRequestError, stream=stream, input="And then? " * 15_000)
            self.assertIn("context length", error.message)
            error = self.refusal(openai.NotFoundError, stream=stream, model="another")
            self.assertEqual((error.status_code, error.param), (404, "model"))
            error = self.refusal(openai.InternalServerError, variable="NOWHERE_URL", stream=stream)
            self.assertEqual((error.status_code, error.type, error.code), (503, "server_error", "decode_unavailable"))

    def test_stream_that_breaks(self):
        """The SDK hands the event out that says so, and raises what the connection does then."""
        fault(DECODE, route=ROUTE, kind="die_mid_event", events=7, count=1)
        seen = []
        with client() as sdk, self.assertRaises(openai.APIError):
            for event in sdk.responses.create(**ASKED, stream=True):
                seen.append(event)
        types = [event.type for event in seen]
        self.assertIn("response.output_text.delta", types)
        self.assertEqual(types[-1], "error")
        self.assertEqual((seen[-1].code, seen[-1].sequence_number), ("decode_failed", len(seen) - 1))
        self.assertIn("decode engine failed", seen[-1].message)

    def test_client_leaves(self):
        """The engines stop, and the conversation goes on."""
        key, before = new_id(), decode_stats()
        fault(DECODE, route=ROUTE, kind="slow_stream", delay=50_000_000, count=1)
        with self.carryover.responses.create(**ASKED, stream=True, prompt_cache_key=key) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    break

        def stopped():
            now = decode_stats()
            return now["aborts"] > before["aborts"] and now["running"] == 0

        until("decode has stopped", stopped)
        _, response = whole(self.carryover, prompt_cache_key=key, extra_headers=LAST)
        _, alone = whole(self.lone)
        self.assertEqual(comparable(response), comparable(alone))
