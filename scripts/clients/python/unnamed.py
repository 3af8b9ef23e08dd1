"""Conversations by which nothing tells an id, with the kit that is named: python unnamed.py KIT.

Each is held as the kit's own pages show it, streamed and whole. Every answer must be that of a lone engine. What was reused is in the records of the
program, which scripts/clients looks at (unnamed.go): answers of most kits show no headers.
"""

import os
import sys
import uuid

QUESTIONS = [
    "What did you see last night from the gallery, of the ships, of the weather and of the birds that rest there?",
    "And which of it did you write down?",
    "Who is going to read it?",
    "Where is it kept?",
]
MODEL, KEY = "sim", "a client's key"


class OpenAI:
    """OpenAI's SDK."""

    def __init__(self, url, system):
        from openai import OpenAI

        self.sdk, self.history = OpenAI(base_url=url + "/v1", api_key=KEY), [{"role": "system", "content": system}]

    def ask(self, question, stream):
        self.history.append({"role": "user", "content": question})
        if stream:
            with self.sdk.chat.completions.create(model=MODEL, messages=self.history, stream=True) as chunks:
                text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            self.history.append({"role": "assistant", "content": text})
        else:
            self.history.append(self.sdk.chat.completions.create(model=MODEL, messages=self.history).choices[0].message)
            text = self.history[-1].content
        return text


class Responses:
    """OpenAI's SDK on the Responses API."""

    def __init__(self, url, system):
        from openai import OpenAI

        self.sdk, self.system, self.history = OpenAI(base_url=url + "/v1", api_key=KEY), system, []

    def ask(self, question, stream):
        self.history.append({"role": "user", "content": question})
        asked = {"model": MODEL, "instructions": self.system, "input": self.history, "store": False}
        if stream:
            with self.sdk.responses.stream(**asked) as events:
                for _ in events:
                    pass
                response = events.get_final_response()
        else:
            response = self.sdk.responses.create(**asked)
        self.history += response.output
        return response.output_text


class Anthropic:
    """Anthropic's SDK; what it marks for caching moves with the last message."""

    def __init__(self, url, system):
        from anthropic import Anthropic

        self.sdk, self.system, self.history = Anthropic(base_url=url, auth_token=KEY), system, []

    def ask(self, question, stream):
        marked = {"type": "text", "text": question, "cache_control": {"type": "ephemeral"}}
        asked = {"model": MODEL, "max_tokens": 120, "system": self.system, "messages": self.history + [{"role": "user", "content": [marked]}]}
        if stream:
            with self.sdk.messages.stream(**asked) as events:
                message = events.get_final_message()
        else:
            message = self.sdk.messages.create(**asked)
        self.history += [{"role": "user", "content": question}, {"role": "assistant", "content": message.content}]
        return "".join(block.text for block in message.content if block.type == "text")


class LangChain:
    """LangChain's model for servers of OpenAI's API."""

    def __init__(self, url, system):
        from langchain_core.messages import SystemMessage
        from langchain_openai import ChatOpenAI

        self.model, self.history = ChatOpenAI(base_url=url + "/v1", api_key=KEY, model=MODEL), [SystemMessage(system)]

    def ask(self, question, stream):
        from langchain_core.messages import HumanMessage

        self.history.append(HumanMessage(question))
        if stream:
            whole = None
            for chunk in self.model.stream(self.history):
                whole = chunk if whole is None else whole + chunk
            self.history.append(whole)
        else:
            self.history.append(self.model.invoke(self.history))
        return self.history[-1].content


class LlamaIndex:
    """LlamaIndex's engine for chats, which keeps the history itself."""

    def __init__(self, url, system):
        from llama_index.core.chat_engine import SimpleChatEngine
        from llama_index.llms.openai_like import OpenAILike

        model = OpenAILike(model=MODEL, api_base=url + "/v1", api_key=KEY, is_chat_model=True, context_window=32768)
        self.engine = SimpleChatEngine.from_defaults(llm=model, system_prompt=system)

    def ask(self, question, stream):
        if stream:
            return "".join(self.engine.stream_chat(question).response_gen)
        return self.engine.chat(question).response


class LiteLLM:
    """LiteLLM's function for all providers."""

    def __init__(self, url, system):
        import litellm

        litellm.suppress_debug_info = True  # it knows no price of the model
        self.url, self.history = url + "/v1", [{"role": "system", "content": system}]

    def ask(self, question, stream):
        import litellm

        self.history.append({"role": "user", "content": question})
        answer = litellm.completion(model="openai/" + MODEL, api_base=self.url, api_key=KEY, messages=self.history, stream=stream)
        if stream:
            answer = litellm.stream_chunk_builder(list(answer), messages=self.history)
        self.history.append(answer.choices[0].message)
        return answer.choices[0].message.content


KITS = {
    "openai": OpenAI, "responses": Responses, "anthropic": Anthropic, "langchain": LangChain, "llamaindex": LlamaIndex, "litellm": LiteLLM,
}


def main(kit):
    for stream in (True, False):
        system = f"You keep log {uuid.uuid4()} of a lighthouse on an island far out at sea. You answer in whole sentences, and briefly."
        served, alone = (kit(os.environ[name], system) for name in ("CARRYOVER_URL", "LONE_URL"))
        for question in [f"{QUESTIONS[0]} (stream {stream})", *QUESTIONS[1:]]:  # the first names the conversation
            got, want = served.ask(question, stream), alone.ask(question, stream)
            if not got or got != want:
                sys.exit(f"{question} (stream {stream}): answered {got!r}, want {want!r}")


main(KITS[sys.argv[1]])
