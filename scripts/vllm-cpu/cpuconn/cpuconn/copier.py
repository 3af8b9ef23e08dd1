"""Copies between the KV cache of vLLM's CPU attention and LMCache's chunks."""

import torch


class Layout:
    """Where the CPU attention keeps what inside a block of a layer.

    A layer is a tensor [blocks, KV heads, block size, 2 * head size]. Its kernels pack the keys of a block in an order
    of their own (vllm/v1/attention/backends/cpu_attn.py, csrc/cpu), so the positions are asked of the kernel that writes
    them. Copied by plain slices, decode goes wrong at its first token.
    """

    def __init__(self, layer: torch.Tensor, head_size: int):
        from vllm import _custom_ops as ops
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

        if layer.dtype != torch.float32:  # the numbers written below must come back whole
            raise ValueError(f"cpuconn copies float32 only, not {layer.dtype}")
        _, heads, self.block_size, width = layer.shape
        elements = self.block_size * heads * head_size
        # One block is written with numbers that say what they are: 1, 2, 3 … for keys, and as many more for values.
        keys = torch.arange(1.0, elements + 1).view(self.block_size, heads, head_size)
        block = torch.zeros((1, heads, self.block_size, width))
        key_part, value_part = block.view(1, heads, 2 * self.block_size, -1).chunk(2, dim=2)
        isa = _get_attn_isa(layer.dtype, self.block_size, head_size)
        ops.cpu_attn_reshape_and_cache(keys, keys + elements, key_part, value_part, torch.arange(self.block_size), isa)
        positions = torch.empty(2 * elements, dtype=torch.long)
        positions[block.flatten().long() - 1] = torch.arange(2 * elements)
        # [key or value, token of the block, element of the token] -> position in the flat block
        self.positions = positions.view(2, self.block_size, heads * head_size)


def copier_class(interface: type) -> type:
    """The copier as a subclass of LMCache's GPUConnectorInterface, which must not be imported early."""

    class Copier(interface):
        def __init__(self, kv_shape):
            self.layers, _, _, heads, self.head_size = kv_shape  # [layers, 2, chunk size, KV heads, head size]
            self.hidden = heads * self.head_size
            self.layout = None

        def get_shape(self, num_tokens):
            return torch.Size([2, self.layers, num_tokens, self.hidden])  # LMCache's KV_2LTD

        def _where(self, kvcaches, slots):
            """The block of each slot, and the positions in it: [key or value][slot, element]."""
            if self.layout is None:
                self.layout = Layout(kvcaches[0], self.head_size)
            size = self.layout.block_size
            return slots[:, None] // size, self.layout.positions[:, slots % size]

        def from_gpu(self, memory_obj, start, end, *, kvcaches, slot_mapping, **_):
            slots = slot_mapping[start:end].long()
            real = slots >= 0
            blocks, positions = self._where(kvcaches, slots[real])
            for i, layer in enumerate(kvcaches):
                flat = layer.view(layer.shape[0], -1)
                for kv in (0, 1):
                    memory_obj.tensor[kv, i, real] = flat[blocks, positions[kv]]

        def to_gpu(self, memory_obj, start, end, *, kvcaches, slot_mapping, vllm_cached_tokens=0, **_):
            slots = slot_mapping[start:end].long()
            wanted = slots >= 0
            # Blocks that vLLM has cached itself may be shared; the chunk that they end in is loaded whole.
            wanted[: max(0, min(end, vllm_cached_tokens) - start)] = False
            blocks, positions = self._where(kvcaches, slots[wanted])
            for i, layer in enumerate(kvcaches):
                flat = layer.view(layer.shape[0], -1)
                for kv in (0, 1):
                    flat[blocks, positions[kv]] = memory_obj.tensor[kv, i, wanted]

        def batched_from_gpu(self, memory_objs, starts, ends, **kwargs):
            for memory_obj, start, end in zip(memory_objs, starts, ends, strict=True):
                self.from_gpu(memory_obj, start, end, **kwargs)

        def batched_to_gpu(self, memory_objs=None, starts=None, ends=None, **kwargs):
            for memory_obj, start, end in zip(memory_objs, starts, ends, strict=True):
                self.to_gpu(memory_obj, start, end, **kwargs)

    return Copier
