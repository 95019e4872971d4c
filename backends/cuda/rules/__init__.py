"""Tile-size rules for NVIDIA GPUs: what is worth considering by operator, and what cannot be compiled or launched.

`launch` holds for every kernel; `matrix`, `attention` and `rows` for those operators; `variants` for kernels that come
in several, `attention_variants` and `latent_variants` for those of attention; `instructions` is what TileLang makes of
a matrix product, `row_blocks` the block that holds whole rows. Figures come from the chip's descriptor.
"""

from __future__ import annotations

from backends.cuda.rules.attention import attention_rule
from backends.cuda.rules.launch import launch_rule
from backends.cuda.rules.matrix import gemm_rule
from backends.cuda.rules.rows import elementwise_rule, reduction_rule
from backends.cuda.rules.variants import variant_rule
from core.hardware import Chip
from core.tiling import KernelShape, TileRule

_BY_OPERATOR = {"gemm": gemm_rule, "attention": attention_rule, "reduction": reduction_rule}


def tile_rules(chip: Chip, kernel: KernelShape) -> list[TileRule]:
    """The constraints every launch on the chip obeys, and what is worth considering for the kernel's operator."""
    rules = [launch_rule(chip, kernel), _BY_OPERATOR.get(kernel.operator, elementwise_rule)(chip, kernel)]
    variants = variant_rule(chip, kernel)
    return rules if variants is None else [*rules, variants]
