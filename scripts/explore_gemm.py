#!/usr/bin/env python3
"""Times the algorithms of the matrix product, with some tiles each, against torch.matmul (cuBLAS) on one NVIDIA GPU.

    python scripts/explore_gemm.py --json explore-gemm.json            # the default shapes, two minutes on 16 cores
    python scripts/explore_gemm.py --shapes 4096x4096x4096 --kinds warpgroups --layout nt --dtype bfloat16
    python scripts/explore_gemm.py --shapes 512x512x16384 256x4096x4096 --json explore-split.json  # K shared, or not
    python scripts/explore_gemm.py --dry                               # no device: registers, spills

Kinds: `tiles` and `specialized` are variants of `core.ops.gemm`, `warpgroups` and `split` its neighbours. Kernels are
compiled by `--jobs` processes first. One child process then checks each (poisoned output, float32 reference) and times
it; when it hangs or the device is lost, that kernel is noted and a new child goes on with the next. A time is the
median over replays of a CUDA graph of launches: `ms` walks through copies of the inputs that exceed the L2 cache
twice, `hot_ms` uses one copy. The fastest of each shape are timed again in turn with cuBLAS; the last table is those.
The driver says how many clusters of each size have room at once (`clusters`): more of them take a second wave.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import selectors
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.runtime.kernel import Kernel

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SHAPES = (
    (1024, 1024, 1024),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (4096, 14336, 4096),
    (1, 4096, 4096),
    (16, 4096, 4096),
    (64, 8192, 8192),
    (128, 4096, 4096),
    (512, 512, 16384),
)
KINDS = ("tiles", "specialized", "warpgroups", "split")
#: Bytes of inputs and outputs that a cold timing walks through.
ROTATED_BYTES = 150e6
#: Blocks of a portable cluster at most (CUDA Programming Guide, Thread Block Clusters).
LARGEST_CLUSTER = 8
#: Bytes of shared memory for the sums of a block that shares K: the 227 KiB that it may have, less what barriers take.
SUMS_BYTES = 226 * 1024
#: Seconds without a result after which the child is taken to hang; more while it starts and loads torch.
HANG_S, START_S = 25, 60
#: How many of a shape's kernels are timed again, in turn with cuBLAS.
FINALISTS = 4
Config = dict[str, Any]


def _block(block: str) -> Config:
    return dict(zip(("block_M", "block_N", "block_K"), map(int, block.split("x")), strict=True))


def _tiles(block: str, num_stages: int, threads: int, panel: int = 0, policy: int = 0) -> Config:
    more = {"num_stages": num_stages, "threads": threads, "panel": panel, "policy": policy}
    return {"kind": "tiles", **_block(block), **more}


def _specialized(block: str, num_stages: int, threads: int, cluster: int, workers: int, panel: int = 8) -> Config:
    more = {"num_stages": num_stages, "threads": threads, "panel": panel, "policy": 1}
    return {"kind": "specialized", **_block(block), **more, "cluster": cluster, "workers": workers}


def _warpgroups(block: str, num_stages: int, cluster: int, panel: int, blocks: int = 0, **more: Any) -> Config:
    tile = {**_block(block), "num_stages": num_stages}
    return {"kind": "warpgroups", **tile, "cluster": cluster, "panel": panel, "blocks": blocks, **more}


def _split(block: str, num_stages: int, splits: int) -> Config:
    return {"kind": "split", **_block(block), "num_stages": num_stages, "splits": splits}


def _shared(M: int, N: int, units: int, block: str, num_stages: int) -> list[Config]:
    """Tiles with a long K, for a quarter of the units or more.

    The fewest shares are those of which the clusters surely have room at once, the most those there are units for.
    """
    import core
    from core.hardware.occupancy import clusters_at_once

    tile = _block(block)
    clusters = -(-M // tile["block_M"]) * -(-N // tile["block_N"])
    most = min(LARGEST_CLUSTER, units // clusters)
    per_group = core.chip("cuda:h200").main_unit.per_group
    sure = max((p for p in range(1, most + 1) if clusters_at_once(units, per_group, p) >= clusters), default=0)
    sums = 4 * tile["block_M"] * (tile["block_N"] + 4)  # a block's own, to which come those it is sent
    fitting = (p for p in range(max(1, sure), most + 1) if (2 - 1 / p) * sums <= SUMS_BYTES)
    return [_split(block, num_stages, p) for p in fitting if 4 * p * clusters >= units]


def _long_k(M: int, N: int, units: int) -> list[Config]:
    """What is tried where tiles are few and K is long; tall tiles where they waste less than a tenth of their rows."""
    small_tiles = M * N / 64**2
    tiles = [("128x128x64", 6), ("256x128x64", 4), ("128x64x64", 8)]
    tiles += [("256x64x64", 5)] if 128 < M <= 256 else []  # reads B once
    tiles += [("64x64x128", 6), ("96x64x128", 5)] if small_tiles <= units / 4 else []
    tiles += [(block, 5) for block, rows in (("176x128x64", 176), ("208x128x64", 208)) if -M % rows * 10 < M]
    plain = [_tiles("64x32x128", 6, 128, policy=1), _specialized("64x64x128", 6, 128, 1, 0)]
    wide = [_specialized("64x128x64", 6, 128, 1, 0)]
    return [
        *(plain if small_tiles <= units else wide),
        *(config for block, stages in tiles for config in _shared(M, N, units, block, stages)),
    ]


def configs(M: int, N: int, K: int, units: int) -> list[Config]:
    """What is tried for one shape on a chip with so many SMs."""
    if M <= 16:
        return [
            *(_tiles(b, s, 128) for b, s in (("16x32x256", 4), ("16x64x128", 4), ("16x128x128", 4))),
            *(_specialized(b, s, 128, 1, 0) for b, s in (("64x32x128", 8), ("64x64x128", 6))),
            *(_split(f"16x64x{k}", s, p) for k, s in ((64, 12), (128, 6)) for p in (2, 4)),
            *(_split("16x64x128", 5, p) for p in (1, 8)),
            *(_split("16x128x128", 4, p) for p in (4, 8)),
        ]
    if M <= 64:
        return [
            *(_tiles(b, s, 128) for b, s in (("64x64x128", 4), ("64x64x64", 6), ("64x128x64", 4))),
            *(_specialized(b, s, 128, 1, 0) for b, s in (("64x64x128", 6), ("64x64x64", 12))),
            *(_split(f"64x64x{k}", s, p) for k, s in ((64, 10), (128, 5)) for p in (1, 2)),
            _split("64x64x64", 5, 4),
            *(_split("64x128x64", 6, p) for p in (2, 4)),
        ]
    if M <= 128:
        return [
            *(_tiles(b, s, t) for b, s, t in (("64x64x128", 4, 128), ("128x64x64", 5, 256), ("128x32x128", 4, 256))),
            *(_specialized(b, s, 128, 1, 0) for b, s in (("64x64x128", 6), ("128x32x128", 5))),
            *(_specialized("64x64x128", 6, 128, 2, 0),),
            *(_split(f"128x64x{k}", s, p) for k, s in ((64, 7), (128, 3)) for p in (1, 2)),
            *(_split("128x128x64", 5, p) for p in (2, 4)),
        ]
    if M <= 1024 and K >= 8 * M:
        return _long_k(M, N, units)
    if M <= 1024:
        return [
            _tiles("64x128x64", 4, 128),
            *(_specialized("64x128x64", s, 128, c, 0) for s, c in ((4, 1), (6, 1), (4, 2))),
            *(_specialized("128x64x64", 6, t, 1, 0) for t in (128, 256)),
            *(_warpgroups("128x64x64", s, c, 0) for s, c in ((4, 1), (6, 1), (6, 2))),
            *(_split("64x128x64", 6, p) for p in (1, 2)),
        ]
    return [
        *(_specialized("256x128x64", s, 256, c, units) for s, c in ((4, 1), (4, 2), (3, 2))),
        *(_specialized("128x256x64", 4, 256, c, units) for c in (1, 2)),
        _specialized("256x128x64", 4, 256, 2, units, panel=16),
        *(_warpgroups("256x128x64", 4, c, 8, units, chunk=32) for c in (1, 2)),
        *(_warpgroups("128x256x64", 4, c, 8, units) for c in (1, 2)),
        _warpgroups("128x128x64", 5, 2, 8, units, alternate=True),
        _warpgroups("128x192x64", 4, 2, 8, units, alternate=True, chunk=32),
    ]


def kernel_for(shape: tuple[int, int, int], config: Config, options: argparse.Namespace) -> Kernel:
    """The compiled and built kernel of one configuration."""
    import core

    kind, tile = config["kind"], {name: value for name, value in config.items() if name != "kind"}
    trans_a, trans_b = options.layout[0] == "t", options.layout[1] == "t"
    types = {"dtype": options.dtype, "trans_a": trans_a, "trans_b": trans_b}
    if kind in ("tiles", "specialized"):
        from core.ops.gemm import gemm

        tile = {**tile, "variant": "warp_specialized", "splits": 1}
        if kind == "tiles":
            tile |= {"variant": "tiled", "cluster": 1, "workers": 0}
        kernel: Kernel = gemm.compile(*shape, **types, **tile, target=options.target, build=True)
        return kernel
    from core.ops._product import Product

    product = Product(*shape, options.dtype, options.dtype, "float32", trans_a, trans_b)
    if kind == "warpgroups":
        from core.ops.gemm_warpgroups import WarpgroupTile, warpgroup_gemm

        function = warpgroup_gemm(product, WarpgroupTile(**tile))
    else:
        from core.ops.gemm_split import split_gemm

        function = split_gemm(product, **tile)
    return core.compile(function, target=options.target, out_idx=[2], build=True)


def prepare(job: tuple[tuple[int, int, int], Config, argparse.Namespace]) -> dict[str, Any]:
    """Compiles one configuration into the cache (in a worker)."""
    started = time.perf_counter()
    row: dict[str, Any] = {"shape": job[0], "config": job[1]}
    try:
        actual = kernel_for(*job).resources.actual
        assert actual is not None  # it was built
        row |= {"status": "built", "registers": actual.registers_per_thread, "spill": actual.spill_store_bytes}
        row["shared"] = (actual.static_shared_bytes or 0) + (actual.dynamic_shared_bytes or 0)
    except Exception as error:
        row |= {"status": "build", "reason": f"{type(error).__name__}: {str(error)[:300]}"}
    row["compile_s"] = round(time.perf_counter() - started, 2)
    return row


# --------------------------------------------------------------------------------------------------------------- timing


class Bench:
    """Inputs of one shape, cuBLAS beside them."""

    def __init__(self, shape: tuple[int, int, int], options: argparse.Namespace) -> None:
        import torch

        self.torch = torch
        M, N, K = shape
        dtype = getattr(torch, options.dtype)
        copies = max(1, round(ROTATED_BYTES / (2 * (M * K + K * N + M * N)) + 0.5))
        self.inputs = []
        for _ in range(copies):
            a = torch.randn((K, M) if options.layout[0] == "t" else (M, K), device="cuda").to(dtype)
            b = torch.randn((N, K) if options.layout[1] == "t" else (K, N), device="cuda").to(dtype)
            self.inputs.append((a, b, torch.empty((M, N), device="cuda", dtype=dtype)))
        self.views = [
            (a.mT if options.layout[0] == "t" else a, b.mT if options.layout[1] == "t" else b, c)
            for a, b, c in self.inputs
        ]
        self.expected = self.views[0][0].float() @ self.views[0][1].float()
        self.limit = 0.02 + 2**-10 * self.expected.abs().max().item() * (8 if options.dtype == "bfloat16" else 1)
        self.launches = max(len(self.inputs), min(100, int(4e-3 / (2 * M * N * K / 600e12 + 6e-6)) or 1))

    def check(self, kernel: Any) -> float:
        """Largest difference from the float32 reference, from a poisoned output."""
        a, b, c = self.inputs[0]
        c.fill_(float("nan"))
        kernel(a, b, c)
        self.torch.cuda.synchronize()
        error = float((c.float() - self.expected).abs().nan_to_num(nan=float("inf")).max())
        return error

    def graph(self, call: Any, tensors: list[Any]) -> Any:
        """A graph of `self.launches` calls that walk through the tensors."""
        torch = self.torch
        call(*tensors[0])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(self.launches):
                call(*tensors[i % len(tensors)])
        graph.replay()
        torch.cuda.synchronize()
        return graph

    def replay_ms(self, graph: Any) -> float:
        """Milliseconds a launch in one replay."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / self.launches

    def cublas(self, a: Any, b: Any, c: Any) -> None:
        self.torch.matmul(a, b, out=c)


