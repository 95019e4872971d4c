"""An exhaustive sweep on a GPU: every candidate of every case is compiled, checked against torch and timed.

    python scripts/gpu_sweep.py --json sweep.json [--cases gemm softmax] [--jobs 14] [--budget 540]

The rows are what the tile rules and the cost model are scored against (`scripts/score_ranking.py`, docs/tiling.md).
Candidates that the engine refused for want of room are compiled too (`--refused`, a share of them), to see which would
have run after all. Compilation is parallel; each GPU times one kernel at a time in a child process of its own, so that
a hang or a fault costs one row. Times are medians over replays of a CUDA graph that walks through enough copies of the
inputs to exceed the L2 cache twice.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import multiprocessing
import os
import queue
import random
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.tiling.factory import KernelFactory

#: Bytes of inputs a timing walks through: twice an H200's 60 MB of L2, and some.
ROTATED_BYTES = 150e6
#: Seconds one child may take for one candidate, compilation excluded.
CANDIDATE_TIMEOUT_S = 30


@dataclass(frozen=True)
class Case:
    """One operator at one shape."""

    operator: str
    shape: dict[str, Any]

    @property
    def label(self) -> str:
        return f"{self.operator} " + " ".join(f"{name}={value}" for name, value in self.shape.items())


def cases() -> Iterator[Case]:
    """The shapes that first choices are judged by."""
    gemms: list[tuple[int, int, int, str]] = [
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
        (4096, 4096, 4096, "float8_e4m3fn"),
    ]
    for m, n, k, dtype in gemms:
        yield Case("gemm", {"M": m, "N": n, "K": k, "dtype": dtype, **({"trans_b": True} if "float8" in dtype else {})})
    attentions = [
        (4, 32, 32, 2048, 128, False),
        (4, 32, 32, 4096, 128, True),
        (4, 32, 32, 2048, 64, False),
        (4, 32, 8, 2048, 128, True),
        (1, 32, 32, 8192, 128, True),
        (16, 16, 16, 512, 64, False),
    ]
    for batch, heads, kv_heads, length, dim, causal in attentions:
        yield Case(
            "attention",
            {"batch": batch, "heads": heads, "kv_heads": kv_heads, "length": length, "dim": dim, "causal": causal},
        )
    rows = [(4096, 4096), (16384, 1024), (4096, 8192), (65536, 512), (1024, 32768), (32768, 256)]
    for operator in ("softmax", "layernorm"):
        for m, n in rows:
            yield Case(operator, {"M": m, "N": n, "dtype": "float16"})


def factory_and_arguments(case: Case) -> tuple[KernelFactory, dict[str, Any]]:
    """The operator's factory and the arguments it takes for this case."""
    from importlib import import_module

    arguments = dict(case.shape)
    if case.operator == "attention":
        arguments["M"] = arguments["N"] = arguments.pop("length")
    factory: KernelFactory = getattr(import_module(f"core.ops.{case.operator}"), case.operator)
    return factory, arguments


# ------------------------------------------------------------------------------------------------------------ compiling


def _compile(case: Case, tiles: dict[str, Any]) -> dict[str, Any]:
    """Runs in a worker: the row of one candidate, built or not, without its time."""
    started = time.perf_counter()
    row: dict[str, Any] = {"operator": case.operator, "shape": case.shape, "tiles": tiles}
    from core.errors import BuildFailed, ResourceExceeded, TileHALError

    try:
        factory, arguments = factory_and_arguments(case)
        kernel = factory.compile(**arguments, **tiles, target=_target(), build=True)
        actual = kernel.resources.actual or kernel.resources.predicted
        predicted = kernel.resources.predicted
        row.update(
            status="built",
            registers=actual.registers_per_thread,
            spill=actual.spill_store_bytes,
            threads=actual.threads,
            static_shared=actual.static_shared_bytes,
            dynamic_shared=actual.dynamic_shared_bytes,
            lowered_dynamic_shared=predicted.dynamic_shared_bytes,
        )
    except ResourceExceeded as error:
        row.update(status="resources", reason=error.message.splitlines()[0])
    except BuildFailed as error:
        row.update(status="build", reason=error.message[:400])
    except TileHALError as error:
        row.update(status="lower", reason=f"{type(error).__name__}: {error.message.splitlines()[0]}")
    except Exception as error:
        row.update(status="lower", reason=f"{type(error).__name__}: {str(error)[:300]}")
    row["compile_s"] = round(time.perf_counter() - started, 2)
    return row


def _target() -> str:
    return os.environ.get("SWEEP_TARGET", "cuda:h200")


