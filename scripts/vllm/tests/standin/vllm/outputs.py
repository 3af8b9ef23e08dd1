"""RequestOutput and CompletionOutput of vllm/outputs.py, as far as the serving classes read them."""

from dataclasses import dataclass, field


@dataclass
class CompletionOutput:
    text: str
    token_ids: list
    finish_reason: str | None = None
    index: int = 0


@dataclass
class RequestOutput:
    outputs: list
    kv_transfer_params: dict | None = None
    prompt_token_ids: list = field(default_factory=lambda: [1, 2, 3])
