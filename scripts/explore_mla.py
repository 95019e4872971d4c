#!/usr/bin/env python3
"""Latent-attention decoding on a GPU: every variant, tile and number of shares of a list, right and in turn.

    python scripts/explore_mla.py --json mla.json                  # about two minutes on 16 cores and an H200
    python scripts/explore_mla.py --shapes 64 --match in_turn
    python scripts/explore_mla.py --dry                            # no device: registers, spills, shared memory
    python scripts/explore_mla.py --apart --json apart.json        # the launches of long sequences, apart

Kernels are compiled in parallel first; nothing is compiled while anything is timed. A child process then checks each,
twice, its outputs filled with NaN before: all sequences as long as their caches, and of random lengths (one of a single
key), large numbers behind their ends, against float32. Those that are right are timed in turn with cold caches, each
going round copies of its arguments. GB/s are those of the cache alone; `of bound` is as in `tilehal bench`, whose
ceilings are measured after each shape (docs/performance.md). A child that is silent is taken to hang: it is killed, the
kernel is named, and another goes on without it.

`--apart` takes a call with shares to pieces, for the shapes `one` and `eight`: both launches; the first alone, with all
keys and with one tile of them a block, whose difference is the rate of streaming and whose rest is what every block
pays; the second alone, as it is and with its columns divided among blocks. Only the second finds what it reads in the
cache, as in a call. `what it says` at the end has a sentence for each piece.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.bench.workloads import Other
    from core.ops._mla_launch import Shapes
    from core.runtime.kernel import Kernel

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

#: Seconds without a word after which a child is taken to hang.
PATIENCE_S = 20.0
#: Largest error of an element; the elements are averages of a few thousand, of the order of 0.03.
TOLERANCE = 1e-3
#: How long each contender of a shape is sampled.
SAMPLED_MS = 200.0

SHAPES: dict[str, dict[str, int]] = {
    "16": {"batch": 64, "M": 16, "N": 8192},
    "64": {"batch": 128, "M": 64, "N": 4096},
    "128": {"batch": 128, "M": 128, "N": 4096},
    "one": {"batch": 1, "M": 64, "N": 65536},
    "eight": {"batch": 8, "M": 64, "N": 8192},
}
#: By shape: heads of a block, keys of a tile, stages and threads of the plain variant; and shares of the keys.
PLAIN: dict[str, list[tuple[int, int, int, int]]] = {
    "16": [(16, 64, 2, 64), (16, 32, 2, 128), (64, 64, 2, 256)],
    "64": [(64, 64, 2, 256), (64, 32, 2, 256)],
    "128": [(64, 64, 2, 256), (64, 32, 2, 256)],
    "one": [(64, 64, 2, 256)],
    "eight": [(64, 64, 2, 256)],
}
SPLITS = {"16": [2, 4], "64": [1, 2], "128": [1, 2], "one": [66, 132], "eight": [16]}
#: `--apart`: shares of the keys by shape, and for combining those of the last: shares read at once, blocks that divide
#: a head's columns, threads; what `core.ops._mla_launch` chooses goes before them.
APART_SPLITS = {"one": [33, 66, 88, 132], "eight": [16]}
COMBINING = [(8, 1, 128), (16, 1, 128), (8, 2, 128), (16, 2, 128), (16, 4, 128), (32, 4, 128), (32, 4, 256)]
#: Keys of a tile of the variants by hand.
KEYS = 64


def configurations(name: str) -> list[dict[str, Any]]:
    """Every choice of tile parameters that is tried for a shape."""
    found = [
        _tiles(*tile, "pipelined", splits)
        for tile in PLAIN[name]
        for splits in (SPLITS[name][-1:] if name in APART_SPLITS else SPLITS[name][:1])
    ]
    heads = min(64, SHAPES[name]["M"])
    for variant in ("two_groups", "two_groups_in_turn"):
        found += [_tiles(heads, 64, 2, 256, variant, splits) for splits in SPLITS[name]]
    return found


def _tiles(m: int, n: int, stages: int, threads: int, variant: str, splits: int) -> dict[str, Any]:
    names = ("block_M", "block_N", "num_stages", "threads", "variant", "splits")
    return dict(zip(names, (m, n, stages, threads, variant, splits), strict=True))


def launches_apart(name: str) -> list[dict[str, Any]]:
    """What `--apart` tries for a shape: tile parameters, and under `launch` which of the two a kernel has."""
    from core.ops._mla_launch import combining

    splits = APART_SPLITS[name][-1]
    tiles = [_tiles(64, KEYS, 2, 256, "two_groups_in_turn", some) for some in APART_SPLITS[name]]
    lengths = [(one, keys) for one in tiles for keys in (SHAPES[name]["N"], KEYS * one["splits"])]
    first = [{"launch": "attend", **one, "keys": keys} for one, keys in lengths]
    own = tuple(combining(shapes_of(name, splits)))
    ways = [own, *(how for how in COMBINING if how != own and how[0] <= splits)]
    names = ("together", "parts", "threads")
    return [
        *tiles,
        *first,
        *({"launch": "combine", "splits": splits, **dict(zip(names, c, strict=True))} for c in ways),
    ]


def shapes_of(name: str, splits: int) -> Shapes:
    """The shape for `core.ops._mla_launch`."""
    from core.ops._mla_launch import Shapes

    return Shapes(**SHAPES[name], dim=512, rope=64, splits=splits, dtype="float16")


def label(tiles: dict[str, Any]) -> str:
    """A configuration in a few letters."""
    if tiles.get("launch") == "combine":
        return "combine {splits} shares, {together} at once, {parts} blocks of {threads} threads a head".format(**tiles)
    form = "{variant} {block_M}x{block_N} stages {num_stages} threads {threads} splits {splits}"
    alone = ", first launch, {keys} keys" if tiles.get("launch") == "attend" else ""
    return (form + alone).format(**tiles)


def kernel_of(name: str, tiles: dict[str, Any], target: str) -> Kernel:
    """The built kernel of a configuration: both launches, or one of them with the same parameters."""
    import core
    from core.ops._mla_launch import Combining
    from core.ops.attention import PASS_CONFIGS
    from core.ops.mla import mla_decode
    from scripts.mla_launches import first_launch, second_launch

    launch = tiles.get("launch")
    if launch is None:
        whole: Kernel = mla_decode.compile(**SHAPES[name], **tiles, target=target, build=True)
        return whole
    shapes = shapes_of(name, tiles["splits"])
    if launch == "attend":
        program = first_launch(shapes)
    else:
        program = second_launch(shapes, Combining(tiles["together"], tiles["parts"], tiles["threads"]))
    return core.compile(program, target=target, pass_configs=PASS_CONFIGS, build=True)


def compile_row(row: dict[str, Any], target: str) -> dict[str, Any]:
    """Runs in a worker: builds one kernel and says what became of it."""
    started = time.perf_counter()
    try:
        kernel = kernel_of(row["shape"], row["tiles"], target)
        actual = kernel.resources.actual
        assert actual is not None  # it was built
        row |= {
            "status": "built",
            "registers": actual.registers_per_thread,
            "spilled": actual.spill_store_bytes,
            "shared": (actual.dynamic_shared_bytes or 0) + (actual.static_shared_bytes or 0),
        }
    except Exception as error:
        row |= {"status": "build", "reason": f"{type(error).__name__}: {str(error)[:300]}"}
    return row | {"compile_s": round(time.perf_counter() - started, 1)}


# ------------------------------------------------------------------------------------------------------ on the device


class Case:
    """Inputs and references of a shape, for sequences as long as their caches and for random lengths."""

    def __init__(self, name: str, target: str) -> None:
        import torch

        self.name, self.target = name, target
        self.shape = shape = SHAPES[name]
        batch, heads, keys = shape["batch"], shape["M"], shape["N"]
        make: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}
        self.queries = [torch.randn(batch, heads, size, **make) for size in (512, 64)]
        self.cache = [torch.randn(batch, keys, size, **make) for size in (512, 64)]
        whole = torch.full((batch,), keys, device="cuda", dtype=torch.int32)
        ragged = torch.randint(1, keys + 1, (batch,), device="cuda", dtype=torch.int32)
        ragged[0] = 1
        self.lengths = {"whole": whole, "ragged": ragged}
        self.expected = {name: self._expected(lengths.tolist()) for name, lengths in self.lengths.items()}

    def _expected(self, lengths: list[int]) -> Any:
        import torch

        found = []
        for b, length in enumerate(lengths):
            q, q_rope = (x[b].float() for x in self.queries)
            kv, k_rope = (x[b, :length].float() for x in self.cache)
            found.append(((q @ kv.T + q_rope @ k_rope.T) * 576**-0.5).softmax(-1) @ kv)
        return torch.stack(found)

    def prepared(self, tiles: dict[str, Any], lengths: str) -> Other:
        """A kernel with its arguments, a `core.bench.workloads.Other`; its output is NaN before."""
        import torch

        from core.bench.workloads import Other

        kernel = kernel_of(self.name, tiles, self.target)
        batch, heads, splits = self.shape["batch"], self.shape["M"], tiles["splits"]
        kept = (splits, batch, heads) if splits > 1 else (1, 1, 1)
        nan: dict[str, Any] = {"fill_value": float("nan"), "device": "cuda"}
        output = torch.full((batch, heads, 512), dtype=torch.float16, **nan)
        if tiles.get("launch") == "combine":
            return Other(
                [output, *(torch.randn(size, device="cuda") for size in ((*kept, 512), kept))], kernel, output=0
            )
        between = torch.full((*kept, 512), **nan), torch.full(kept, **nan)
        counts = self.lengths[lengths].clamp(max=tiles.get("keys", self.shape["N"]))
        return Other([*self.queries, *self.cache, counts, output, *between], kernel, output=5)

    def check(self, tiles: dict[str, Any]) -> dict[str, float]:
        """The largest error by the kind of lengths; infinite where something is not a number."""
        import torch

        errors, launch = {}, tiles.get("launch")
        for name, expected in self.expected.items():
            kernel = self.prepared(tiles, name)
            kernel.call(*kernel.arguments)
            torch.cuda.synchronize()
            assert kernel.output is not None  # the kernels write where they are told
            found = kernel.arguments[kernel.output].float()
            if launch == "combine":
                expected = combined(*kernel.arguments[-2:])
            elif launch == "attend":
                found = combined(*kernel.arguments[-2:])
                expected = self._expected(kernel.arguments[4].tolist())
            error = (found - expected).abs().max().item()
            errors[name] = error if error == error else float("inf")
        return errors

    def times(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Every right kernel in turn, then the ceilings: `kernels` by name, and `ceilings`."""
        import torch

        from core.bench.ceilings import measure_ceilings
        from core.bench.measuring import rotated
        from core.tuning.measure import measure_together

        device = torch.device("cuda")
        kernels: dict[str, Any] = {}
        for combine in (False, True):
            own = [row["tiles"] for row in rows if (row["tiles"].get("launch") == "combine") is combine]
            ready = {label(tiles): self.prepared(tiles, "whole") for tiles in own}
            # What is combined was written just before, and is in the cache.
            calls = {
                name: partial(one.call, *one.arguments) if combine else rotated(one, device)
                for name, one in ready.items()
            }
            if calls:
                together = measure_together(calls, device, repeat_ms=SAMPLED_MS, cold_l2=not combine)
                kernels |= {name: value.to_json() for name, value in together.measurements.items()}
            calls.clear()  # makes room
        return {"kernels": kernels, "ceilings": measure_ceilings(self.target, ["float16"], small=False)}


