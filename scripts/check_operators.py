"""Every operator on random shapes, tails and layouts, with fresh data and poisoned outputs, against torch in float64.

    python scripts/check_operators.py --target cuda --cases 40 --json operators.json      # on a GPU
    python scripts/check_operators.py --target cuda --cases 4 --build-only                # compile, run nothing
    compute-sanitizer --tool memcheck python scripts/check_operators.py --target cuda --cases 4
    python scripts/check_operators.py --target cpu --cases 3                              # anywhere

The cases follow from `--seed`, so that a run under a sanitizer repeats one without it, from a warm cache. Each result
is compared by the norm of its error over that of the reference; the memory behind an output is filled with NaN (or the
largest integer) first. Kernels are compiled in `--jobs` processes before the first one runs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

#: Largest relative error by dtype: inputs are rounded to it, sums are float32.
LIMITS = {"float16": 4e-3, "bfloat16": 2e-2, "float32": 2e-3, "float8_e4m3fn": 8e-2, "int8": 0.0}
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """One call: the operator, the shapes of its tensors, its other arguments."""

    operator: str
    shapes: dict[str, tuple[int, ...]]
    dtype: str = "float16"
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        shapes = " ".join(f"{name}{list(shape)}" for name, shape in self.shapes.items())
        return f"{self.operator} {self.dtype} {shapes} {dict(self.options) or ''}"


# ---------------------------------------------------------------------------------------------------------------- cases


def _gemm(r: random.Random) -> Case:
    dtype = r.choice(("float16", "bfloat16", "float16", "int8", "float8_e4m3fn"))
    step = 8 if dtype in ("float16", "bfloat16") else 16
    m, n, k = (r.choice((1, 17, 64, 100, 128, 333, 512)), step * r.randint(1, 60), step * r.randint(1, 60))
    narrow = dtype in ("int8", "float8_e4m3fn")
    options: dict[str, Any] = {"trans_b": narrow or r.random() < 0.5}
    options |= {"trans_a": not narrow and m % step == 0 and r.random() < 0.3}
    if not narrow and r.random() < 0.4:
        options |= {"bias": True, "activation": r.choice(("relu", "gelu", "silu")), "residual": r.random() < 0.5}
    return Case("gemm", {"a": (m, k), "b": (k, n)}, dtype, tuple(options.items()))


def _batched(r: random.Random) -> Case:
    batch, m, n, k = r.randint(1, 5), r.choice((16, 60, 128)), 8 * r.randint(1, 32), 8 * r.randint(1, 32)
    return Case("gemm", {"a": (batch, m, k), "b": (batch, k, n)}, r.choice(("float16", "bfloat16")))


def _large(r: random.Random) -> Case:
    m, n, k = (128 * r.randint(16, 24) + r.choice((0, 8)), 256 * r.randint(8, 12), 64 * r.randint(4, 20))
    return Case("gemm", {"a": (m, k), "b": (k, n)}, "float16", (("trans_b", r.random() < 0.5),))


def _rows(operator: str) -> Callable[[random.Random], Case]:
    def make(r: random.Random) -> Case:
        return Case(
            operator,
            {"x": (r.randint(1, 300), r.choice((1, 7, 64, 100, 1000, 1024, 4096, 5000, 9000)))},
            r.choice(("float16", "bfloat16", "float32")),
        )

    return make


def _attention(r: random.Random) -> Case:
    kv_heads = r.choice((1, 2, 4))
    heads, dim, m = kv_heads * r.choice((1, 2, 4)), r.choice((64, 128, 64, 128, 72)), r.choice((1, 65, 128, 200, 512))
    causal = r.random() < 0.5
    n = m + r.choice((0, 64, 100)) if causal else r.choice((33, 128, 300, 1024))
    q, k = (2, heads, m, dim), (2, kv_heads, n, dim)
    return Case("attention", {"q": q, "k": k, "v": k}, r.choice(("float16", "bfloat16")), (("causal", causal),))


def _varlen(r: random.Random) -> Case:
    kv_heads, dim, sequences = r.choice((1, 2)), r.choice((64, 128, 80)), r.randint(1, 5)
    queries = (*(r.choice((0, 1, 64, 130)) for _ in range(sequences - 1)), 65)
    keys = tuple(r.choice((1, 33, 128, 300)) for _ in range(sequences))
    q, k = (sum(queries), kv_heads * r.choice((1, 2, 4)), dim), (sum(keys), kv_heads, dim)
    options = {"causal": r.random() < 0.5, "queries": queries, "keys": keys}
    dtype = r.choice(("float16", "bfloat16"))
    return Case("attention_varlen", {"q": q, "k": k, "v": k}, dtype, tuple(options.items()))


def _mla(r: random.Random) -> Case:
    batch, heads, keys = r.randint(1, 3), r.choice((16, 64, 128)), r.choice((100, 512, 1000))
    shapes = {"q": (batch, heads, 512), "q_rope": (batch, heads, 64), "kv": (batch, keys, 512)}
    return Case("mla_decode", {**shapes, "k_rope": (batch, keys, 64)}, r.choice(("float16", "bfloat16")))


def _conv2d(r: random.Random) -> Case:
    size, channels, filters = r.choice((1, 3)), r.choice((8 * r.randint(1, 9), 64, 128)), 8 * r.randint(1, 9)
    x: tuple[int, ...] = (r.randint(1, 3), r.randint(5, 20), r.randint(5, 20), channels)
    options = {"stride": r.choice((1, 2)), "padding": r.choice((0, 1))}
    shapes = {"x": x, "weight": (size, size, channels, filters)}
    return Case("conv2d", shapes, "float16", tuple(options.items()))


def _grouped(r: random.Random) -> Case:
    groups = r.randint(1, 6)
    k, n = 8 * r.randint(2, 30), 8 * r.randint(2, 30)
    sizes = (*(r.choice((0, 1, 16, 50, 130)) for _ in range(groups - 1)), 33)
    return Case("grouped_gemm", {"a": (sum(sizes), k), "b": (groups, k, n)}, "float16", (("sizes", sizes),))


def _activation(operator: str) -> Callable[[random.Random], Case]:
    def make(r: random.Random) -> Case:
        return Case(operator, {"x": (r.randint(1, 200), 2 * r.randint(1, 2000))}, r.choice(("float16", "bfloat16")))

    return make


MAKERS: dict[str, Callable[[random.Random], Case]] = {
    "gemm": _gemm,
    "gemm, batched": _batched,
    "gemm, large": _large,
    "softmax": _rows("softmax"),
    "layernorm": _rows("layernorm"),
    "rmsnorm": _rows("rmsnorm"),
    "add_rmsnorm": _rows("add_rmsnorm"),
    "attention": _attention,
    "attention_varlen": _varlen,
    "mla_decode": _mla,
    "conv2d": _conv2d,
    "grouped_gemm": _grouped,
    "gelu": _activation("gelu"),
    "relu": _activation("relu"),
    "silu": _activation("silu"),
    "gelu_and_mul": _activation("gelu_and_mul"),
    "silu_and_mul": _activation("silu_and_mul"),
}


def cases(seed: int, count: int, chosen: list[str]) -> Iterator[Case]:
    """`count` cases of each operator."""
    for name, make in MAKERS.items():
        if not chosen or name in chosen:
            r = random.Random(f"{seed} {name}")
            yield from (make(r) for _ in range(count))


# ------------------------------------------------------------------------------------------- inputs and references


def inputs(case: Case, device: str, seed: int) -> Tensors:
    """Random tensors of the case; integers small, weights near one."""
    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, case.dtype)
    tensors = {}
    for name, shape in case.shapes.items():
        if case.dtype == "int8":
            value = torch.randint(-8, 8, shape, generator=generator).to(dtype)
        else:
            value = torch.randn(shape, generator=generator).to(dtype)
        tensors[name] = value.to(device)
    options = dict(case.options)
    if options.get("trans_b"):
        tensors["b"] = tensors["b"].mT.contiguous().mT
    if options.get("trans_a"):
        tensors["a"] = tensors["a"].mT.contiguous().mT
    return tensors


def call(case: Case, t: Tensors, seed: int, **how: Any) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The operator's result."""
    from core.ops import functional

    options = dict(case.options)
    extra = _extra(case, t, seed)
    match case.operator:
        case "gemm":
            out = _poisoned((*t["a"].shape[:-1], t["b"].shape[-1]), _result_dtype(case), t["a"].device)
            activation, bias, residual = options.get("activation"), extra.get("bias"), extra.get("residual")
            return functional.gemm(t["a"], t["b"], bias=bias, activation=activation, residual=residual, out=out, **how)
        case "softmax":
            return functional.softmax(t["x"], out=_like(t["x"]), **how)
        case "layernorm":
            return functional.layernorm(t["x"], extra["weight"], extra["bias"], out=_like(t["x"]), **how)
        case "rmsnorm":
            return functional.rmsnorm(t["x"], extra["weight"], out=_like(t["x"]), **how)
        case "add_rmsnorm":
            return functional.add_rmsnorm(t["x"], extra["residual"], extra["weight"], **how)
        case "attention":
            return functional.attention(t["q"], t["k"], t["v"], causal=options["causal"], out=_like(t["q"]), **how)
        case "attention_varlen":
            out, offsets = _like(t["q"]), (extra["q_offsets"], extra["k_offsets"])
            return functional.attention_varlen(
                t["q"], t["k"], t["v"], *offsets, causal=options["causal"], out=out, **how
            )
        case "mla_decode":
            return functional.mla_decode(t["q"], t["q_rope"], t["kv"], t["k_rope"], extra["lengths"], **how)
        case "conv2d":
            return functional.conv2d(t["x"], t["weight"], **options, **how)
        case "grouped_gemm":
            return functional.grouped_gemm(t["a"], t["b"], extra["offsets"], **how)
    result: torch.Tensor = getattr(functional, case.operator)(t["x"], **how)
    return result


