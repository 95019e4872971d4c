#!/usr/bin/env python3
"""What rules and cost model choose first for common shapes, what it takes of each memory, and whether it works.

    python scripts/first_choices.py                                    # the table for ascend:910b3 and metax:c500
    python scripts/first_choices.py --target cuda:h200 --operators gemm
    python scripts/first_choices.py --build --simulate                 # also built, and run on the CPU simulator
    python scripts/first_choices.py --target metax:c500 --build --simulate --docs docs/metax.md

Nothing is measured and no device is needed. `--build` compiles each first choice at its own shape: with the vendor's
compiler where it is installed (Ascend), else to native source (MetaX, whose compiler is not public). `--simulate` runs
the same tiles on a smaller problem (two tiles along each axis, three along a reduction; rows in full) on the simulator
and compares with torch. Exit status: how many are not as they should be, at most 99.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    import torch

    from core.tiling.factory import KernelFactory

BEGIN, END = "<!-- first choices: begin", "<!-- first choices: end -->"
TARGETS = ("ascend:910b3", "metax:c500")
OPERATORS = ("gemm", "attention", "softmax", "layernorm")
#: Largest relative error, by what operands and results are rounded to.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float8_e4m3fn": 4e-3, "int8": 0.0}
_GEMMS = (
    (512, 512, 512, "float16"),
    (1024, 1024, 1024, "float16"),
    (2048, 2048, 2048, "bfloat16"),
    (4096, 4096, 4096, "float16"),
    (8192, 8192, 8192, "float16"),
    (1, 4096, 4096, "float16"),
    (16, 4096, 4096, "float16"),
    (64, 8192, 8192, "bfloat16"),
    (128, 4096, 4096, "float16"),
    (16384, 1024, 4096, "float16"),
    (512, 512, 16384, "float16"),
    (4096, 4096, 4096, "int8"),
)
_ATTENTION = (
    (4, 32, 32, 2048, 128, False),
    (4, 32, 32, 4096, 128, True),
    (4, 32, 32, 2048, 64, False),
    (4, 32, 8, 2048, 128, True),
    (1, 32, 32, 8192, 128, True),
    (16, 16, 16, 512, 64, False),
)
_ROWS = ((4096, 4096), (16384, 1024), (4096, 8192), (65536, 512), (1024, 32768), (32768, 256))


@dataclass
class Choice:
    """A first choice and what became of it.

    Attributes:
        memory_bytes: predicted, by memory: (bytes per block, what a block may have; None when unknown).
        place: of the candidate that lowered; 1 is the first choice itself.
        built: `vendor compiler`, `source only`, or why not; empty when not asked for.
        error: relative error of the simulation, or why there is none.
    """

    target: str
    operator: str
    arguments: Mapping[str, Any]
    tiles: Mapping[str, Any]
    ranked: int
    refused: int
    bound: str
    predicted_s: float
    memory_bytes: Mapping[str, tuple[int, int | None]]
    assumptions: Sequence[str] = ()
    place: int | None = None
    built: str = ""
    error: float | str | None = None
    seconds: float = field(default=0.0)

    @property
    def sound(self) -> bool:
        wrong = isinstance(self.error, str) or (
            self.error is not None and self.error > TOLERANCE[self.arguments.get("dtype", "float16")]
        )
        return self.place in (None, 1) and self.built in ("", "vendor compiler", "source only") and not wrong


def shapes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Twelve products, six attentions, six softmaxes, six layer normalisations: (operator, arguments)."""
    for m, n, k, dtype in _GEMMS:
        yield "gemm", {"M": m, "N": n, "K": k, "dtype": dtype, **({"trans_b": True} if dtype == "int8" else {})}
    for batch, heads, kv_heads, length, dim, causal in _ATTENTION:
        yield (
            "attention",
            {
                "batch": batch,
                "heads": heads,
                "kv_heads": kv_heads,
                "M": length,
                "N": length,
                "dim": dim,
                "causal": causal,
            },
        )
    for operator in ("softmax", "layernorm"):
        for m, n in _ROWS:
            yield operator, {"M": m, "N": n}


def factory_of(operator: str) -> KernelFactory:
    factory: KernelFactory = getattr(importlib.import_module(f"core.ops.{operator}"), operator)
    return factory


