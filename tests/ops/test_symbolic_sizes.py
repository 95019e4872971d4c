"""Every operator says which of its sizes may be symbolic: those may be any size, others are refused before a trace."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import tilelang.language as T
import torch

import core
from core.ops.attention import attention
from core.ops.gemm import gemm
from core.runtime.values import torch_dtype
from core.tiling import KernelFactory
from tests.ops import references
from tests.ops.test_dtypes import factories, factory
from tests.packaging.layout import ROOT

TARGETS = ("cpu", "cuda:h200", "metax:c500", "ascend:910b3")
PRODUCT = {"block_M": 32, "block_N": 32, "block_K": 32, "num_stages": 1, "threads": 128}
ATTENTION = {"block_M": 64, "block_N": 64, "num_stages": 1, "threads": 128}
ROWS = {"block_M": 4, "block_N": 64, "threads": 128}

Call = tuple[list[torch.Tensor], list[torch.Tensor]]


def random(*extents: int) -> torch.Tensor:
    return torch.randn(*extents, generator=torch.Generator().manual_seed(sum(extents)))


def offsets(parts: int, total: int) -> torch.Tensor:
    """Where each of some parts of uneven lengths begins, the first one empty."""
    return torch.tensor([0, *(total * part // parts for part in range(parts - 1)), total], dtype=torch.int32)


def a_product(M: int, N: int, K: int, batch: int) -> Call:
    a, b = random(batch, M, K), random(batch, K, N)
    return [a, b], [references.gemm(a, b)]


def a_grouped_product(groups: int, M: int, N: int, K: int) -> Call:
    a, b, starts = random(M, K), random(groups, K, N), offsets(groups, M)
    pieces = [a[starts[g] : starts[g + 1]] @ b[g] for g in range(groups)]
    return [a, b, starts], [torch.cat(pieces)]


def an_activation(N: int) -> Call:
    return [random(N)], [torch.relu(random(N))]


def a_gate(M: int, N: int) -> Call:
    x = random(M, 2, N)
    return [x], [torch.nn.functional.silu(x[:, 0]) * x[:, 1]]


def a_softmax(M: int, N: int) -> Call:
    return [random(M, N)], [references.softmax(random(M, N))]


def a_layernorm(M: int, N: int) -> Call:
    x, weight, bias = random(M, N), random(N), random(N)
    return [x, weight, bias], [references.layernorm(x, weight, bias)]


def an_rmsnorm(M: int, N: int) -> Call:
    return [random(M, N), random(N)], [references.rmsnorm(random(M, N), random(N))]


def a_sum_and_its_rmsnorm(M: int, N: int) -> Call:
    x, weight = random(M, N), random(N)
    return [x, x, weight], [references.rmsnorm(2 * x, weight), 2 * x]


def an_attention(batch: int, heads: int, kv_heads: int, M: int, N: int, dim: int, causal: bool = False) -> Call:
    q, k, v = random(batch, heads, M, dim), random(batch, kv_heads, N, dim), random(batch, kv_heads, N, dim)
    # Queries that see nothing have weights of NaN in the reference.
    return [q, k, v], [references.attention(q, k, v, causal).nan_to_num(0.0)]


def an_attention_of_two(batch: int, heads: int, kv_heads: int, M: int, N: int, dim: int) -> Call:
    q, k, v = random(M, heads, dim), random(N, kv_heads, dim), random(N, kv_heads, dim)
    queries, keys = (torch.tensor([0, length // 3, length], dtype=torch.int32) for length in (M, N))
    pieces = []
    for s in range(batch):
        mine, seen = slice(queries[s], queries[s + 1]), slice(keys[s], keys[s + 1])
        one = references.attention(*(x.transpose(0, 1)[None] for x in (q[mine], k[seen], v[seen])))
        pieces.append(one[0].transpose(0, 1))
    return [q, k, v, queries, keys], [torch.cat(pieces)]


def a_step_of_decoding(batch: int, M: int, N: int, dim: int, rope: int) -> Call:
    q, q_rope, kv, k_rope = random(batch, M, dim), random(batch, M, rope), random(batch, N, dim), random(batch, N, rope)
    lengths = torch.tensor([N - s for s in range(batch)], dtype=torch.int32)
    inputs = [q, q_rope, kv, k_rope, lengths]
    return inputs, [references.mla_decode(*inputs)]


def a_convolution(batch: int, height: int, width: int, channels: int, filters: int, size: int) -> Call:
    x, weight = random(batch, height, width, channels), random(size, size, channels, filters)
    return [x, weight], [references.conv2d(x, weight, 1, 0, 1)]


@dataclass(frozen=True)
class Operator:
    """An operator with sizes.

    Attributes:
        call: inputs and expected outputs, of the sizes.
        sizes: of the arguments that are sizes.
        others: of each that may be symbolic, another one.
        more: arguments that are not sizes, tile parameters among them.
        ints: arguments that are ints and no sizes.
    """

    call: Callable[..., Call]
    sizes: Mapping[str, int]
    others: Mapping[str, int]
    more: Mapping[str, Any]
    ints: tuple[str, ...] = ()


OPERATORS = {
    "activations.activation": Operator(an_activation, {"N": 100}, {"N": 301}, {"block_N": 64, "threads": 64}),
    "activations.gated_activation": Operator(a_gate, {"M": 5, "N": 70}, {"M": 9, "N": 33}, ROWS),
    "attention.attention": Operator(
        an_attention,
        {"batch": 2, "heads": 2, "kv_heads": 2, "M": 70, "N": 90, "dim": 32},
        {"batch": 3, "heads": 5, "kv_heads": 5, "M": 30, "N": 150},
        ATTENTION,
    ),
    "attention_varlen.attention_varlen": Operator(
        an_attention_of_two,
        {"batch": 2, "heads": 2, "kv_heads": 2, "M": 70, "N": 90, "dim": 32},
        {"heads": 3, "kv_heads": 3, "M": 140, "N": 50},
        ATTENTION,
    ),
    "conv2d.conv2d": Operator(
        a_convolution,
        {"batch": 2, "height": 6, "width": 7, "channels": 32, "filters": 40, "size": 3},
        {"batch": 1, "height": 9, "width": 5, "filters": 20},
        PRODUCT,
        ("stride", "padding", "dilation", "M", "N", "K"),
    ),
    "gemm.gemm": Operator(
        a_product,
        {"M": 40, "N": 48, "K": 64, "batch": 2},
        {"M": 7, "N": 80, "K": 24, "batch": 3},
        {**PRODUCT, "panel": 0, "policy": 0, "cluster": 1, "workers": 0, "splits": 1},
    ),
    "grouped_gemm.grouped_gemm": Operator(
        a_grouped_product,
        {"groups": 3, "M": 70, "N": 48, "K": 64},
        {"groups": 2, "M": 9, "N": 80, "K": 24},
        PRODUCT,
    ),
    "layernorm.layernorm": Operator(a_layernorm, {"M": 5, "N": 64}, {"M": 9}, ROWS),
    "mla.mla_decode": Operator(
        a_step_of_decoding,
        {"batch": 2, "M": 16, "N": 90, "dim": 64, "rope": 16},
        {"batch": 3, "N": 130},
        {**ATTENTION, "block_M": 16, "variant": "pipelined", "splits": 1},
    ),
    "rmsnorm.add_rmsnorm": Operator(a_sum_and_its_rmsnorm, {"M": 5, "N": 64}, {"M": 9}, ROWS),
    "rmsnorm.rmsnorm": Operator(an_rmsnorm, {"M": 5, "N": 64}, {"M": 9}, ROWS),
    "softmax.softmax": Operator(a_softmax, {"M": 5, "N": 64}, {"M": 9}, ROWS),
}


def symbolic(*names: str) -> dict[str, Any]:
    """One symbolic size for all of these arguments."""
    size = T.dynamic(names[0])
    return dict.fromkeys(names, size)


#: Each operator with each of the arguments, or groups of them, that may be symbolic.
ALLOWED = [(operator, names) for operator in OPERATORS for names in factory(operator).symbolic or ()]
#: Each operator with each int that may not be symbolic, or not by itself.
REFUSED = [
    (operator, name)
    for operator, case in OPERATORS.items()
    for name in (*case.sizes, *case.ints)
    if (operator, (name,)) not in ALLOWED
]


def right(kernel: core.Kernel, call: Call) -> None:
    inputs, expected = call
    got = kernel(*inputs)
    for one, other in zip(got if isinstance(got, list) else [got], expected, strict=False):
        torch.testing.assert_close(one.double(), other.double(), atol=2e-4, rtol=2e-4)


def test_every_operator_says_which_sizes_may_be_symbolic() -> None:
    found: dict[str, KernelFactory] = factories()
    assert set(found) == set(OPERATORS)
    for name, one in found.items():
        assert one.symbolic is not None, name
        assert {argument for names in one.symbolic for argument in names} == set(OPERATORS[name].others), name
        ints = {
            argument
            for argument, parameter in one.signature.parameters.items()
            if argument not in one.parameters and parameter.annotation in (int, int | None, Any)
        }
        assert ints == {*OPERATORS[name].sizes, *OPERATORS[name].ints}, name


def test_the_documentation_names_them() -> None:
    rows = re.findall(r"^\| (`[\w`, ]+) \| (`.*) \|$", (ROOT / "docs" / "operators.md").read_text(), re.MULTILINE)
    said = {name: sizes for names, sizes in rows for name in re.findall(r"`(\w+)`", names)}
    for operator in OPERATORS:
        one = factory(operator)
        apart = {names for names in one.symbolic or () if len(names) == 1}
        together = {names for names in one.symbolic or () if len(names) > 1}
        first, _, second = said[one.name].partition("; ")
        assert {(name,) for name in re.findall(r"`(\w+)`", first)} == apart, one.name
        assert second == "".join(" and ".join(f"`{name}`" for name in names) + " as one size" for names in together)


@pytest.mark.parametrize(("operator", "names"), ALLOWED)
def test_one_kernel_computes_every_size_of_it(operator: str, names: tuple[str, ...]) -> None:
    case = OPERATORS[operator]
    shared = {"heads": 4} if "heads" in case.sizes and "heads" not in names else {}
    sizes = {**case.sizes, **shared}
    kernel = factory(operator).compile(**{**sizes, **symbolic(*names)}, **case.more, dtype="float32", target="cpu")
    for chosen in ({}, {name: case.others[name] for name in names}):
        right(kernel, case.call(**{**sizes, **chosen}))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_all_that_may_be_symbolic_may_be_so_at_once_on_every_chip(operator: str, target: str) -> None:
    case = OPERATORS[operator]
    sizes = dict(case.sizes)
    for names in factory(operator).symbolic or ():
        sizes |= symbolic(*names)
    kernel = factory(operator).compile(**sizes, **case.more, target=target, build=False)
    assert kernel.get_kernel_source()


@pytest.mark.gpu
@pytest.mark.parametrize("operator", OPERATORS)
def test_all_at_once_on_the_device(operator: str) -> None:
    """With the rules' tiles, in the dtype that matrix units take, on sizes that no tile divides."""
    case = OPERATORS[operator]
    sizes = dict(case.sizes)
    for names in factory(operator).symbolic or ():
        sizes |= symbolic(*names)
    kernel = factory(operator).compile(**sizes, dtype="float16", target="cuda")
    dtypes = [torch_dtype(argument.dtype) for argument in kernel.lowered.signature.arguments]
    for chosen in ({}, case.others, {}):
        inputs, expected = case.call(**{**case.sizes, **chosen})
        given = [one.to("cuda", dtype) for one, dtype in zip(inputs, dtypes, strict=False)]
        got = kernel(*given)
        for one, other in zip(got if isinstance(got, list) else [got], expected, strict=False):
            torch.testing.assert_close(one.double().cpu(), other.double(), atol=2e-2, rtol=2e-2)


