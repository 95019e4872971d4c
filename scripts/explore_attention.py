#!/usr/bin/env python3
"""Attention on a GPU: every schedule and tile of a list, at several shapes, against torch's cuDNN and flash backends.

    python scripts/explore_attention.py --json attention.json            # about four minutes on 16 cores and an H200
    python scripts/explore_attention.py --budget 90 --shapes short dim64
    python scripts/explore_attention.py --shapes long gqa --match ping_pong --jobs 8
    python scripts/explore_attention.py --dry                            # no device: registers, spills

Kernels are compiled in parallel, then checked and timed one after the other in a child process, which is replaced when
a kernel hangs or faults. With `--budget` each shape gets its share of the time: what is not compiled by then is left
out, what is not timed stays `built`, and the best of the others go to the final round.

A kernel is checked on fresh random data, its output filled with NaN before: against float32 attention of two heads and
against cuDNN in whole. The best of each shape are timed again with the torch backends in turn, with warm caches; the
ratios in the table are of that round.
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
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.runtime.kernel import Kernel

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from core.bench.contenders import CUDNN, FLASH  # noqa: E402

#: Seconds without a word after which the child is taken to hang.
PATIENCE_S = 25.0
#: Kernels of a shape that are timed again beside torch.
FINALISTS = 4
#: Seconds of a shape's share that the final round needs, and a child before it can measure anything.
FINAL_S, START_S = 4.0, 8.0

SHAPES: dict[str, dict[str, Any]] = {
    "short": {"batch": 16, "heads": 16, "kv_heads": 16, "M": 512, "N": 512, "dim": 64, "causal": False},
    "dim64": {"batch": 4, "heads": 32, "kv_heads": 32, "M": 2048, "N": 2048, "dim": 64, "causal": False},
    "plain": {"batch": 4, "heads": 32, "kv_heads": 32, "M": 2048, "N": 2048, "dim": 128, "causal": False},
    "causal": {"batch": 4, "heads": 32, "kv_heads": 32, "M": 4096, "N": 4096, "dim": 128, "causal": True},
    "gqa": {"batch": 4, "heads": 32, "kv_heads": 8, "M": 2048, "N": 2048, "dim": 128, "causal": True},
    "long": {"batch": 1, "heads": 32, "kv_heads": 32, "M": 8192, "N": 8192, "dim": 128, "causal": True},
}


def configurations(dim: int, units: int) -> Iterator[dict[str, Any]]:
    """Tiles worth trying for a head dimension on a chip of so many units, the likely ones first."""
    if dim > 64:
        pipelined = [(128, 64, 2, 256), (128, 128, 2, 256), (128, 160, 2, 256), (64, 128, 2, 128)]
        by_hand = [(128, 128, 2, 256), (128, 160, 2, 256), (128, 96, 2, 256), (128, 80, 2, 256), (192, 80, 2, 384)]
    else:
        pipelined = [(128, 128, 2, 256), (128, 192, 2, 256), (192, 128, 2, 384), (128, 64, 3, 256)]
        by_hand = [
            (128, 128, 2, 256),
            (128, 160, 2, 256),
            (128, 192, 2, 256),
            (192, 96, 2, 384),
            (192, 128, 2, 384),
        ]
    for workers in (units, 0):
        for tile in by_hand:
            for variant in ("overlapped", "ping_pong"):
                if variant == "overlapped" or tile[3] == 256:
                    yield configuration(*tile, variant, workers)
    if dim == 128:
        yield configuration(128, 176, 2, 256, "overlapped", 0)
        yield configuration(128, 176, 2, 256, "ping_pong", 0)
    for tile in pipelined:
        yield configuration(*tile, "pipelined", 0)


def configuration(m: int, n: int, stages: int, threads: int, variant: str, workers: int) -> dict[str, Any]:
    """One choice of every tile parameter."""
    return {
        "block_M": m,
        "block_N": n,
        "num_stages": stages,
        "threads": threads,
        "variant": variant,
        "workers": workers,
    }


def label(tiles: dict[str, Any]) -> str:
    """A configuration in a few letters."""
    form = "{block_M}x{block_N} stages {num_stages} threads {threads} {variant} workers {workers}"
    return form.format(**tiles)


def compiled(shape: dict[str, Any], tiles: dict[str, Any], target: str) -> Kernel:
    """The built kernel of a shape and a configuration; from the cache when another process has built it."""
    from core.ops.attention import attention

    kernel: Kernel = attention.compile(**shape, **tiles, target=target, build=True)
    return kernel


def compile_row(name: str, tiles: dict[str, Any], target: str) -> dict[str, Any]:
    """Runs in a worker: builds one kernel and says what became of it."""
    started = time.perf_counter()
    row: dict[str, Any] = {"shape_name": name, "shape": SHAPES[name], "tiles": tiles}
    try:
        kernel = compiled(SHAPES[name], tiles, target)
        actual = kernel.resources.actual
        assert actual is not None  # it was built
        row |= {
            "status": "built",
            "registers": actual.registers_per_thread,
            "spill": actual.spill_store_bytes,
            "dynamic_shared": actual.dynamic_shared_bytes,
        }
    except Exception as error:
        row |= {"status": "build", "reason": f"{type(error).__name__}: {str(error)[:300]}"}
    return row | {"compile_s": round(time.perf_counter() - started, 2)}


# ------------------------------------------------------------------------------------------------------ on the device


class Prepared:
    """Inputs and references of one shape on the device."""

    def __init__(self, shape: dict[str, Any]) -> None:
        import torch

        self.shape = shape
        make: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}
        batch, heads, kv_heads, dim = (shape[key] for key in ("batch", "heads", "kv_heads", "dim"))
        self.q = torch.randn(batch, heads, shape["M"], dim, **make)
        self.k = torch.randn(batch, kv_heads, shape["N"], dim, **make)
        self.v = torch.randn(batch, kv_heads, shape["N"], dim, **make)
        self.output = torch.empty_like(self.q)
        self.exact = {head: self._exact(head) for head in {(0, 0), (batch - 1, heads - 1)}}
        self.whole = self.torch_call(CUDNN)()
        self.reference = self.errors(self.whole)["error"]

    def call(self, kernel: Kernel) -> Callable[[], Any]:
        """A function that runs the kernel; the output is NaN before."""
        self.output.fill_(float("nan"))
        return lambda: kernel(self.q, self.k, self.v, self.output)

    def _exact(self, head: tuple[int, int]) -> Any:
        import torch

        b, h = head
        kv = h // (self.shape["heads"] // self.shape["kv_heads"])
        q, k, v = self.q[b, h].float(), self.k[b, kv].float(), self.v[b, kv].float()
        scores = q @ k.T * self.shape["dim"] ** -0.5
        if self.shape["causal"]:
            hidden = torch.ones_like(scores, dtype=torch.bool).triu(self.shape["N"] - self.shape["M"] + 1)
            scores = scores.masked_fill(hidden, -torch.inf)
        return scores.softmax(-1) @ v

    def torch_call(self, backend: str) -> Any:
        """A function that runs torch's attention with one backend."""
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        which = {CUDNN: SDPBackend.CUDNN_ATTENTION, FLASH: SDPBackend.FLASH_ATTENTION}[backend]
        group = self.shape["heads"] // self.shape["kv_heads"]

        def grouped() -> Any:
            with sdpa_kernel(which):
                return scaled_dot_product_attention(
                    self.q, self.k, self.v, is_causal=self.shape["causal"], enable_gqa=group > 1
                )

        try:
            grouped()
            return grouped
        except RuntimeError:
            if group == 1:
                raise
        # A backend that does not share keys between heads gets them repeated, outside of what is timed.
        k, v = self.k.repeat_interleave(group, 1), self.v.repeat_interleave(group, 1)

        def repeated() -> Any:
            with sdpa_kernel(which):
                return scaled_dot_product_attention(self.q, k, v, is_causal=self.shape["causal"])

        return repeated

    def errors(self, output: Any) -> dict[str, float]:
        """Largest errors: to the exact heads, and to cuDNN everywhere."""
        exact = max((output[head].float() - value).abs().max().item() for head, value in self.exact.items())
        return {"error": exact, "difference": (output.float() - self.whole.float()).abs().max().item()}