def combined(outputs: Any, lse: Any) -> Any:
    """The output that shares' outputs and their log-sums, base 2, make together."""
    weights = (lse - lse.amax(0)).exp2()
    return (outputs * weights[..., None]).sum(0) / weights.sum(0)[..., None]


def child(work: dict[str, Any]) -> int:
    """Checks the rows of the shapes it is given and times the right ones; a JSON line before and after each."""

    def say(**event: Any) -> None:
        print(json.dumps(event), flush=True)

    for name, rows in work["rows"].items():
        say(event="prepare", shape=name)
        case = Case(name, work["target"])
        for row in rows:
            if row["status"] == "built":
                say(event="start", shape=name, tiles=row["tiles"])
                try:
                    row["errors"] = case.check(row["tiles"])
                    row["status"] = "right" if max(row["errors"].values()) < TOLERANCE else "wrong"
                except Exception as error:
                    row |= {"status": "launch", "reason": f"{type(error).__name__}: {str(error)[:300]}"}
                say(event="checked", shape=name, row=row)
                if "CUDA" in row.get("reason", ""):
                    return 1  # the context is lost
        say(event="measure", shape=name)
        say(event="measured", shape=name, times=case.times([row for row in rows if row["status"] == "right"]))
    return 0


def run_children(rows: dict[str, list[dict[str, Any]]], target: str) -> dict[str, Any]:
    """Fills in the rows, with as many children as it takes; gives the times by shape."""
    times: dict[str, Any] = {}
    while waiting := {name: own for name, own in rows.items() if name not in times}:
        last: dict[str, Any] = {"event": "prepare", "shape": next(iter(waiting))}
        for event in _events({"rows": waiting, "target": target}):
            last = event
            if event["event"] == "checked":
                _find(rows, event["row"]["shape"], event["row"]["tiles"]).update(event["row"])
            elif event["event"] == "measured":
                times[event["shape"]] = event["times"]
        if last["event"] == "start":
            _find(rows, last["shape"], last["tiles"]).update(status="hang", reason="no answer, or the process died")
        elif last["event"] in ("prepare", "measure"):
            times.setdefault(last["shape"], {})
    return times


