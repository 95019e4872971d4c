"""Decoding with multi-head latent attention, against FlashMLA where it is installed, and against the roofline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.bench.contenders import FLASHMLA, TORCH
from core.bench.workloads.base import Inputs, Make, NotMeasured, Other, Workload, on_cpu

if TYPE_CHECKING:
    import torch

#: Of DeepSeek-V2 and V3: elements of the compressed key and value, and of the rotated part of a key.
DIM, ROPE = 512, 64
#: Keys of a page of FlashMLA's cache.
_PAGE = 64


class LatentDecode(Workload):
    """One query a head and sequence, all heads over one compressed cache, every sequence equally long."""

    output = "O"
    other_names = (FLASHMLA, TORCH)

    @property
    def factory(self) -> Any:
        from core.ops.mla import mla_decode

        return mla_decode

    @property
    def flops(self) -> float:
        s = self.shape
        return 2.0 * s["batch"] * s["M"] * s["N"] * (DIM + ROPE + DIM)

    @property
    def bytes_moved(self) -> int:
        s = self.shape
        queries = s["batch"] * s["M"] * (DIM + ROPE + DIM)
        return (queries + s["batch"] * s["N"] * (DIM + ROPE)) * self.element_bytes

    def inputs(self, make: Make) -> Inputs:
        import torch

        s = self.shape
        return {
            "Q": make.random(s["batch"], s["M"], DIM),
            "Q_rope": make.random(s["batch"], s["M"], ROPE),
            "KV": make.random(s["batch"], s["N"], DIM),
            "K_rope": make.random(s["batch"], s["N"], ROPE),
            "lengths": torch.full((s["batch"],), s["N"], dtype=torch.int32, device=make.device),
        }

    def expected(self, inputs: Inputs) -> torch.Tensor:
        import torch

        found = []
        for b in range(self.shape["batch"]):
            q, q_rope, kv, k_rope = (inputs[name][b].float() for name in ("Q", "Q_rope", "KV", "K_rope"))
            scores = (q @ kv.T + q_rope @ k_rope.T) * (DIM + ROPE) ** -0.5
            found.append(scores.softmax(-1) @ kv)
        return torch.stack(found)

    def others(self, inputs: Inputs) -> dict[str, Callable[[], Other]]:
        return {FLASHMLA: lambda: self._flash_mla(inputs), TORCH: lambda: self._torch(inputs)}

    def _joined(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and cache with the rotated part at the end of each, as everybody else stores them."""
        import torch

        return torch.cat([inputs["Q"], inputs["Q_rope"]], -1), torch.cat([inputs["KV"], inputs["K_rope"]], -1)

    def _torch(self, inputs: Inputs) -> Other:
        from torch.nn.functional import scaled_dot_product_attention

        q, cache = self._joined(inputs)

        def call(q: Any, cache: Any) -> Any:
            values = cache[..., :DIM]
            # All heads share the cache: they are rows of one product.
            return scaled_dot_product_attention(q[:, None], cache[:, None], values[:, None])[:, 0]

        return Other([q, cache], call)

    def _flash_mla(self, inputs: Inputs) -> Other:
        """The published kernel with its paged cache; planning is not timed."""
        if on_cpu(inputs):
            raise NotMeasured("FlashMLA is for NVIDIA GPUs")
        try:
            import flash_mla
        except ImportError as error:
            raise NotMeasured(f"FlashMLA is not installed ({error})") from error
        import torch

        batch, heads, keys = (self.shape[name] for name in ("batch", "M", "N"))
        if keys % _PAGE:
            raise NotMeasured(f"{keys} keys are no whole pages of {_PAGE}")
        q, cache = self._joined(inputs)
        pages = keys // _PAGE
        table = torch.arange(batch * pages, dtype=torch.int32, device=q.device).view(batch, pages)
        plan = flash_mla.get_mla_metadata(inputs["lengths"], heads, 1)

        def call(q: Any, cache: Any, table: Any, lengths: Any) -> Any:
            paged = cache.view(batch * pages, _PAGE, 1, DIM + ROPE)
            output, _ = flash_mla.flash_mla_with_kvcache(q[:, None], paged, table, lengths, DIM, *plan, causal=False)
            return output[:, 0]

        return Other([q, cache, table, inputs["lengths"]], call, note="planned beforehand, which is not timed")