def traced(*_: Any) -> None:
    raise AssertionError("traced")


@pytest.mark.parametrize(("operator", "name"), REFUSED)
def test_others_are_refused_before_anything_is_traced(
    operator: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, case = factory(operator), OPERATORS[operator]
    monkeypatch.setattr(KernelFactory, "trace", traced)
    for target in TARGETS:
        with pytest.raises(core.KernelError, match=rf"{one.name}: {name} is symbolic.*: symbolic may be ") as caught:
            one.compile(**{**case.sizes, **symbolic(name)}, target=target)
        allowed = caught.value.message.partition(": symbolic may be ")[2]
        assert re.findall(r"(\w+)(?= and|, |$| \()", allowed) == [
            argument for names in one.symbolic for argument in names
        ]
        assert f"{name}=" in caught.value.hint


@pytest.mark.parametrize(
    ("queries", "keys"),
    [(T.dynamic("M"), T.dynamic("N")), (T.dynamic("M"), 90), (70, T.dynamic("N")), tuple(symbolic("M", "N").values())],
    ids=["both", "queries", "keys", "one size"],
)
def test_causal_attention_of_any_lengths(queries: Any, keys: Any) -> None:
    """Where there are fewer keys than queries, those that see none give 0."""
    heads = {"heads": 4, "kv_heads": 2, "dim": 32}
    kernel = attention.compile(
        batch=1, M=queries, N=keys, **heads, causal=True, dtype="float32", target="cpu", **ATTENTION
    )
    for M, N in ((70, 90), (70, 70), (130, 90), (70, 3)):
        one_size = queries is keys and M != N
        if one_size or any(isinstance(said, int) and said != length for said, length in ((queries, M), (keys, N))):
            continue
        right(kernel, an_attention(1, M=M, N=N, **heads, causal=True))


@pytest.mark.parametrize("variant", ["warp_specialized", "warpgroups", "split"])
def test_a_variant_that_needs_the_number_says_so(variant: str) -> None:
    more = {**OPERATORS["gemm.gemm"].more, "block_M": 128, "block_N": 128, "block_K": 64, "threads": 256}
    with pytest.raises(core.KernelError, match=rf"batch is symbolic, and variant='{variant}'"):
        gemm.trace({**DEFAULTS, "batch": T.dynamic("batch")}, {**more, "num_stages": 2, "variant": variant})


def test_attention_by_hand_says_that_it_needs_the_lengths() -> None:
    sizes = {"batch": 1, "heads": 2, "kv_heads": 2, "M": 512, "N": 512, "dim": 64}
    tiles = {"block_M": 128, "block_N": 128, "num_stages": 2, "threads": 256, "variant": "overlapped", "workers": 0}
    for name in ("M", "N"):
        with pytest.raises(core.KernelError, match=f"{name} is symbolic, and the variants by hand"):
            attention.trace(attention.arguments((), {**sizes, **symbolic(name)}), tiles)
    for names in (("batch",), ("heads", "kv_heads")):
        arguments = attention.arguments((), {**sizes, **symbolic(*names)})
        attention.trace(arguments, tiles)
        with pytest.raises(core.KernelError, match="workers=8 share a known number of tiles"):
            attention.trace(arguments, {**tiles, "workers": 8})


#: Arguments of a product with a batch, as the factory binds them.
DEFAULTS = gemm.arguments((), {"M": 512, "N": 512, "K": 512, "batch": 2})