def _find(rows: dict[str, list[dict[str, Any]]], shape: str, tiles: dict[str, Any]) -> dict[str, Any]:
    return next(row for row in rows[shape] if row["tiles"] == tiles)


def _events(work: dict[str, Any]) -> Any:
    """A child's events up to its end or to a silence longer than `PATIENCE_S`, after which it is killed."""
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, __file__, "--child", json.dumps(work)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, bufsize=0)
        assert process.stdout is not None
        pending = b""
        while select.select([process.stdout], [], [], PATIENCE_S)[0]:
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            yield from (json.loads(line) for line in lines if line.startswith(b"{"))
        process.kill()
        if process.wait():
            errors.seek(0)
            print(errors.read()[-1500:].decode(errors="replace"), file=sys.stderr)


# ------------------------------------------------------------------------------------------------------------- report


def report(name: str, rows: list[dict[str, Any]], times: dict[str, Any]) -> None:
    """Prints one shape."""
    from core.bench.bounds import bounded
    from core.bench.case import Case as BenchCase
    from core.bench.workloads import workload

    shape = SHAPES[name]
    case = BenchCase("mla", shape)
    work = workload(case).flops
    print(f"\n{name}: {shape}")
    bound = 0.0
    if times:
        ceilings = times["ceilings"]
        whole = {**case.to_json(), "flops": work, "bytes_moved": workload(case).bytes_moved, "contenders": {}}
        bound = bounded(whole, ceilings)["bound"]["seconds"]
        copied, read = (ceilings[rate] / 1e9 for rate in ("bytes_per_s", "read_bytes_per_s"))
        print(f"  a copy: {copied:.0f} GB/s; a sum: {read:.0f} GB/s; the bound: {bound * 1e6:.1f} us")
    kernels = times.get("kernels", {})
    for row in sorted(rows, key=lambda row: kernels.get(label(row["tiles"]), {}).get("median_s", 1.0)):
        measured = kernels.get(label(row["tiles"]))
        figures = " " * 57
        if measured:
            seconds = measured["median_s"]
            figures = f"{seconds * 1e6:8.1f} us {read_bytes(shape, row['tiles']) / seconds / 1e9:6.0f} GB/s"
            if "launch" not in row["tiles"]:
                figures += f" {work / seconds / 1e12:5.0f} TFLOP/s {bound / seconds:6.1%} of bound"
        used = f"{row['registers']} regs, {row['spilled']} spilled, {row['shared']} shared" if "shared" in row else ""
        errors = " ".join(f"{key} {value:.1e}" for key, value in row.get("errors", {}).items())
        reason = row.get("reason", "").partition("\n")[0]
        print(f"  {figures:57}  {row['status']:6} {label(row['tiles']):62} {used} {errors} {reason}")