def time_shape(item: dict[str, Any], options: argparse.Namespace, out: Any) -> None:
    """Checks and times what is left of one shape, then the best ones, known before or now, in turn with cuBLAS."""
    shape = tuple(item["shape"])
    bench = Bench(shape, options)
    reference = bench.graph(bench.cublas, bench.views)
    hot_reference = bench.graph(bench.cublas, bench.views[:1])
    timed = []
    for config, known_ms in [*item["good"], *((config, None) for config in item["todo"])]:
        out({"start": config, "shape": shape})
        row: dict[str, Any] = {"shape": shape, "config": config}
        try:
            kernel = kernel_for(shape, config, options)
            row["error"] = bench.check(kernel)
            if row["error"] > bench.limit:
                row |= {"status": "wrong", "reason": f"differs by {row['error']:g}, allowed {bench.limit:g}"}
                out(row)
                continue
            graph, hot = bench.graph(kernel, bench.inputs), bench.graph(kernel, bench.inputs[:1])
            samples = [(bench.replay_ms(graph), bench.replay_ms(reference), bench.replay_ms(hot)) for _ in range(5)]
            ms, cublas_ms, hot_ms = (statistics.median(column) for column in zip(*samples, strict=True))
            row |= {"status": "ok", "ms": ms, "cublas_ms": cublas_ms, "hot_ms": hot_ms, "ratio": cublas_ms / ms}
            timed.append((ms, config, graph, hot))
            timed.sort(key=lambda entry: entry[0])
            del timed[FINALISTS:]
        except Exception as error:
            row |= {"status": "failed", "reason": f"{type(error).__name__}: {str(error)[:300]}"}
        if known_ms is None or row["status"] != "ok":
            out(row)
        if row["status"] == "failed":
            bench.torch.cuda.synchronize()  # raises when the device is lost: the parent starts another child
    rounds = [
        [bench.replay_ms(g) for g in (reference, hot_reference, *(graph for pair in timed for graph in pair[2:]))]
        for _ in range(15)
    ]
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    finals = [
        {"config": entry[1], "ms": medians[2 + 2 * i], "hot_ms": medians[3 + 2 * i]} for i, entry in enumerate(timed)
    ]
    out({"final": shape, "cublas_ms": medians[0], "cublas_hot_ms": medians[1], "finals": finals})