def child(
    name: str, tiles: list[dict[str, Any]], known: list[dict[str, Any]], target: str, seconds: float | None
) -> int:
    """Checks and times configurations of one shape; a JSON line before each and one after. Then the final round.

    `known` are rows that an earlier child has timed; `seconds` is when the final round ends at the latest.
    """
    started = time.monotonic()
    import torch

    from core.tuning.measure import measure

    def say(row: dict[str, Any]) -> None:
        print(json.dumps(row), flush=True)

    say({"event": "preparing"})
    prepared = Prepared(SHAPES[name])
    for place, configured in enumerate(tiles):
        if seconds is not None and time.monotonic() - started > seconds - FINAL_S:
            break
        say({"event": "start", "place": place})
        row: dict[str, Any] = {}
        try:
            call = prepared.call(compiled(SHAPES[name], configured, target))
            call()
            torch.cuda.synchronize()
            row |= prepared.errors(prepared.output) | {"reference_error": prepared.reference}
            right = row["error"] <= 2 * prepared.reference + 1e-3 and row["difference"] <= 3 * prepared.reference + 2e-3
            timed = measure(call, "cuda", repeat_ms=60)
            row |= {"status": "ok" if right else "wrong", "ms": timed.median_s * 1e3, "spread": timed.spread}
            known.append({"tiles": configured, **row})
        except Exception as error:
            row |= {"status": "launch", "reason": f"{type(error).__name__}: {str(error)[:300]}"}
        say({"event": "done", "place": place, "row": row})
        if row["status"] == "launch" and "CUDA" in row["reason"]:
            return 1  # the context is lost
    say(final_round(name, prepared, known, target))
    return 0


