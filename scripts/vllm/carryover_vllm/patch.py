"""Which methods of vLLM are wrapped, and what they must look like for that.

Read in vLLM 0.28.0 to 0.33.0, vllm/entrypoints/{openai/chat_completion,openai/completion,anthropic}/serving.py. A method
that looks different is left alone, with a warning; the others are wrapped all the same.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from carryover_vllm.answer import MEMBER, Answer
from carryover_vllm.log import logger, warn_once
from carryover_vllm.stream import (
    PARAMS,
    Followed,
    Observed,
    ParamsOnFinish,
    ParamsOnMessageDelta,
    Unseen,
    Watch,
    watching,
)

CHAT = "vllm.entrypoints.openai.chat_completion.serving"
TEXT = "vllm.entrypoints.openai.completion.serving"
MESSAGES = "vllm.entrypoints.anthropic.serving"
MODULES = (CHAT, TEXT, MESSAGES)

MARK = "_carryover_vllm"


def eligible(arguments: dict[str, Any]) -> bool:
    """Whether the request carried kv_transfer_params and wants one answer."""
    request = arguments["request"]
    return bool(request.kv_transfer_params) and request.n in (None, 1)


def has_our_stream(arguments: dict[str, Any]) -> bool:
    """Whether the chat stream to convert is that of an eligible request, as chat_stream or chat_chunks has left it."""
    return isinstance(arguments["generator"], Followed)


@dataclass(frozen=True)
class Method:
    """One method to wrap: what of it is checked, which calls of it are concerned, and how such a call is changed.

    change: gets the call's arguments by name, may replace some, and returns what the stock method's result is put
    into, or None if nothing.
    after: the `what` of the method that has to be wrapped for this one.
    shown_by: the class of the module whose member kv_transfer_params shows that this vLLM puts them there by itself,
        so that the ids alone are lacking; None if it always does.
    """

    what: str
    module: str
    owner: str
    name: str
    is_kind: Callable[[Any], bool]
    needs: tuple[str, ...]
    change: Callable[[dict[str, Any]], Callable[[Any], Any] | None]
    concerns: Callable[[dict[str, Any]], bool] = eligible
    after: str = ""
    shown_by: str | None = None


def observe(arguments: dict[str, Any], answer: Answer) -> Answer:
    arguments["result_generator"] = Observed(arguments["result_generator"], answer)
    return answer


def chat_stream(arguments: dict[str, Any]) -> Callable[[Any], Any]:
    answer = observe(arguments, Answer(deltas=True))
    return lambda stock: ParamsOnFinish(stock, answer)


def chat_chunks(arguments: dict[str, Any]) -> Callable[[Any], Any]:
    # Chat streams of this vLLM show the params, to which the answer adds the ids. Streams of /v1/messages don't, and
    # message_stream finds the answer here.
    answer = observe(arguments, Answer(deltas=True))
    return lambda stock: Followed(stock, answer)


def text_stream(arguments: dict[str, Any]) -> Callable[[Any], Any] | None:
    if arguments["num_prompts"] != 1:
        return None
    # The engine's outputs come as pairs, after the index of their prompt.
    answer = observe(arguments, Answer(deltas=True, pick=lambda pair: pair[1]))
    return lambda stock: ParamsOnFinish(stock, answer)


def chat_whole(arguments: dict[str, Any]) -> None:
    observe(arguments, Answer(deltas=False))


def text_whole(arguments: dict[str, Any]) -> None:
    results = arguments["final_res_batch"]
    if len(results) == 1:
        Answer(deltas=False).see(results[0])


def message_stream(arguments: dict[str, Any]) -> Callable[[Any], Any]:
    # The converter parses the chat stream, and gets the stock one: what it does not know, it need not bear.
    chat = arguments["generator"]
    arguments["generator"] = chat.stock
    answer = chat.answer
    return lambda stock: ParamsOnMessageDelta(stock, answer)


# Since vLLM 0.33 chat streams and those of /v1/messages are made of the same chunks, by a method of their own.
CHAT_CHUNKS = Method(
    "chat streams",
    CHAT,
    "OpenAIServingChat",
    "chat_completion_stream_generator_raw",
    inspect.isasyncgenfunction,
    ("request", "result_generator"),
    chat_chunks,
    shown_by="ChatCompletionStreamResponse",
)
CHAT_STREAM = Method(
    "chat streams",
    CHAT,
    "OpenAIServingChat",
    "chat_completion_stream_generator",
    inspect.isasyncgenfunction,
    ("request", "result_generator"),
    chat_stream,
    shown_by="ChatCompletionStreamResponse",
)
METHODS = (
    CHAT_STREAM,
    Method(
        "whole chat answers",
        CHAT,
        "OpenAIServingChat",
        "chat_completion_full_generator",
        inspect.iscoroutinefunction,
        ("request", "result_generator"),
        chat_whole,
    ),
    Method(
        "text streams",
        TEXT,
        "OpenAIServingCompletion",
        "completion_stream_generator",
        inspect.isasyncgenfunction,
        ("request", "result_generator", "num_prompts"),
        text_stream,
        shown_by="CompletionStreamResponse",
    ),
    Method(
        "whole text answers",
        TEXT,
        "OpenAIServingCompletion",
        "request_output_to_completion_response",
        inspect.isfunction,
        ("request", "final_res_batch"),
        text_whole,
    ),
    Method(
        "message streams",
        MESSAGES,
        "AnthropicServingMessages",
        "message_stream_converter",
        inspect.isasyncgenfunction,
        ("generator",),
        message_stream,
        has_our_stream,
        after="chat streams",
        shown_by="AnthropicStreamEvent",
    ),
)


@dataclass(frozen=True)
class Door:
    """A method by which requests enter: where it is noticed that a stream has passed none of METHODS."""

    what: str
    module: str
    owner: str
    name: str


DOORS = (
    Door("chat stream", CHAT, "OpenAIServingChat", "create_chat_completion"),
    Door("text stream", TEXT, "OpenAIServingCompletion", "create_completion"),
    Door("message stream", MESSAGES, "AnthropicServingMessages", "create_messages"),
)


def wrap(method: Method, stock: Callable[..., Any]) -> Callable[..., Any]:
    """The stock method, with `method.change` for the calls that it concerns."""
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        into = None
        watch = watching.get()
        if watch is not None:
            watch.seen = True
        try:
            call = signature.bind(*args, **kwargs)
            if method.concerns(call.arguments):
                into = method.change(call.arguments)
                args, kwargs = call.args, call.kwargs
        except Exception:
            warn_once(f"{method.what}: a call is not as expected; such calls stay stock", trace=True)
        result = stock(*args, **kwargs)
        return result if into is None else into(result)

    setattr(wrapped, MARK, True)
    return wrapped


def fault(method: Method, stock: Any) -> str:
    """Why `stock` can't be wrapped; empty if it can."""
    if not inspect.isfunction(stock):
        return "missing" if stock is None else "not a plain function"
    if not method.is_kind(inspect.unwrap(stock)):
        return "not the kind of function it is in vLLM 0.32"
    parameters = inspect.signature(stock).parameters
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    missing = [name for name in method.needs if name not in parameters or parameters[name].kind not in named]
    return f"no parameter {', '.join(missing)}" if missing else ""


