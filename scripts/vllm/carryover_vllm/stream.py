"""What goes into a stock stream generator, observed, and what comes out of it, with the params on one of its events.

All wrappers are plain objects around the stock ones, not generators of their own: cancellation, exceptions, aclose()
and the end of the last reference reach vLLM's generators exactly when they do without the plug-in. That is how vLLM
learns that a client has gone, and frees the request's blocks.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextvars import ContextVar
from typing import Any

from carryover_vllm.answer import Answer
from carryover_vllm.log import warn_once

PARAMS = "kv_transfer_params"

_PREFIX, _SUFFIX = "data: ", "}\n\n"
_MESSAGE_DELTA = "event: message_delta\n" + _PREFIX


class Observed(AsyncIterator):
    """What the engine yields, seen by `answer` on its way."""

    def __init__(self, results: Any, answer: Answer) -> None:
        self._results = aiter(results)
        self._answer = answer

    async def __anext__(self) -> Any:
        item = await anext(self._results)
        self._answer.see(item)
        return item

    def __getattr__(self, name: str) -> Any:
        # aclose() and what else the stock generator may want of the engine's own.
        return getattr(self._results, name)


class Around(AsyncGenerator):
    """A stock generator, and nothing else."""

    def __init__(self, stock: Any) -> None:
        self.stock = stock

    async def __anext__(self) -> Any:
        return await self._next(anext(self.stock))

    async def asend(self, value: Any) -> Any:
        return await self._next(self.stock.asend(value))

    async def athrow(self, *exception: Any) -> Any:
        return await self._next(self.stock.athrow(*exception))

    async def aclose(self) -> None:
        await self.stock.aclose()

    async def _next(self, event: Any) -> Any:
        return await event


class Followed(Around):
    """A stock stream of chat chunks, and the answer that it is of."""

    def __init__(self, stock: Any, answer: Answer) -> None:
        super().__init__(stock)
        self.answer = answer


class ParamsOnFinish(Followed):
    """A stock stream of server-sent events; the chunk with the finish_reason gets the answer's params."""

    carrier = "chunk with a finish_reason"

    def __init__(self, stock: Any, answer: Answer) -> None:
        super().__init__(stock, answer)
        self._done = False

    async def _next(self, event: Any) -> Any:
        try:
            text = await event
        except StopAsyncIteration:
            self._ended()
            raise
        return text if self._done or self.answer.params is None else self._edit(text)

    def _edit(self, text: Any) -> Any:
        try:
            edited = self.put(text, self.answer.params)
        except Exception:
            self._done = True
            warn_once("a stream chunk can't carry kv_transfer_params; streams like it stay stock", trace=True)
            return text
        self._done = edited is not None
        return edited if self._done else text

    def _ended(self) -> None:
        if not self._done and self.answer.params is not None:
            self._done = True
            warn_once(f"a stream had kv_transfer_params but no {self.carrier} to carry them")

    @staticmethod
    def put(text: str, params: dict[str, Any]) -> str | None:
        """The event that carries `params`, with them; None for any other event."""
        chunk = data(text, _PREFIX)
        if chunk is None or not any(choice.get("finish_reason") for choice in chunk.get("choices", ())):
            return None
        return with_params(text, chunk, params)


class ParamsOnMessageDelta(ParamsOnFinish):
    """A stock stream of /v1/messages; message_delta, which comes once and last but one, gets the answer's params."""

    carrier = "message_delta"

    @staticmethod
    def put(text: str, params: dict[str, Any]) -> str | None:
        chunk = data(text, _MESSAGE_DELTA)
        return with_params(text, chunk, params) if chunk else None


class Watch:
    """Whether a method that is wrapped here has been called for a request."""

    def __init__(self) -> None:
        self.seen = False


# The watch of the request that is being served.
watching: ContextVar[Watch | None] = ContextVar("carryover_vllm_watching", default=None)


class Unseen(Around):
    """A stock stream of a request for which no wrapped method has been called yet. vLLM may call one when the stream
    begins; if the stream ends without, this vLLM serves it in another way."""

    def __init__(self, stock: Any, watch: Watch, what: str) -> None:
        super().__init__(stock)
        self._watch = watch
        self._what = what

    async def _next(self, event: Any) -> Any:
        if self._watch.seen:
            return await event
        watching.set(self._watch)
        try:
            return await event
        except StopAsyncIteration:
            if not self._watch.seen:
                warn_once(f"a {self._what} passed unseen: this vLLM serves it by other methods; such streams stay stock")
            raise
        finally:
            # Not by a token: a coroutine that is collected is closed in another context.
            watching.set(None)


def data(text: str, prefix: str) -> dict[str, Any] | None:
    """The object of an event with this beginning; None for any other event."""
    if not (text.startswith(prefix + "{") and text.endswith(_SUFFIX)):
        return None
    return json.loads(text[len(prefix) :])


def with_params(text: str, chunk: dict[str, Any], params: dict[str, Any]) -> str:
    """The event, byte for byte, and the params as the last member of `chunk`, its object. A chunk that has params
    already, of a vLLM that sends them by itself, is returned as it is."""
    if PARAMS in chunk:
        return text
    # ASCII, so that no string in the params can make the event unfit for UTF-8; no NaN, which is not JSON.
    encoded = json.dumps(params, separators=(",", ":"), allow_nan=False)
    return f'{text[: -len(_SUFFIX)]},"{PARAMS}":{encoded}{_SUFFIX}'