def final_round(name: str, prepared: Any, known: list[dict[str, Any]], target: str) -> dict[str, Any]:
    """The best configurations in turn with torch's backends."""
    from core.tuning.measure import measure_together

    calls, notes = {}, {}
    for backend in (CUDNN, FLASH):
        try:
            calls[backend] = prepared.torch_call(backend)
        except RuntimeError as error:
            notes[backend] = str(error)[:200]
    for row in sorted((row for row in known if row["status"] == "ok"), key=lambda row: row["ms"])[:FINALISTS]:
        kernel = compiled(SHAPES[name], row["tiles"], target)
        calls[label(row["tiles"])] = prepared.call(kernel)
    if not calls:
        return {"event": "final", "times": {}, "notes": notes}
    together = measure_together(calls, "cuda", repeat_ms=250)
    times = {key: value.to_json() for key, value in together.measurements.items()}
    return {"event": "final", "times": times, "notes": notes}


def run_child(
    name: str, tiles: list[Any], known: list[Any], options: argparse.Namespace, seconds: float | None
) -> list[Any]:
    """The child's events up to its end or to a silence longer than `PATIENCE_S`, after which it is killed."""
    command = [sys.executable, __file__, "--child", name, "--target", options.target]
    command += ["--tiles", json.dumps(tiles), "--known", json.dumps(known)]
    command += [] if seconds is None else ["--seconds", str(seconds)]
    events: list[Any] = []
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, bufsize=0)
        assert process.stdout is not None
        pending = b""
        while True:
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
            data = os.read(process.stdout.fileno(), 65536) if ready else b""
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            events += [json.loads(line) for line in lines if line.startswith(b"{")]
        process.kill()
        process.wait()
        if not any(event["event"] == "final" for event in events):
            errors.seek(0)
            print(f"  {name}: a child died: {errors.read()[-1500:].decode(errors='replace')}", file=sys.stderr)
    return events