def choose(target: str, operator: str, arguments: Mapping[str, Any], build: bool, simulate: bool) -> Choice:
    """The first choice of one kernel on one chip."""
    started = time.perf_counter()
    factory = factory_of(operator)
    ranking = factory.rank(**arguments, target=target)
    first = ranking.candidates[0]
    prediction = first.prediction
    assert prediction is not None, first.reason
    import core

    chip = core.chip(target)
    choice = Choice(
        target,
        operator,
        arguments,
        dict(first.tiles),
        len(ranking.candidates),
        len(ranking.refused),
        prediction.bound,
        prediction.seconds,
        {name: (size, chip.memory(name).block_limit_bytes) for name, size in prediction.memory_bytes.items()},
        prediction.assumptions,
    )
    if build:
        _build(choice, factory)
    if simulate:
        choice.error = _simulated(choice, factory)
    choice.seconds = time.perf_counter() - started
    return choice


def _build(choice: Choice, factory: KernelFactory) -> None:
    """Compiles as a user would, at the kernel's own shape: whichever candidate lowers first."""
    from core.errors import TileHALError, ToolchainNotFound

    try:
        kernel = factory.compile(**choice.arguments, target=choice.target, build=False)
        choice.place = 1 + len(kernel.config.rejected)
        try:
            kernel.build()
            choice.built = "vendor compiler"
        except ToolchainNotFound:
            choice.built = "source only"
    except TileHALError as error:
        choice.built = f"{type(error).__name__}: {error.message.splitlines()[0]}"


def reduced(choice: Choice) -> dict[str, Any]:
    """A smaller problem for the same tiles."""
    arguments, tiles = dict(choice.arguments), choice.tiles
    rows = 2 * tiles["block_M"]
    if choice.operator == "gemm":
        arguments["M"] = min(arguments["M"], rows)
        arguments["N"] = min(arguments["N"], 2 * tiles["block_N"])
        arguments["K"] = min(arguments["K"], 3 * tiles["block_K"])
        return arguments
    if choice.operator == "attention":
        shared = arguments["heads"] > arguments["kv_heads"]
        arguments |= {"batch": 1, "heads": 2, "kv_heads": 1 if shared else 2, "M": min(arguments["M"], rows)}
        arguments["N"] = min(arguments["N"], max(arguments["M"], 2 * tiles["block_N"]))
        return arguments
    return {**arguments, "M": min(arguments["M"], rows)}


def _simulated(choice: Choice, factory: KernelFactory) -> float | str:
    """Relative error against torch of the same tiles on the smaller problem; why not, when it cannot be run."""
    import torch

    from core.errors import TileHALError

    arguments = reduced(choice)
    torch.manual_seed(0)
    try:
        kernel = factory.compile(**arguments, **choice.tiles, target=choice.target, simulate=True)
        inputs, expected = _problem(choice.operator, arguments)
        got = kernel(*inputs).double()
    except TileHALError as error:
        return f"{type(error).__name__}: {error.message.splitlines()[0]}"
    return float((got - expected).norm() / expected.norm())