def read_bytes(shape: dict[str, int], tiles: dict[str, Any]) -> int:
    """Bytes of the cache that a kernel reads; of what it combines, where it does nothing else."""
    if tiles.get("launch") == "combine":
        return int(tiles["splits"]) * shape["batch"] * shape["M"] * 512 * 4
    return shape["batch"] * int(tiles.get("keys", shape["N"])) * 576 * 2


def conclusion(name: str, kernels: dict[str, dict[str, float]]) -> list[str]:
    """What the pieces of `--apart` say of a shape, one sentence each; nothing where one of them is missing."""
    tried = launches_apart(name)
    if any(label(one) not in kernels for one in tried):
        return ["nothing: some of the kernels were not timed"]

    def took(*wanted: dict[str, Any]) -> list[float]:
        return [kernels[label(one)]["median_s"] * 1e6 for one in wanted]

    splits = APART_SPLITS[name][-1]
    (whole,) = [one for one in tried if "launch" not in one and one["splits"] == splits]
    attend = [one for one in tried if one.get("launch") == "attend" and one["splits"] == splits]
    combining = [one for one in tried if one.get("launch") == "combine"]
    both, all_keys, one_tile = took(whole, *attend)
    own, *others = took(*combining)
    best = min(others)
    how = label(combining[1 + others.index(best)])
    turns = -(-SHAPES[name]["N"] // (KEYS * splits))
    step = (all_keys - one_tile) / (turns - 1)
    more, less = (read_bytes(SHAPES[name], one) for one in attend)
    rate = (more - less) / (all_keys - one_tile) / 1e3
    return [
        f"combining {splits} shares takes {own:.1f} of {both:.1f} us; {best:.1f} us as `{how}`",
        f"streaming takes {step:.2f} us a tile and block, {rate:.0f} GB/s, of {turns} tiles {step * turns:.1f} us",
        f"what every block pays beside its tiles is {one_tile - step:.1f} us",
        f"between the launches, or saved by their overlap: {both - all_keys - own:+.1f} us",
    ]


def main() -> int:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES), help="only these; default: all"
    )
    parser.add_argument("--match", default="", help="only configurations whose name contains this")
    parser.add_argument("--target", default="cuda:h200", help="chip to compile for (%(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="kernels compiled at once; default: one for each CPU"
    )
    parser.add_argument("--dry", action="store_true", help="no device: compile, and show what came out")
    parser.add_argument("--apart", action="store_true", help="the launches of few long sequences, each by itself")
    parser.add_argument("--json", type=Path, help="write every result here")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child)

    started = time.monotonic()
    shapes = [name for name in options.shapes if not options.apart or name in APART_SPLITS]
    wanted = [
        {"shape": name, "tiles": tiles}
        for name in shapes
        for tiles in (launches_apart(name) if options.apart else configurations(name))
        if options.match in label(tiles)
    ]
    if not wanted:
        parser.error(f"no configuration of these shapes has {options.match!r} in its name")
    with ProcessPoolExecutor(options.jobs) as pool:
        built = list(pool.map(compile_row, wanted, [options.target] * len(wanted)))
    print(f"{len(built)} kernels compiled in {time.monotonic() - started:.0f} s")
    rows = {name: [row for row in built if row["shape"] == name] for name in shapes}
    times = {} if options.dry else run_children(rows, options.target)
    for name in shapes:
        report(name, rows[name], times.get(name, {}))
        if options.apart and not options.dry:
            print("\n  what it says:", *conclusion(name, times.get(name, {}).get("kernels", {})), sep="\n    ")
    print(f"\n{time.monotonic() - started:.0f} s in all")
    if options.json:
        options.json.write_text(json.dumps({"command": sys.argv, "rows": built, "times": times}, indent=1) + "\n")
    return int(options.dry and any(row["status"] == "build" for row in built))


if __name__ == "__main__":
    raise SystemExit(main())