def _warm_worker() -> None:
    import core.compiler.driver  # noqa: F401  # pays for the imports before the first candidate
    from core._tilelang import import_tilelang

    import_tilelang()


# --------------------------------------------------------------------------------------------------------------- timing


def _timing_child(gpu: int, work: Any, results: Any) -> None:
    """Times candidates on one GPU until told to stop."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    prepared: dict[str, Prepared] = {}
    while True:
        item = work.get()
        if item is None:
            return
        token, case, row = item
        results.put(("start", gpu, token, None))
        try:
            if case.label not in prepared:
                prepared[case.label] = Prepared(case)
            row = {**row, **prepared[case.label].time(row["tiles"])}
        except Exception as error:
            row = {**row, "status": "launch", "reason": f"{type(error).__name__}: {str(error)[:300]}"}
        results.put(("done", gpu, token, row))
        if row["status"] == "launch" and "CUDA" in row["reason"]:
            os._exit(3)  # the context is lost; the parent starts another child


class Prepared:
    """Inputs, outputs and the reference of one case, on the GPU."""

    def __init__(self, case: Case) -> None:
        import torch

        self.case = case
        torch.manual_seed(0)
        first = self._inputs()
        self.reference = self._expected(first)
        output = torch.empty_like(self._sample_output(first))
        total = sum(t.numel() * t.element_size() for t in (*first, output))
        copies = max(1, min(128, math.ceil(ROTATED_BYTES / total)))
        self.sets = [(*first, output)]
        for _ in range(copies - 1):
            self.sets.append((*self._inputs(), torch.empty_like(output)))

    def _inputs(self) -> tuple[Any, ...]:
        import torch

        shape, device = self.case.shape, "cuda"
        dtype = getattr(torch, shape.get("dtype", "float16"))
        if self.case.operator == "gemm":
            m, n, k = shape["M"], shape["N"], shape["K"]
            a, b = (
                torch.randn(m, k, device=device),
                torch.randn(*((n, k) if shape.get("trans_b") else (k, n)), device=device),
            )
            return a.to(dtype), b.to(dtype)
        if self.case.operator == "attention":
            batch, length, dim = shape["batch"], shape["length"], shape["dim"]
            return tuple(
                torch.randn(batch, heads, length, dim, device=device, dtype=dtype)
                for heads in (shape["heads"], shape["kv_heads"], shape["kv_heads"])
            )
        m, n = shape["M"], shape["N"]
        x = torch.randn(m, n, device=device, dtype=dtype)
        if self.case.operator == "softmax":
            return (x,)
        return x, torch.randn(n, device=device, dtype=dtype), torch.randn(n, device=device, dtype=dtype)

    def _sample_output(self, inputs: tuple[Any, ...]) -> Any:
        import torch

        if self.case.operator == "gemm":
            shape = self.case.shape
            out = torch.float16 if "float8" in shape["dtype"] else inputs[0].dtype
            return torch.empty(shape["M"], shape["N"], device="cuda", dtype=out)
        return inputs[0]

    def _expected(self, inputs: tuple[Any, ...]) -> Any:
        import torch

        shape = self.case.shape
        if self.case.operator == "gemm":
            a, b = (t.to(torch.bfloat16 if t.dtype == torch.bfloat16 else torch.float16) for t in inputs)
            return (a @ (b.T if shape.get("trans_b") else b)).float()
        if self.case.operator == "attention":
            q, k, v = inputs
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=shape["causal"], enable_gqa=True
            ).float()
        if self.case.operator == "softmax":
            return torch.softmax(inputs[0].float(), -1)
        return torch.nn.functional.layer_norm(
            inputs[0].float(), (shape["N"],), inputs[1].float(), inputs[2].float(), 1e-5
        )

    def time(self, tiles: dict[str, Any]) -> dict[str, Any]:
        """Status, error and median time of one candidate."""
        import torch

        factory, arguments = factory_and_arguments(self.case)
        kernel = factory.compile(**arguments, **tiles, target=_target(), build=True)
        output = self.sets[0][-1]
        output.view(torch.uint8).fill_(0xFF)  # NaN in every float type
        kernel(*self.sets[0])
        torch.cuda.synchronize()
        error = ((output.float() - self.reference).norm() / self.reference.norm()).item()
        limit = 4e-2 if "float8" in self.case.shape.get("dtype", "") else 2e-2
        if not error < limit:
            return {"status": "wrong", "reason": f"relative error {error:.2e}", "error": error}
        single = self._once(kernel)
        launches = max(1, min(256, math.ceil(4e-3 / max(single, 2e-6))))
        launches = max(launches, min(len(self.sets), 128))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for index in range(launches):
                kernel(*self.sets[index % len(self.sets)])
        samples = []
        for _ in range(6 if single < 1e-3 else 4):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples.append(begin.elapsed_time(end) / launches)
        ordered = sorted(samples[1:])
        del graph
        return {
            "status": "ok",
            "ms": round(ordered[len(ordered) // 2], 6),
            "spread": round((ordered[-1] - ordered[0]) / ordered[0], 4),
            "error": float(f"{error:.3g}"),
        }

    def _once(self, kernel: Callable[..., Any]) -> float:
        import torch

        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        kernel(*self.sets[0])
        begin.record()
        kernel(*self.sets[-1])
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3


class Timers:
    """One timing child per GPU, replaced when it dies or hangs."""

    def __init__(self, gpus: int) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.results = self.context.Queue()
        self.children: dict[int, Any] = {}
        self.queues: dict[int, Any] = {}
        self.running: dict[int, tuple[int, float]] = {}
        self.waiting: dict[int, tuple[Case, dict[str, Any]]] = {}
        self.load: dict[int, int] = {}
        self.home: dict[int, int] = {}
        for gpu in range(gpus):
            self._start(gpu)

    def _start(self, gpu: int) -> None:
        self.queues[gpu] = self.context.Queue()
        self.load[gpu] = 0
        child = self.context.Process(target=_timing_child, args=(gpu, self.queues[gpu], self.results), daemon=True)
        child.start()
        self.children[gpu] = child

    def submit(self, token: int, case: Case, row: dict[str, Any]) -> None:
        # A case stays on one GPU: its inputs are there.
        gpu = zlib.crc32(case.label.encode()) % len(self.queues)
        self.waiting[token] = (case, row)
        self.home[token] = gpu
        self.load[gpu] += 1
        self.queues[gpu].put((token, case, row))

    def collect(self, block_s: float = 0.0) -> list[dict[str, Any]]:
        rows = []
        while True:
            try:
                kind, gpu, token, row = self.results.get(timeout=block_s) if block_s else self.results.get_nowait()
            except queue.Empty:
                break
            block_s = 0.0
            if kind == "start":
                self.running[gpu] = (token, time.monotonic())
            else:
                self.running.pop(gpu, None)
                if self.waiting.pop(token, None) is not None:
                    rows.append(row)
        for gpu, child in list(self.children.items()):
            token, since = self.running.get(gpu, (None, 0.0))
            hung = token is not None and time.monotonic() - since > CANDIDATE_TIMEOUT_S
            if child.is_alive() and not hung:
                continue
            child.kill()
            self.running.pop(gpu, None)
            if token is not None and token in self.waiting:
                _, row = self.waiting.pop(token)
                rows.append({**row, "status": "launch", "reason": "hung" if hung else "the process died"})
            self._start(gpu)
            for other, (case, row) in list(self.waiting.items()):
                if self.home[other] == gpu:
                    self.queues[gpu].put((other, case, row))
        return rows

    def stop(self) -> None:
        for gpu, child in self.children.items():
            self.queues[gpu].put(None)
            child.join(2)
            child.kill()


# -------------------------------------------------------------------------------------------------------------- driving


def enumerate_case(case: Case, refused_share: float) -> list[dict[str, Any]]:
    """Every candidate's tiles; a share of those the engine refused for want of room are marked as refused."""
    factory, arguments = factory_and_arguments(case)
    ranking = factory.rank(**arguments, target=_target())
    chosen = [{"tiles": dict(v.tiles)} for v in ranking.verdicts if v.status == "ranked"]
    refused = [{"tiles": dict(v.tiles), "refused": v.reason} for v in ranking.verdicts if v.status == "refused"]
    sample = random.Random(0).sample(refused, min(len(refused), math.ceil(refused_share * len(refused))))
    return chosen + sample


