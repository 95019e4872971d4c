"""Attention forward, against the backends of torch's scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.bench.contenders import CUDNN, FLASH, TORCH
from core.bench.workloads.base import Inputs, Make, NotMeasured, Other, Workload, on_cpu

if TYPE_CHECKING:
    import torch


class Attention(Workload):
    """softmax(Q Kᵀ / sqrt(dim)) V, causal or not, with or without shared key heads."""

    output = "O"
    other_names = (CUDNN, FLASH, TORCH)

    @property
    def factory(self) -> Any:
        from core.ops.attention import attention

        return attention

    @property
    def causal(self) -> bool:
        return bool(self.case.options.get("causal", False))

    @property
    def flops(self) -> float:
        """Two products; of a causal mask half is counted, as the literature does."""
        s = self.shape
        return 4.0 * s["batch"] * s["heads"] * s["M"] * s["N"] * s["dim"] / (2 if self.causal else 1)

    @property
    def bytes_moved(self) -> int:
        s = self.shape
        return 2 * s["batch"] * (s["heads"] * s["M"] + s["kv_heads"] * s["N"]) * s["dim"] * self.element_bytes

    def inputs(self, make: Make) -> Inputs:
        s = self.shape
        return {
            "Q": make.random(s["batch"], s["heads"], s["M"], s["dim"]),
            "K": make.random(s["batch"], s["kv_heads"], s["N"], s["dim"]),
            "V": make.random(s["batch"], s["kv_heads"], s["N"], s["dim"]),
        }

    def expected(self, inputs: Inputs) -> torch.Tensor:
        """In float32, a key head of a sequence at a time: all the scores at once would not fit."""
        import torch

        q, k, v = (inputs[name] for name in "QKV")
        group = self.shape["heads"] // self.shape["kv_heads"]
        past = self.shape["N"] - self.shape["M"]
        found = torch.empty(q.shape, dtype=torch.float32, device=q.device)
        hidden = torch.ones(self.shape["M"], self.shape["N"], dtype=torch.bool, device=q.device).triu_(past + 1)
        for b in range(self.shape["batch"]):
            for h in range(self.shape["heads"]):
                key, value = k[b, h // group].float(), v[b, h // group].float()
                scores = (q[b, h].float() @ key.T) * self.shape["dim"] ** -0.5
                if self.causal:
                    scores.masked_fill_(hidden, float("-inf"))
                found[b, h] = scores.softmax(-1) @ value
        return found

    def others(self, inputs: Inputs) -> dict[str, Callable[[], Other]]:
        from torch.nn.attention import SDPBackend

        if on_cpu(inputs):
            return {TORCH: lambda: self._backend(inputs, None)}
        return {
            CUDNN: lambda: self._backend(inputs, SDPBackend.CUDNN_ATTENTION),
            FLASH: lambda: self._backend(inputs, SDPBackend.FLASH_ATTENTION),
        }

    def _backend(self, inputs: Inputs, backend: Any) -> Other:
        """Torch's attention with one backend; key heads are repeated where it cannot share them."""
        import contextlib
        import warnings

        from torch.nn.attention import sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        group = self.shape["heads"] // self.shape["kv_heads"]
        tensors = [inputs[name] for name in "QKV"]

        def calling(grouped: bool) -> Callable[..., Any]:
            def call(q: Any, k: Any, v: Any) -> Any:
                with contextlib.nullcontext() if backend is None else sdpa_kernel(backend):
                    return scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=grouped)

            return call

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a backend warns about each condition that rules it out
            try:
                calling(group > 1)(*tensors)
                return Other(tensors, calling(group > 1))
            except RuntimeError as error:
                if group == 1:
                    raise NotMeasured(str(error).splitlines()[0]) from error
            repeated = [tensors[0], *(one.repeat_interleave(group, 1) for one in tensors[1:])]
            try:
                calling(False)(*repeated)
            except RuntimeError as error:
                raise NotMeasured(str(error).splitlines()[0]) from error
        return Other(repeated, calling(False), note="key heads repeated beforehand, which is not timed")
