"""A vLLM plug-in: kv_transfer_params and output token ids in streams.

Stock vLLM answers kv_transfer_params in whole answers only. With this package installed, a chat or text stream of a
request that carried kv_transfer_params has those of its answer on the chunk with the finish_reason, as
vllm-project/vllm#40186 does, and they have the ids of all output tokens as their member output_token_ids. A stream of
/v1/messages has them on message_delta.

Everything else stays as stock vLLM sends it, byte for byte: requests without kv_transfer_params, with n > 1 or with
several prompts, and every stream in which something is not as expected, which is logged once.

answer.py  what one answer leaves behind
stream.py  where it is put into a stream
patch.py   which methods of vLLM are wrapped, and what they must look like for that
imports.py when that happens: in the processes that serve requests, and in no others
"""

from carryover_vllm.imports import register

__all__ = ["register"]

__version__ = "1.2.0"
