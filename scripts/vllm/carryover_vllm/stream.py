"""What goes into a stock stream generator, observed, and what comes out of it, with the params on the finish chunk.

Both wrappers are plain objects around the stock ones, not generators of their own: cancellation, exceptions, aclose()
and the end of the last reference reach vLLM's generators exactly when they do without the plug-in. That is how vLLM
learns that a client has gone, and frees the request's blocks.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from carryover_vllm.answer import Answer
from carryover_vllm.log import warn_once

PARAMS = "kv_transfer_params"

_PREFIX, _SUFFIX = "data: ", "}\n\n"


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


class ParamsOnFinish(AsyncGenerator):
    """A stock stream of server-sent events; the chunk with the finish_reason gets the answer's params."""

    def __init__(self, stock: Any, answer: Answer) -> None:
        self._stock = stock
        self._answer = answer
        self._done = False

    async def __anext__(self) -> Any:
        return await self._next(anext(self._stock))

    async def asend(self, value: Any) -> Any:
        return await self._next(self._stock.asend(value))

    async def athrow(self, *exception: Any) -> Any:
        return await self._next(self._stock.athrow(*exception))

    async def aclose(self) -> None:
        await self._stock.aclose()

    async def _next(self, event: Any) -> Any:
        try:
            text = await event
        except StopAsyncIteration:
            self._ended()
            raise
        return text if self._done or self._answer.params is None else self._edit(text)

    def _edit(self, text: Any) -> Any:
        try:
            edited = with_params(text, self._answer.params)
        except Exception:
            self._done = True
            warn_once("a stream chunk can't carry kv_transfer_params; streams like it stay stock", trace=True)
            return text
        self._done = edited is not None
        return edited if self._done else text

    def _ended(self) -> None:
        if not self._done and self._answer.params is not None:
            self._done = True
            warn_once("a stream had kv_transfer_params but no chunk with a finish_reason to carry them")


def with_params(text: str, params: dict[str, Any]) -> str | None:
    """The chunk with the finish_reason, byte for byte, and the params as its last member; None for any other event.
    A chunk that has params already, of a vLLM that sends them by itself, is returned as it is."""
    if not (text.startswith(_PREFIX + "{") and text.endswith(_SUFFIX)):
        return None
    chunk = json.loads(text[len(_PREFIX) :])
    if not any(choice.get("finish_reason") for choice in chunk.get("choices", ())):
        return None
    if PARAMS in chunk:
        return text
    # ASCII, so that no string in the params can make the event unfit for UTF-8; no NaN, which is not JSON.
    encoded = json.dumps(params, separators=(",", ":"), allow_nan=False)
    return f'{text[: -len(_SUFFIX)]},"{PARAMS}":{encoded}{_SUFFIX}'