def _problem(operator: str, arguments: Mapping[str, Any]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Random inputs, and what torch makes of them in float64."""
    import torch
    import torch.nn.functional as F

    name = arguments.get("dtype", "float16")
    dtype = getattr(torch, name)

    def random(*size: int) -> torch.Tensor:
        if name == "int8":
            return torch.randint(-128, 128, size, dtype=torch.int8)
        return torch.randn(*size).to(dtype)

    if operator == "gemm":
        m, n, k = (arguments[extent] for extent in "MNK")
        a, b = random(m, k), random(*((n, k) if arguments.get("trans_b") else (k, n)))
        return [a, b], a.double() @ (b.double().T if arguments.get("trans_b") else b.double())
    if operator == "attention":
        batch, heads, kv_heads, dim = (arguments[one] for one in ("batch", "heads", "kv_heads", "dim"))
        q = random(batch, heads, arguments["M"], dim)
        k, v = (random(batch, kv_heads, arguments["N"], dim) for _ in range(2))
        # torch counts a causal mask from the first key, the operator from the last.
        mask = torch.ones(arguments["M"], arguments["N"], dtype=torch.bool).tril(arguments["N"] - arguments["M"])
        wide_k, wide_v = (t.repeat_interleave(heads // kv_heads, 1).double() for t in (k, v))
        seen = mask if arguments["causal"] else None
        expected = F.scaled_dot_product_attention(q.double(), wide_k, wide_v, attn_mask=seen)
        return [q, k, v], expected
    x = random(arguments["M"], arguments["N"])
    if operator == "softmax":
        return [x], x.double().softmax(1)
    weight, bias = random(arguments["N"]), random(arguments["N"])
    return [x, weight, bias], F.layer_norm(x.double(), x.shape[1:], weight.double(), bias.double())


# ------------------------------------------------------------------------------------------------------------- showing


def _cells(choice: Choice) -> list[str]:
    shape = " ".join(
        f"{name}={value}" for name, value in choice.arguments.items() if not isinstance(value, bool) or value
    )
    values = [value for name, value in choice.tiles.items() if name.startswith("block_")]
    tile = "x".join(map(str, values)) + f" {_others(choice.tiles)}"
    memory = ", ".join(
        f"{name} {_kib(size)}" + (f" of {_kib(limit)}" if limit else "")
        for name, (size, limit) in choice.memory_bytes.items()
    )
    cells = [choice.operator, shape, tile, f"{choice.predicted_s * 1e6:.1f}", choice.bound, memory]
    cells.append(choice.built if choice.place in (None, 1) else f"{choice.built} (choice {choice.place})")
    cells.append(
        "" if choice.error is None else choice.error if isinstance(choice.error, str) else f"{choice.error:.1e}"
    )
    return cells


def _others(tiles: Mapping[str, Any]) -> str:
    return " ".join(
        f"{name}={value}" for name, value in tiles.items() if not name.startswith("block_") and value not in (0, 1)
    )


def _kib(size: int) -> str:
    return f"{size / 1024:.4g}K"


HEADINGS = (
    "operator",
    "shape",
    "first choice",
    "predicted, us",
    "bound",
    "memory per block",
    "built",
    "simulated, error",
)


def table(choices: Sequence[Choice]) -> str:
    """Markdown: a row for each choice, and what had to be assumed."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(_cells(choice))} |" for choice in choices]
    assumed = [one.removesuffix(".") for one in dict.fromkeys(one for c in choices for one in c.assumptions)]
    if assumed:
        lines += ["", f"Assumed: {'; '.join(assumed)}."]
    return "\n".join(lines)


def show(choices: Sequence[Choice]) -> None:
    """A table for each target in the terminal."""
    from rich.console import Console
    from rich.table import Table

    for target in dict.fromkeys(choice.target for choice in choices):
        grid = Table(*HEADINGS, title=target)
        for choice in choices:
            if choice.target == target:
                grid.add_row(*_cells(choice))
        Console(width=None if sys.stdout.isatty() else 220).print(grid)


def write(page: Path, choices: Sequence[Choice]) -> None:
    """Puts the table between the page's markers, with long lines broken as prose is."""
    text = page.read_text()
    start, end = text.index(BEGIN), text.index(END)
    start = text.index("\n", start) + 1
    body = "\n".join(line if line.startswith("|") else textwrap.fill(line, 120) for line in table(choices).splitlines())
    page.write_text(f"{text[:start]}\n{body}\n\n{text[end:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", nargs="+", default=TARGETS, help="chips to choose for (%(default)s)")
    parser.add_argument("--operators", nargs="*", default=[], choices=OPERATORS, help="all where none is named")
    parser.add_argument("--build", action="store_true", help="compile each first choice at its own shape")
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="run the same tiles on a smaller problem on the simulator, and compare with torch",
    )
    parser.add_argument("--docs", type=Path, help="page whose table is replaced, for one target")
    parser.add_argument("--json", type=Path, help="write the choices here")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    from rich.progress import track

    wanted = [
        (target, operator, arguments)
        for target in options.target
        for operator, arguments in shapes()
        if not options.operators or operator in options.operators
    ]
    choices = [
        choose(*one, build=options.build, simulate=options.simulate)
        for one in track(wanted, "choosing", disable=not sys.stderr.isatty())
    ]
    show(choices)
    if options.docs:
        write(options.docs, choices)
    if options.json:
        options.json.write_text(json.dumps([asdict(choice) for choice in choices], indent=1) + "\n")
    unsound = [choice for choice in choices if not choice.sound]
    for choice in unsound:
        print(
            f"not as it should be: {choice.target} {choice.operator} {choice.arguments}: {choice.built} {choice.error}"
        )
    return min(99, len(unsound))


if __name__ == "__main__":
    sys.exit(main())
