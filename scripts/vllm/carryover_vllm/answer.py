"""What one answer of one request leaves behind: its token ids and its kv_transfer_params."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from carryover_vllm.log import warn_once

MEMBER = "output_token_ids"


class Answer:
    """Collects the RequestOutputs (vllm/outputs.py) of one prompt with n = 1.

    deltas: each RequestOutput brings new tokens, as in streams; otherwise each brings all tokens so far.
    pick: finds the RequestOutput in what the engine yields.

    An exception ends the collecting, not the answer: `params` stays None then, and the answer is stock vLLM's.
    """

    def __init__(self, *, deltas: bool, pick: Callable[[Any], Any] = lambda item: item) -> None:
        self.params: dict[str, Any] | None = None
        self._deltas = deltas
        self._pick = pick
        self._ids: list[int] = []
        self._failed = False

    def see(self, item: Any) -> None:
        """Takes in what the engine yields next. The RequestOutput that finishes the answer gets the ids into its
        kv_transfer_params, which a whole answer shows as they are; stream chunks of vLLM 0.32 don't read them."""
        if self._failed:
            return
        try:
            self._collect(self._pick(item))
        except Exception:
            self._failed = True
            warn_once("an engine output is not as expected; answers like it stay stock", trace=True)

    def _collect(self, result: Any) -> None:
        (output,) = result.outputs
        # Copied: vLLM may go on using its list. index() refuses what is no integer and takes numpy's.
        ids = [operator.index(token) for token in output.token_ids]
        if self._deltas:
            self._ids.extend(ids)
        else:
            self._ids = ids
        # Only what comes with the finish counts. After a stop string the engine gives null, and holds no blocks.
        if output.finish_reason is None or not result.kv_transfer_params:
            return
        params = {**result.kv_transfer_params, MEMBER: self._ids}
        result.kv_transfer_params = params
        self.params = params