def clusters_of_device(shared: int = 190 * 1024, threads: int = 384) -> dict[str, Any]:
    """Clusters with room at once by their size, as the driver says, of blocks that fill an SM each."""
    from core.errors import TileHALError
    from core.runtime.clusters import active_clusters

    try:
        return {
            str(size): count
            for size, count in active_clusters(
                0, range(1, LARGEST_CLUSTER + 1), threads=threads, shared_bytes=shared
            ).items()
        }
    except TileHALError as error:  # what is timed next does not depend on it
        return {"error": error.message}


def child(options: argparse.Namespace) -> None:
    """Times what stands on standard input; a JSON line per event on standard output."""
    work = json.load(sys.stdin)

    def out(event: dict[str, Any]) -> None:
        print(json.dumps(event), flush=True)

    out({"clusters": clusters_of_device()})
    for item in work:
        time_shape(item, options, out)


def time_all(work: list[dict[str, Any]], options: argparse.Namespace, take: Any) -> None:
    """Runs children until every configuration has its result.

    Args:
        work: a dictionary a shape: `shape`, `todo` (configurations), `good` (pairs of a configuration and its time).
    """
    while work:
        process = subprocess.Popen(
            [sys.executable, __file__, "--child", *sys.argv[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        json.dump(work, process.stdin)
        process.stdin.close()
        selector = selectors.DefaultSelector()
        selector.register(process.stdout, selectors.EVENT_READ)
        current: dict[str, Any] | None = None
        heard = settled = False
        while True:
            if not selector.select(HANG_S if heard else START_S):
                process.kill()
                cause = f"no result after {HANG_S} s"
                break
            line = process.stdout.readline()
            if not line:
                cause = f"the process died with status {process.wait()}"
                break
            event = json.loads(line)
            if "clusters" in event:
                take(event)
                continue
            heard = True
            if "start" in event:
                current = event
                continue
            take(event)
            settle(work, event)
            settled, current = True, None
        process.wait()
        if not work:
            return
        if current is not None:
            lost = {"shape": current["shape"], "config": current["start"], "status": "hang", "reason": cause}
            take(lost)
            settle(work, lost)
        elif not settled:
            take({"shape": work[0]["shape"], "config": None, "status": "hang", "reason": f"between kernels: {cause}"})
            del work[0]


def settle(work: list[dict[str, Any]], event: dict[str, Any]) -> None:
    """Takes what an event decides off the work."""
    if "final" in event:
        work[:] = [item for item in work if list(item["shape"]) != list(event["final"])]
        return
    for item in work:
        if list(item["shape"]) == list(event["shape"]):
            config = event["config"]
            item["todo"] = [other for other in item["todo"] if other != config]
            item["good"] = [pair for pair in item["good"] if pair[0] != config]
            if event["status"] == "ok":
                item["good"] = sorted([*item["good"], (config, event["ms"])], key=lambda pair: pair[1])[:FINALISTS]


def label(config: Config | None) -> str:
    """One line that names a configuration."""
    if config is None:
        return "-"
    block = "x".join(str(config[f"block_{axis}"]) for axis in "MNK")
    skip = ("kind", "block_M", "block_N", "block_K")
    return f"{config['kind']:11} {block:12} " + " ".join(f"{k}={v}" for k, v in config.items() if k not in skip)


def environment() -> dict[str, Any]:
    """What the figures were taken with."""
    import tilelang
    import torch

    query = "name,driver_version,clocks.sm,clocks.max.sm,power.draw,power.limit,temperature.gpu"
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "tilelang": tilelang.__version__}
    found = {**versions, "cpus": os.cpu_count()}
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv"]
        found["nvidia_smi"] = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found


def main() -> int:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda:h200", help="chip to compile for (%(default)s)")
    parser.add_argument(
        "--shapes",
        nargs="*",
        default=["x".join(map(str, shape)) for shape in SHAPES],
        help="MxNxK; default: %(default)s",
    )
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS, help="only these algorithms; default: all")
    parser.add_argument(
        "--layout",
        default="nn",
        choices=("nn", "nt", "tn", "tt"),
        help="of A and B: n as they are, t transposed (%(default)s)",
    )
    parser.add_argument(
        "--dtype", default="float16", choices=("float16", "bfloat16"), help="of A, B and C (%(default)s)"
    )
    parser.add_argument("--units", type=int, default=132, help="SMs of the GPU: blocks of a persistent launch")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="kernels compiled at once; default: one for each CPU"
    )
    parser.add_argument("--dry", action="store_true", help="no device: compile, and show what came out")
    parser.add_argument("--json", type=Path, help="write every result here")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return 0
    started = time.perf_counter()
    shapes = [(m, n, k) for m, n, k in (map(int, shape.split("x")) for shape in options.shapes)]
    jobs = [
        (shape, config, options)
        for shape in shapes
        for config in configs(*shape, options.units)
        if config["kind"] in options.kinds
    ]
    result: dict[str, Any] = {"command": sys.argv, "rows": [], "finals": []}

    def save() -> None:
        if options.json is not None:
            options.json.write_text(json.dumps(result, indent=1))

    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        built = list(pool.map(prepare, jobs))
    for row in built:
        if row["status"] != "built" or options.dry or row.get("spill"):
            print(f"{'x'.join(map(str, row['shape'])):17} {label(row['config'])}: {row}")
    print(f"compiled {len(built)} in {time.perf_counter() - started:.0f} s", flush=True)
    result["built"] = built
    save()
    if options.dry:
        return int(any(row["status"] == "build" for row in built))
    result["environment"] = environment()

    def take(event: dict[str, Any]) -> None:
        if "clusters" in event:
            result.update(event)
            print(f"clusters with room at once, by their blocks: {event['clusters']}", flush=True)
        elif "final" in event:
            result["finals"].append(event)
        else:
            result["rows"].append(event)
            print_row(event)
        save()

    work: list[dict[str, Any]] = [{"shape": list(shape), "todo": [], "good": []} for shape in shapes]
    for item in work:
        item["todo"] = [r["config"] for r in built if list(r["shape"]) == item["shape"] and r["status"] == "built"]
    time_all([item for item in work if item["todo"]], options, take)
    result["seconds"] = time.perf_counter() - started
    save()
    print_finals(result["finals"])
    print(f"{result['seconds']:.0f} s")
    return 0