def time_shape(
    name: str, rows: list[dict[str, Any]], options: argparse.Namespace, until: float | None
) -> dict[str, Any]:
    """Fills in the rows of one shape, with as many children as it takes; returns the final round.

    `until` is the time, by the monotonic clock, when the final round should end.
    """
    waiting = [row for row in rows if row["status"] == "built"]
    while True:
        known = [{key: row[key] for key in ("tiles", "status", "ms")} for row in rows if row["status"] == "ok"]
        seconds = None if until is None else until - time.monotonic()
        events = run_child(name, [row["tiles"] for row in waiting], known, options, seconds)
        started = max((event["place"] for event in events if event["event"] == "start"), default=-1)
        for event in events:
            if event["event"] == "done":
                waiting[event["place"]] |= event["row"]
            elif event["event"] == "final":
                return dict(event)
        if started < 0:  # it died in preparation, or in the final round
            for row in waiting:
                row |= {"status": "launch", "reason": "the child did not start"}
            return {}
        if waiting[started]["status"] == "built":
            waiting[started] |= {"status": "hang", "reason": "no answer, or the process died"}
        waiting = waiting[started + 1 :]


# ------------------------------------------------------------------------------------------------------------- report


def report(name: str, rows: list[dict[str, Any]], final: dict[str, Any]) -> None:
    """Prints one shape."""
    print(f"\n{name}: {SHAPES[name]}")
    best = min((row["ms"] for row in rows if row["status"] == "ok"), default=0.0)
    for row in sorted(rows, key=lambda row: row.get("ms", 1e9)):
        figures = f"{row['ms']:8.4f} ms {row['ms'] / best:6.3f}" if row.get("ms") and best else " " * 18
        used = f"{row.get('registers', '')} regs, {row.get('spill', '')} spilled" if "registers" in row else ""
        print(f"  {figures}  {row['status']:7} {label(row['tiles']):62} {used} {row.get('reason', '')[:120]}")
    if final:
        for key, value in final["times"].items():
            ratio = final["times"].get(CUDNN, value)["median_s"] / value["median_s"]
            milliseconds = value["median_s"] * 1e3
            print(f"  final {milliseconds:8.4f} ms  {ratio:6.3f} x cuDNN  spread {value['spread']:.3f}  {key}")


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
    parser.add_argument("--units", type=int, default=132, help="persistent blocks of a launch")
    parser.add_argument("--budget", type=float, help="seconds for everything; see above")
    parser.add_argument("--dry", action="store_true", help="no device: compile, and show what came out")
    parser.add_argument("--json", type=Path, help="write every result here")
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--tiles", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--known", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child, options.tiles, options.known, options.target, options.seconds)

    started = time.monotonic()
    wanted = [
        (name, tiles)
        for name in options.shapes
        for tiles in configurations(SHAPES[name]["dim"], options.units)
        if options.match in label(tiles)
    ]
    if not wanted:
        parser.error(f"no configuration of these shapes has {options.match!r} in its name")
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in options.shapes}
    finals: dict[str, Any] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        futures: dict[str, list[Future[dict[str, Any]]]] = {name: [] for name in options.shapes}
        for name, tiles in wanted:
            futures[name].append(pool.submit(compile_row, name, tiles, options.target))
        if options.budget is None:
            # Nothing is compiled while anything is timed.
            wait([future for named in futures.values() for future in named])
            print(f"{len(wanted)} kernels compiled in {time.monotonic() - started:.0f} s")
        for place, name in enumerate(options.shapes):
            until = None
            if options.budget is not None:
                left = started + options.budget - time.monotonic()
                share = left / (len(options.shapes) - place)
                until = time.monotonic() + share
                wait(futures[name], timeout=max(0.0, share - FINAL_S - START_S))
            late = 0
            for future in futures[name]:
                if future.done():
                    rows[name].append(future.result())
                else:
                    future.cancel()
                    late += 1
            if not options.dry:
                finals[name] = time_shape(name, rows[name], options, until)
            report(name, rows[name], finals.get(name, {}))
            if late:
                print(f"  {late} kernels were late")
            sys.stdout.flush()
        pool.shutdown(cancel_futures=True)
    print(f"\n{time.monotonic() - started:.0f} s in all")
    if options.json:
        everything = {"command": sys.argv, "rows": [row for named in rows.values() for row in named], "final": finals}
        options.json.write_text(json.dumps(everything, indent=1) + "\n")
    return int(options.dry and any(row["status"] == "build" for named in rows.values() for row in named))


if __name__ == "__main__":
    raise SystemExit(main())
