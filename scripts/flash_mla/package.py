"""FlashMLA's dense decoding under the names of its own package, called through ctypes; `build.sh` installs this."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

#: The commit that was built.
__version__ = "unknown"

_ROW, _DIM, _PAGE = 576, 512, 64
_library = ctypes.CDLL(str(Path(__file__).with_name("libdecode.so")))
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_library.mla_plan.argtypes = [_INT, _POINTER, _POINTER, _POINTER, _INT, _POINTER]
_library.mla_run.argtypes = [*[_INT] * 5, ctypes.c_float, *[_POINTER] * 8, _INT, *[_POINTER] * 3]


class Plan:
    """How the work is cut, made by the first call and used by those after it."""

    def __init__(self) -> None:
        self.parts = 0
        self.tensors: tuple[torch.Tensor, torch.Tensor] | None = None

    def get(self, lengths: torch.Tensor, heads: int, stream: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.tensors is None:
            units = torch.cuda.get_device_properties(lengths.device).multi_processor_count
            self.parts = _library.mla_parts(units, heads)
            plan = lengths.new_empty((self.parts, 8))
            splits = lengths.new_empty((len(lengths) + 1,))
            _library.mla_plan(len(lengths), lengths.data_ptr(), plan.data_ptr(), splits.data_ptr(), self.parts, stream)
            self.tensors = plan, splits
        return self.tensors


def get_mla_metadata(*_: Any, **__: Any) -> tuple[Plan, None]:
    """An empty plan, whatever is asked: the first call fills it."""
    return Plan(), None


def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    head_dim_v: int,
    tile_scheduler_metadata: Plan,
    num_splits: None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output (batch, 1, heads, 512) and lse (batch, heads, 1) of q (batch, 1, heads, 576) over a cache of pages of 64.

    Raises:
        ValueError: what this part of FlashMLA does not do, or tensors that are not packed.
    """
    batch, queries, heads, row = q.shape
    if queries != 1 or row != _ROW or head_dim_v != _DIM or tuple(k_cache.shape[1:]) != (_PAGE, 1, _ROW):
        raise ValueError(
            f"one query of {_ROW} and pages of {_PAGE} are built: {tuple(q.shape)}, {tuple(k_cache.shape)}"
        )
    if not all(tensor.is_contiguous() for tensor in (q, k_cache, block_table, cache_seqlens)):
        raise ValueError("tensors must be packed")
    stream = torch.cuda.current_stream().cuda_stream
    plan, splits = tile_scheduler_metadata.get(cache_seqlens, heads, stream)
    parts = tile_scheduler_metadata.parts

    def single(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float32, device=q.device)

    out, lse = q.new_empty((batch, 1, heads, _DIM)), single(batch, heads, 1)
    lse_parts = single(batch + parts, heads)
    out_parts = single(batch + parts, heads, _DIM)
    _library.mla_run(
        q.dtype == torch.bfloat16,
        batch,
        heads,
        len(k_cache),
        block_table.shape[1],
        row**-0.5 if softmax_scale is None else softmax_scale,
        *(tensor.data_ptr() for tensor in (q, k_cache, out, lse, block_table, cache_seqlens, plan, splits)),
        parts,
        lse_parts.data_ptr(),
        out_parts.data_ptr(),
        stream,
    )
    return out, lse