def environment() -> dict[str, Any]:
    """Chip, driver, clocks and versions."""
    import torch

    import core
    from core._tilelang import tilelang_version

    query = "name,driver_version,clocks.sm,clocks.max.sm,power.limit,temperature.gpu"
    said = ""
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {
        "target": _target(),
        "gpu": dict(zip(query.split(","), said.splitlines()[0].split(", "), strict=False)) if said else {},
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "tilelang": tilelang_version(),
        "tilehal": core.__version__,
        "command": "python scripts/gpu_sweep.py " + " ".join(Path(a).name if "/" in a else a for a in sys.argv[1:]),
        "l2": f"inputs rotated over {ROTATED_BYTES / 1e6:.0f} MB",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, required=True, help="write every row here; gzipped where it ends in .gz")
    parser.add_argument("--cases", nargs="*", default=[], help="operators or words of a case's label")
    parser.add_argument(
        "--jobs",
        type=int,
        default=max(1, (os.cpu_count() or 2) - 2),
        help="candidates compiled at once; default: two fewer than there are CPUs",
    )
    parser.add_argument("--gpus", type=int, default=0, help="GPUs that time (0: all)")
    parser.add_argument("--budget", type=float, default=540, help="seconds")
    parser.add_argument("--refused", type=float, default=0.0, help="share of the refused candidates that are tried too")
    parser.add_argument("--limit", type=int, default=0, help="candidates per case, evenly spread (0: all)")
    parser.add_argument("--plan", type=Path, help="the candidates: read where the file exists, else written to it")
    parser.add_argument("--dry", action="store_true", help="count candidates and stop")
    arguments = parser.parse_args()
    started = time.monotonic()
    chosen = [c for c in cases() if not arguments.cases or any(word in c.label for word in arguments.cases)]
    if not chosen:
        parser.error(f"no case has any of these words: {' '.join(arguments.cases)}")
    plan = planned(chosen, arguments)
    print(f"{len(plan)} candidates, listed in {time.monotonic() - started:.0f} s", flush=True)
    if arguments.dry:
        return
    import torch

    done: list[dict[str, Any]] = []

    def write() -> None:
        text = json.dumps({"environment": environment(), "rows": done})
        if arguments.json.suffix == ".gz":
            arguments.json.write_bytes(gzip.compress(text.encode()))
        else:
            arguments.json.write_text(text)

    timers = Timers(arguments.gpus or torch.cuda.device_count())
    context = multiprocessing.get_context("spawn")
    deadline = started + arguments.budget
    with ProcessPoolExecutor(arguments.jobs, mp_context=context, initializer=_warm_worker) as pool:
        futures = {
            pool.submit(_compile, case, row["tiles"]): (token, case, row) for token, (case, row) in enumerate(plan)
        }
        last = 0.0
        try:
            for future in as_completed(futures, timeout=max(1.0, deadline - time.monotonic())):
                token, case, row = futures[future]
                built = {**row, **future.result()}
                if built["status"] == "built":
                    timers.submit(token, case, built)
                else:
                    done.append(built)
                done += timers.collect()
                if time.monotonic() - last > 20:
                    last = time.monotonic()
                    print(
                        f"{last - started:5.0f} s {len(done)}/{len(plan)}, {len(timers.waiting)} wait for a GPU",
                        flush=True,
                    )
                    write()
        except TimeoutError:
            print("out of time: what is not compiled is left out", flush=True)
            for future in futures:
                future.cancel()
        while timers.waiting and time.monotonic() < deadline + 30:
            done += timers.collect(1.0)
        write()
        timers.stop()
        for process in list(getattr(pool, "_processes", {}).values()):
            if time.monotonic() > deadline:
                process.kill()
    write()
    report(chosen, done)
    print(f"{time.monotonic() - started:.0f} s")