def print_row(row: dict[str, Any]) -> None:
    """Prints what became of one kernel."""
    if row["status"] == "ok":
        figures = f"{row['ms']:.4f} ms  hot {row['hot_ms']:.4f}  cuBLAS {row['cublas_ms']:.4f}  {row['ratio']:.3f}"
    else:
        figures = f"{row['status']}: {row.get('reason')}"
    print(f"{'x'.join(map(str, row['shape'])):17} {label(row['config'])}: {figures}", flush=True)


def print_finals(finals: list[dict[str, Any]]) -> None:
    """Prints the fastest kernel of each shape beside cuBLAS, as they were timed in turn; above 1 ours is faster."""
    print(f"\n{'shape':17} {'cuBLAS':>8} {'best':>8} ratio  {'hot':>6}  tile")
    for final in finals:
        if not final["finals"]:
            continue
        best = min(final["finals"], key=lambda item: item["ms"])
        ratio, hot = final["cublas_ms"] / best["ms"], final["cublas_hot_ms"] / best["hot_ms"]
        name = "x".join(map(str, final["final"]))
        print(f"{name:17} {final['cublas_ms']:8.4f} {best['ms']:8.4f} {ratio:.3f}  {hot:6.3f}  {label(best['config'])}")


if __name__ == "__main__":
    sys.exit(main())