def reference(case: Case, t: Tensors, seed: int) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The same in float64 with torch."""
    w = {name: value.double() for name, value in t.items()}
    extra = _extra(case, t, seed)
    e = {name: value.double() for name, value in extra.items()}
    options = dict(case.options)
    match case.operator:
        case "gemm":
            c = w["a"] @ w["b"]
            c = c + e["bias"] if "bias" in e else c
            c = ACTIVATIONS[options["activation"]](c) if "activation" in options else c
            return c + e["residual"] if "residual" in e else c
        case "softmax":
            return torch.softmax(w["x"], -1)
        case "layernorm":
            return F.layer_norm(w["x"], w["x"].shape[-1:], e["weight"], e["bias"], 1e-5)
        case "rmsnorm":
            return _rms(w["x"]) * e["weight"]
        case "add_rmsnorm":
            # The sum is stored rounded, and what is stored is normalised.
            total = (w["x"] + e["residual"]).to(t["x"].dtype).double()
            return _rms(total) * e["weight"], total
        case "attention":
            return _attention_of(w["q"], w["k"], w["v"], options["causal"])
        case "attention_varlen":
            sizes = [list(options[name]) for name in ("queries", "keys", "keys")]
            apart = (torch.split(w[name].transpose(0, 1), own, 1) for name, own in zip("qkv", sizes, strict=True))
            found = [_attention_of(q, k, v, options["causal"]) for q, k, v in zip(*apart, strict=True)]
            return torch.cat(found, 1).transpose(0, 1)
        case "mla_decode":
            scores = (w["q"] @ w["kv"].mT + w["q_rope"] @ w["k_rope"].mT) * (512 + 64) ** -0.5
            hidden = torch.arange(scores.shape[-1], device=scores.device) >= extra["lengths"][:, None, None]
            return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ w["kv"]
        case "conv2d":
            y = F.conv2d(w["x"].permute(0, 3, 1, 2), w["weight"].permute(3, 2, 0, 1), **options)
            return y.permute(0, 2, 3, 1)
        case "grouped_gemm":
            pieces = torch.split(w["a"], list(options["sizes"]))
            return torch.cat([piece @ b for piece, b in zip(pieces, w["b"], strict=True)])
        case "relu" | "gelu" | "silu":
            return ACTIVATIONS[case.operator](w["x"])
    first, second = w["x"].chunk(2, -1)
    return ACTIVATIONS[case.operator.removesuffix("_and_mul")](first) * second


def _attention_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Of (..., heads, M, dim) and (..., key heads, N, dim); a query that sees no key gives 0."""
    group, m, n = q.shape[-3] // k.shape[-3], q.shape[-2], k.shape[-2]
    k, v = (one.repeat_interleave(group, -3) for one in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(~torch.ones(m, n, dtype=torch.bool, device=q.device).tril(n - m), -torch.inf)
        # Of a row without a key softmax makes NaN.
        return (torch.softmax(scores, -1).nan_to_num() if m > n else torch.softmax(scores, -1)) @ v
    return torch.softmax(scores, -1) @ v


def _extra(case: Case, t: Tensors, seed: int) -> Tensors:
    """What a case has beside its main tensors."""
    first = next(iter(t.values()))
    generator = torch.Generator().manual_seed(seed + 1)

    def fresh(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(first.dtype).to(first.device)

    options = dict(case.options)
    if case.operator == "gemm":
        wanted = {"bias": (t["b"].shape[-1],), "residual": (*t["a"].shape[:-1], t["b"].shape[-1])}
        return {name: fresh(*shape) for name, shape in wanted.items() if options.get(name)}
    if case.operator in ("layernorm", "rmsnorm", "add_rmsnorm"):
        columns = t["x"].shape[-1]
        names = {"layernorm": ("weight", "bias"), "rmsnorm": ("weight",), "add_rmsnorm": ("weight",)}[case.operator]
        found = {name: fresh(columns) for name in names}
        return {**found, "residual": fresh(*t["x"].shape)} if case.operator == "add_rmsnorm" else found
    if case.operator == "mla_decode":
        batch, keys = t["kv"].shape[:2]
        return {
            "lengths": torch.randint(1, keys + 1, (batch,), generator=generator, dtype=torch.int32).to(first.device)
        }
    sizes = {"grouped_gemm": {"offsets": "sizes"}, "attention_varlen": {"q_offsets": "queries", "k_offsets": "keys"}}
    return {
        name: torch.tensor([0, *options[of]]).cumsum(0).to(torch.int32).to(first.device)
        for name, of in sizes.get(case.operator, {}).items()
    }


def _rms(x: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def _result_dtype(case: Case) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, {"int8": "int32", "float8_e4m3fn": "float16"}.get(case.dtype, case.dtype))
    return dtype


def _poisoned(shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> torch.Tensor:
    out = torch.empty(shape, dtype=dtype, device=device)
    return out.fill_(torch.iinfo(dtype).max if not dtype.is_floating_point else float("nan"))


def _like(x: torch.Tensor) -> torch.Tensor:
    return _poisoned(tuple(x.shape), x.dtype, x.device)


# -------------------------------------------------------------------------------------------------------------- running


def build(job: tuple[Case, str]) -> str | None:
    """Compiles and builds the kernels of a case's call: what went wrong, or None."""
    from core.ops._calling import building

    case, target = job
    try:
        with building():
            call(case, inputs(case, "cpu", 0), 0, target=target)
    except Exception as error:
        return f"{case}: {type(error).__name__}: {str(error)[:300]}"
    return None


def check(case: Case, target: str, device: str, seed: int) -> dict[str, Any]:
    """Runs one case: its error, or what was raised."""
    t = inputs(case, device, seed)
    try:
        got = call(case, t, seed, target=target)
    except Exception as error:
        return {"case": str(case), "status": "raised", "reason": f"{type(error).__name__}: {str(error)[:400]}"}
    worst = 0.0
    for one, other in zip(_all(got), _all(reference(case, t, seed)), strict=True):
        size = other.norm().item()
        difference = (one.double() - other).norm().item()
        worst = max(worst, difference / size if size else difference) if difference == difference else float("inf")
    return {"case": str(case), "status": "ok" if worst <= LIMITS[case.dtype] else "wrong", "error": worst}


def _all(result: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="auto", help="chip to compile for and to run on (%(default)s)")
    parser.add_argument("--cases", type=int, default=20, help="of each operator")
    parser.add_argument("--operators", nargs="*", default=[], choices=list(MAKERS), help="only these; default: all")
    parser.add_argument("--seed", type=int, default=0, help="of the cases and their data (%(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="kernels compiled at once; default: one for each CPU"
    )
    parser.add_argument("--build-only", action="store_true", help="compile, run nothing")
    parser.add_argument("--json", type=Path, help="write every outcome here")
    arguments = parser.parse_args()
    device = (
        "cuda"
        if not arguments.build_only and arguments.target.startswith(("cuda", "auto")) and torch.cuda.is_available()
        else "cpu"
    )
    wanted = list(cases(arguments.seed, arguments.cases, arguments.operators))
    started = time.monotonic()
    if arguments.jobs > 1 or arguments.build_only:
        problems = 0
        with ProcessPoolExecutor(arguments.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            for problem in pool.map(build, [(case, arguments.target) for case in wanted]):
                if problem:
                    problems += 1
                    print("does not build:", problem, flush=True)
        print(f"built {len(wanted) - problems} of {len(wanted)} in {time.monotonic() - started:.0f} s", flush=True)
        if arguments.build_only:
            return 1 if problems else 0
    rows = []
    for index, case in enumerate(wanted):
        rows.append(check(case, arguments.target, device, arguments.seed + index))
        if rows[-1]["status"] != "ok":
            print(
                rows[-1]["status"],
                rows[-1]["case"],
                rows[-1].get("reason") or f"error {rows[-1]['error']:.2e}",
                flush=True,
            )
    if device == "cuda":
        torch.cuda.synchronize()
    counts = {status: sum(row["status"] == status for row in rows) for status in ("ok", "wrong", "raised")}
    worst = max((row["error"] for row in rows if row["status"] == "ok"), default=0.0)
    print(f"{len(rows)} calls: {counts}; largest relative error {worst:.2e}; {time.monotonic() - started:.0f} s")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"target": arguments.target, "seed": arguments.seed, "rows": rows}, indent=1)
        )
    return 0 if counts["ok"] == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