def planned(chosen: list[Case], arguments: argparse.Namespace) -> list[tuple[Case, dict[str, Any]]]:
    """The candidates of each case, from the file of `--plan` where it has them; that file then has them all."""
    plan: list[tuple[Case, dict[str, Any]]] = []
    listed = json.loads(arguments.plan.read_text()) if arguments.plan and arguments.plan.exists() else {}
    for case in chosen:
        rows = listed[case.label] = listed.get(case.label) or enumerate_case(case, arguments.refused)
        if arguments.limit and len(rows) > arguments.limit:
            rows = random.Random(1).sample(rows, arguments.limit)
        print(f"{len(rows):5d} {case.label}", flush=True)
        plan += [(case, row) for row in rows]
    if arguments.plan:
        arguments.plan.write_text(json.dumps(listed))
    return plan


def report(chosen: list[Case], done: list[dict[str, Any]]) -> None:
    """Prints the fastest candidate of each case, and how many came to which end."""
    for case in chosen:
        mine = [r for r in done if r["operator"] == case.operator and r["shape"] == case.shape]
        ok = sorted((r for r in mine if r["status"] == "ok"), key=lambda r: r["ms"])
        other = {s: sum(r["status"] == s for r in mine) for s in {r["status"] for r in mine} - {"ok"}}
        best = f"{ok[0]['ms']:.4f} ms {ok[0]['tiles']}" if ok else "nothing ran"
        print(f"{case.label}: {len(ok)} ok {other or ''} best {best}")


if __name__ == "__main__":
    main()