def is_wrapped(stock: Any) -> bool:
    """Whether the method, or one that another plug-in has wrapped since, is ours."""
    while stock is not None:
        if MARK in vars(stock):
            return True
        stock = getattr(stock, "__wrapped__", None)
    return False


def watch(door: Door, stock: Callable[..., Any]) -> Callable[..., Any]:
    """The stock method; a stream of an eligible request that it returns is watched until a wrapped method is called."""
    signature = inspect.signature(stock)

    def concerns(*args: Any, **kwargs: Any) -> bool:
        # One door leads to another: that of /v1/messages to that of chats.
        if watching.get() is not None:
            return False
        try:
            request = signature.bind(*args, **kwargs).arguments["request"]
            # A request of /v1/messages has no n.
            one = getattr(request, "n", None) in (None, 1)
            return one and bool(request.stream) and bool(request.kv_transfer_params)
        except Exception:
            return False  # the stock method says what is wrong

    @functools.wraps(stock)
    async def watched(*args: Any, **kwargs: Any) -> Any:
        if not concerns(*args, **kwargs):
            return await stock(*args, **kwargs)
        its = Watch()
        watching.set(its)
        try:
            result = await stock(*args, **kwargs)
        finally:
            watching.set(None)
        if its.seen or not isinstance(result, AsyncGenerator):
            return result
        return Unseen(result, its, door.what)

    setattr(watched, MARK, True)
    return watched


def methods() -> tuple[Method, ...]:
    """METHODS, as this vLLM has them."""
    owner = getattr(importlib.import_module(CHAT), CHAT_CHUNKS.owner, None)
    if not hasattr(owner, CHAT_CHUNKS.name):
        return METHODS
    return tuple(CHAT_CHUNKS if method is CHAT_STREAM else method for method in METHODS)


def shows_params(method: Method) -> bool:
    """Whether this vLLM by itself puts the params where `method` is concerned, so that the ids alone are lacking."""
    if method.shown_by is None:
        return True
    shown_by = getattr(importlib.import_module(method.module), method.shown_by, None)
    return PARAMS in getattr(shown_by, "model_fields", ())


def install(version: str) -> None:
    """Wraps what is not wrapped yet, and says in one line what that adds. Never raises."""
    added: dict[str, list[str]] = {MEMBER: [], f"{PARAMS} with {MEMBER}": []}
    ids, both = added.values()
    wrapped = {""}
    try:
        ours = methods()
    except Exception:
        ours = METHODS  # each says why below
    for method in ours:
        if method.after not in wrapped:
            warn_once(f"{method.what} stay stock: they need {method.after}")
            continue
        try:
            owner = getattr(importlib.import_module(method.module), method.owner)
            stock = getattr(owner, method.name, None)
            why = fault(method, stock)
            if why:
                warn_once(f"{method.what} stay stock: {method.owner}.{method.name}: {why}")
                continue
            if not is_wrapped(stock):
                setattr(owner, method.name, wrap(method, stock))
                (ids if shows_params(method) else both).append(method.what)
            wrapped.add(method.what)
        except Exception as error:
            warn_once(f"{method.what} stay stock: {method.module}: {error!r}")
    for door in DOORS:
        install_watch(door)
    if ids or both:
        engine = getattr(sys.modules.get("vllm"), "__version__", "of unknown version")
        lacking = "; ".join(f"{what} to {', '.join(streams)}" for what, streams in added.items() if streams)
        logger.info("carryover-vllm %s: adds %s (vLLM %s)", version, lacking, engine)


def install_watch(door: Door) -> None:
    """Watches a door, if it is there and looks like one. Nothing else depends on it."""
    try:
        owner = getattr(sys.modules.get(door.module), door.owner, None)
        stock = vars(owner).get(door.name) if owner is not None else None
        if stock is None or is_wrapped(stock):
            return
        if inspect.iscoroutinefunction(inspect.unwrap(stock)) and "request" in inspect.signature(stock).parameters:
            setattr(owner, door.name, watch(door, stock))
            return
    except Exception:
        pass
    warn_once(f"{door.what}s are not watched: {door.owner}.{door.name} is not as expected")
