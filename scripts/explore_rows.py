#!/usr/bin/env python3
"""Row operators on a GPU: the variants of softmax, layernorm and rmsnorm against Triton's kernels and a copy.

    python scripts/explore_rows.py --json rows.json              # about two minutes on 16 cores and an H200
    python scripts/explore_rows.py --rows softmax-4096x8192 --variants bulk direct
    python scripts/explore_rows.py --dry                         # no device: registers, spills, blocks a unit holds

Every configuration is compiled first, in parallel, and Triton's with them. Each is compiled twice: as the compiler
likes it, and told to leave a unit room for several blocks (`resident`). What spills, or has more blocks that stay than
the chip holds at a time, is not measured.

A child process, which is replaced when a kernel hangs or faults, then takes one row after the other. Each kernel is
checked on fresh random data against torch in float64, its output filled with NaN before. Those that are right are
sampled in turn with a copy of the same bytes and with Triton's kernel, plain and overlapped (the configuration of each
chosen by measuring, as `tilehal bench` does), with cold caches. The best of each variant are sampled once more, for
longer: the ratios in the last table are of this round, and above 1 ours is faster.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.runtime.kernel import Kernel

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from core.bench.contenders import COPY, TRITON, TRITON_OVERLAPPED, title  # noqa: E402

#: Seconds without a word after which a child is taken to hang; until its first word, which takes a start of torch.
HANG_S, START_S = 30, 120
OPERATORS = ("softmax", "layernorm", "rmsnorm")
SHAPES = ((4096, 4096), (16384, 1024), (4096, 8192), (65536, 512))
VARIANTS = ("staged", "direct", "staying", "bulk")
VECTORS = {"softmax": (), "layernorm": ("weight", "bias"), "rmsnorm": ("weight",)}
#: What every row is sampled beside, in the order it is shown, with the head of its columns.
BESIDE = {name: title(name) for name in (COPY, TRITON, TRITON_OVERLAPPED)}
#: Milliseconds of samples for each contender: of all configurations, and of the best.
FIRST_MS, FINAL_MS = 8.0, 30.0

Config = dict[str, Any]
#: By columns: rows of a tile and threads. Of blocks that stay also how many a unit shall hold, and buffers.
STAGED = {
    4096: ((1, 128), (1, 256)),
    1024: ((1, 64), (2, 64)),
    8192: ((1, 256), (1, 128)),
    512: ((4, 128), (2, 64)),
}
DIRECT = {
    4096: ((1, 128), (1, 256), (1, 512), (2, 256), (2, 512), (4, 512)),
    1024: ((1, 32), (1, 64), (2, 64), (2, 128), (4, 128), (4, 256), (8, 256)),
    8192: ((1, 256), (1, 512), (1, 1024), (2, 256), (2, 512), (2, 1024)),
    512: ((2, 32), (2, 64), (4, 64), (4, 128), (8, 128), (8, 256)),
}
STAYING = {
    4096: ((1, 256, 4), (1, 128, 5)),
    1024: ((2, 128, 8), (1, 64, 16)),
    8192: ((1, 512, 2), (1, 512, 3)),
    512: ((4, 128, 8), (4, 128, 12)),
}
BULK = {
    4096: ((1, 256, 4, 3), (1, 256, 6, 2), (1, 256, 8, 2), (1, 128, 8, 2), (1, 256, 2, 4)),
    1024: ((1, 64, 16, 3), (2, 128, 8, 3), (4, 128, 8, 2), (4, 256, 4, 3), (4, 256, 6, 2)),
    8192: ((1, 512, 2, 3), (1, 512, 3, 2), (1, 512, 4, 2), (1, 256, 3, 2), (1, 1024, 2, 2)),
    512: ((4, 128, 8, 3), (8, 128, 8, 2), (8, 256, 4, 3), (8, 256, 6, 2), (4, 64, 16, 2)),
}


def configs(operator: str, columns: int, units: int) -> Iterator[Config]:
    """Configurations worth trying for rows of so many elements on a chip of so many units."""
    for rows, threads in STAGED[columns]:
        yield configuration("staged", columns, rows, threads)
    for rows, threads in DIRECT[columns]:
        yield configuration("direct", columns, rows, threads)
        held = resident(operator, rows * columns // threads, threads)
        if held:
            yield configuration("direct", columns, rows, threads, held=held)
    for rows, threads, held in STAYING[columns]:
        yield configuration("direct", columns, rows, threads, held * units, held=held)
    for rows, threads, held, buffers in BULK[columns]:
        yield configuration("bulk", columns, rows, threads, held * units, buffers, held)


def resident(operator: str, elements: int, threads: int) -> int:
    """Blocks that a unit could hold with few registers for each of a thread's elements; 0 for none to ask for."""
    tight = {16: 40 if operator == "layernorm" else 32, 32: 64 if operator == "layernorm" else 48, 64: 96}
    held = 65536 // (threads * tight.get(elements, 256))
    return max((count for count in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16) if count <= held), default=0)


def configuration(
    variant: str, columns: int, rows: int, threads: int, workers: int = 0, buffers: int = 1, held: int = 0
) -> Config:
    """A choice of every tile parameter."""
    tiles = {"block_M": rows, "block_N": columns, "threads": threads}
    return {**tiles, "variant": variant, "workers": workers, "buffers": buffers, "resident": held}


def kind(config: Config) -> str:
    """The variant, with blocks that stay apart."""
    return "staying" if config["variant"] == "direct" and config["workers"] else str(config["variant"])


def label(config: Config) -> str:
    """A configuration in a few letters."""
    text = f"{kind(config):7} {config['block_M']} rows {config['threads']:4} threads"
    for name, least in (("workers", 0), ("buffers", 1), ("resident", 0)):
        text += f" {config[name]} {name}" if config[name] > least else ""
    return text


def kernel_for(operator: str, shape: tuple[int, int], config: Config, target: str) -> Kernel:
    """The kernel, built; from the cache when another process has built it."""
    import importlib

    factory = getattr(importlib.import_module(f"core.ops.{operator}"), operator)
    kernel: Kernel = factory.compile(*shape, **config, target=target, build=True)
    return kernel


def prepare(job: tuple[str, tuple[int, int], Config, str]) -> dict[str, Any]:
    """Runs in a worker: builds one kernel and says what became of it."""
    operator, shape, config, target = job
    started = time.perf_counter()
    row: dict[str, Any] = {"operator": operator, "shape": list(shape), "config": config}
    try:
        import core
        from core.errors import DescriptorError
        from core.hardware.occupancy import occupancy

        actual = kernel_for(*job).resources.actual
        assert actual is not None  # it was built
        shared = actual.static_shared_bytes or 0, actual.dynamic_shared_bytes or 0
        chip = core.chip(target)
        registers = actual.registers_per_thread or 0
        try:
            held = occupancy(chip, config["threads"], registers, *shared).at_most or 0
        except DescriptorError:
            held = 0  # a CPU's core, which holds no blocks beside one another
        row |= {"status": "built", "registers": registers, "shared": sum(shared), "held": held}
        if actual.spill_store_bytes:
            row |= {"status": "spills", "reason": f"{actual.spill_store_bytes} bytes"}
        elif config["workers"] > held * (chip.main_unit.count or 0):
            row |= {"status": "crowded", "reason": f"a unit holds {held} of these blocks"}
    except Exception as error:
        row |= {"status": "build", "reason": f"{type(error).__name__}: {str(error)[:300]}"}
    return row | {"compile_s": round(time.perf_counter() - started, 2)}


def prepare_triton(job: tuple[str, tuple[int, int], bool]) -> str | None:
    """Runs in a worker: Triton's configurations into its cache; what went wrong."""
    from core.bench import triton_rows

    operator, shape, overlapped = job
    try:
        triton_rows.compile_all(operator, *shape, "float16", overlapped=overlapped)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return None


# ------------------------------------------------------------------------------------------------------ on the device


class Row:
    """Inputs of one operator and shape, in so many copies that caches are cold, and what is right."""

    def __init__(self, operator: str, shape: tuple[int, int], device: str) -> None:
        import torch

        from core.tuning.inputs import rotation
        from core.tuning.measure import cache_bytes

        self.torch = torch
        make: dict[str, Any] = {"device": device, "dtype": torch.float16}
        self.x = torch.randn(shape, **make) * 2 + 1
        self.vectors = [torch.randn(shape[1], **make) for _ in VECTORS[operator]]
        arguments = [self.x, *self.vectors, torch.empty_like(self.x)]
        self.sets = rotation(arguments, cache_bytes(self.x.device)) or [arguments]
        self.expected = self._expected(operator)

    def _expected(self, operator: str) -> Any:
        functional, (_, columns) = self.torch.nn.functional, self.x.shape
        x, vectors = self.x.double(), [vector.double() for vector in self.vectors]
        if operator == "softmax":
            return self.torch.softmax(x, -1)
        if operator == "layernorm":
            return functional.layer_norm(x, (columns,), *vectors, eps=1e-5)
        return functional.rms_norm(x, (columns,), *vectors, eps=1e-6)

    def error(self, call: Callable[..., Any]) -> float:
        """Largest difference from the reference over what rounding allows, from a poisoned output; 1 is the limit."""
        *arguments, y = self.sets[0]
        y.fill_(float("nan"))
        call(*arguments, y)
        self.synchronize()
        allowed = self.expected.abs() * 2.0**-10 + 2e-5
        found = (y.double() - self.expected).abs() / allowed
        return float(found.nan_to_num(nan=float("inf")).max())

    def synchronize(self) -> None:
        """Waits for the device; raises when it is lost."""
        if self.x.is_cuda:
            self.torch.cuda.synchronize()

    def works(self, call: Callable[..., Any]) -> list[Callable[[], Any]]:
        """The call on every copy of the arguments."""
        return [partial(call, *arguments) for arguments in self.sets]


def copy(x: Any, *rest: Any) -> None:
    """A copy of the same bytes."""
    rest[-1].copy_(x)


def measure_row(item: dict[str, Any], options: argparse.Namespace, say: Callable[[dict[str, Any]], None]) -> None:
    """Checks what is left of one row, then samples it in turn with the others."""
    from core.bench import triton_rows
    from core.tuning.measure import measure_together

    operator, shape = item["operator"], tuple(item["shape"])
    row = Row(operator, shape, "cpu" if options.target.startswith("cpu") else "cuda")
    calls: dict[str, Callable[..., Any]] = {COPY: copy}
    notes = {}
    for name, overlapped in triton_rows.CONTENDERS.items():
        try:
            calls[name], notes[name] = triton_rows.tuned(operator, row.x, row.vectors, overlapped=overlapped)
        except Exception as error:
            notes[name] = f"{type(error).__name__}: {str(error)[:200]}"
    by_label = {label(config): config for config in item["configs"]}
    for name, config in by_label.items():
        say({"start": name})
        try:
            kernel = kernel_for(operator, shape, config, options.target)
            off = row.error(kernel)
        except Exception as failure:
            say({"bad": name, "status": "failed", "reason": f"{type(failure).__name__}: {str(failure)[:300]}"})
            row.synchronize()  # where this raises, the parent starts another child
            continue
        if off > 1:
            say({"bad": name, "status": "wrong", "reason": f"{off:.3g} times what rounding allows"})
        else:
            calls[name] = kernel
    say({"start": None})
    together = measure_together(
        {name: row.works(call) for name, call in calls.items()},
        row.x.device,
        warmup_ms=2,
        repeat_ms=FIRST_MS,
        cold_l2=True,
    )
    times = {name: found.median_s * 1e6 for name, found in together.measurements.items()}
    best: dict[str, str] = {}
    for name in sorted(times, key=lambda name: times[name]):
        if name in by_label:
            best.setdefault(kind(by_label[name]), name)
    finalists = [name for name in (*BESIDE, *best.values()) if name in calls]
    final = measure_together(
        {name: row.works(calls[name]) for name in finalists},
        row.x.device,
        warmup_ms=5,
        repeat_ms=FINAL_MS,
        cold_l2=True,
    )
    finals: dict[str, dict[str, Any]] = {}
    for name in finalists:
        found = final.measurements[name]
        finals[name] = {"us": found.median_s * 1e6, "spread": found.spread}
        for other in BESIDE:
            if other in calls and name in by_label:
                interval = final.ratio(other, name)
                finals[name][other] = [interval.value, interval.low, interval.high]
    configs_of = {name: by_label[name] for name in times if name in by_label}
    say({"done": True, "times_us": times, "finals": finals, "configs": configs_of, "notes": notes})


def child(options: argparse.Namespace) -> None:
    """Measures what stands on standard input; a JSON line per event on standard output."""
    from core.tuning.json_process import own_output

    answers = own_output()

    def say(number: int, event: dict[str, Any]) -> None:
        print(json.dumps({"row": number} | event), file=answers, flush=True)

    for number, item in enumerate(json.load(sys.stdin)):
        measure_row(item, options, partial(say, number))


def measure_all(work: list[dict[str, Any]], take: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Runs children until every row is done; a configuration at which one hangs or dies is left out from there on."""
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
        began: str | None = None
        done, heard, cause = 0, False, ""
        while not cause:
            if not selector.select(HANG_S if heard else START_S):
                process.kill()
                cause = f"no word for {HANG_S if heard else START_S} s"
                break
            line = process.stdout.readline()
            if not line:
                cause = f"the process ended with status {process.wait()}"
                break
            heard, event = True, json.loads(line)
            item = work[event["row"]]
            if "start" in event:
                began = event["start"]
            elif "bad" in event:
                item["configs"] = [config for config in item["configs"] if label(config) != event["bad"]]
                take(item, event)
            else:
                take(item, event)
                done, began = event["row"] + 1, None
        process.wait()
        del work[:done]
        if work and began is not None:
            work[0]["configs"] = [config for config in work[0]["configs"] if label(config) != began]
            take(work[0], {"bad": began, "status": "hang", "reason": cause})
        elif work:
            take(work[0], {"bad": "all", "status": "hang", "reason": f"between kernels: {cause}"})
            del work[0]


# --------------------------------------------------------------------------------------------------------------- main


def named(item: dict[str, Any]) -> str:
    """A row in one word."""
    return f"{item['operator']}-{'x'.join(map(str, item['shape']))}"


def print_built(built: list[dict[str, Any]], everything: bool) -> None:
    """What was compiled: all of it, or what went wrong."""
    for row in built:
        if everything or row["status"] != "built":
            figures = f"{row['registers']:3} registers, {row['held']} blocks a unit" if "held" in row else ""
            print(f"{named(row):22} {label(row['config']):66} {row['status']:7} {figures} {row.get('reason', '')}")


def print_finals(rows: list[dict[str, Any]]) -> None:
    """The best of each variant, beside a copy and Triton's kernels: microseconds, then how many times as fast it is."""
    widths = {name: max(8, len(head)) for name, head in BESIDE.items()}
    heads = " ".join(f"{head:>{widths[name]}}" for name, head in BESIDE.items())
    print(f"\n{'row':22} {heads}   {'us':>8} {heads}  configuration")
    for row in rows:
        finals = row["finals"]
        theirs = " ".join(f"{finals.get(name, {}).get('us', float('nan')):{widths[name]}.2f}" for name in BESIDE)
        ours = sorted((found["us"], name) for name, found in finals.items() if name in row["configs"])
        for number, (us, name) in enumerate(ours):
            head = f"{named(row):22} {theirs}" if number == 0 else " " * (23 + len(theirs))
            ratios = " ".join(f"{finals[name].get(other, [float('nan')])[0]:{widths[other]}.3f}" for other in BESIDE)
            print(f"{head}   {us:8.2f} {ratios}  {name}")
        for name, note in row["notes"].items():
            print(f"{'':25}{BESIDE[name]}: {note}")


def main() -> int:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [f"{operator}-{m}x{n}" for operator in OPERATORS for m, n in SHAPES]
    parser.add_argument("--target", default="cuda:h200", help="chip to compile for (%(default)s)")
    parser.add_argument("--rows", nargs="*", default=names, choices=names, metavar="ROW", help=", ".join(names))
    parser.add_argument("--variants", nargs="*", default=VARIANTS, choices=VARIANTS, help="only these; default: all")
    parser.add_argument("--units", type=int, default=132, help="compute units of the GPU")
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
    from core.bench.triton_rows import CONTENDERS

    started = time.perf_counter()
    shapes = {f"{operator}-{m}x{n}": (operator, (m, n)) for operator in OPERATORS for m, n in SHAPES}
    chosen = [shapes[name] for name in options.rows]
    jobs = [
        (operator, shape, config, options.target)
        for operator, shape in chosen
        for config in configs(operator, shape[1], options.units)
        if kind(config) in options.variants
    ]
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        kinds = () if options.dry else CONTENDERS.values()
        triton = [pool.submit(prepare_triton, (*one, overlapped)) for one in chosen for overlapped in kinds]
        built = list(pool.map(prepare, jobs))
        troubles = {trouble for one in triton if (trouble := one.result()) is not None}
    for row in built:
        mark_twin(row, built)
    print_built(built, options.dry)
    print(*(f"Triton: {trouble}" for trouble in sorted(troubles)), sep="\n", end="\n" if troubles else "")
    print(f"compiled {len(built)} in {time.perf_counter() - started:.0f} s", flush=True)
    result: dict[str, Any] = {"command": sys.argv, "built": built, "rows": [], "bad": []}

    def save() -> None:
        if options.json is not None:
            options.json.write_text(json.dumps(result, indent=1))

    save()
    if options.dry:
        return int(any(row["status"] == "build" for row in built))

    def take(item: dict[str, Any], event: dict[str, Any]) -> None:
        row = {"operator": item["operator"], "shape": item["shape"], **event}
        result["rows" if "done" in event else "bad"].append(row)
        if "bad" in event:
            print(f"{named(item):22} {event['bad']}: {event['status']}: {event['reason']}", flush=True)
        else:
            for name, us in sorted(event["times_us"].items(), key=lambda pair: pair[1]):
                print(f"{named(item):22} {us:8.2f} us  {name}", flush=True)
        save()

    work = [
        {
            "operator": operator,
            "shape": list(shape),
            "configs": [row["config"] for row in built if fits(row, operator, shape)],
        }
        for operator, shape in chosen
    ]
    measure_all(work, take)
    result["seconds"] = time.perf_counter() - started
    save()
    print_finals(result["rows"])
    print(f"{result['seconds']:.0f} s")
    return 0


def mark_twin(row: dict[str, Any], built: list[dict[str, Any]]) -> None:
    """Marks a kernel with as many blocks a unit as the compiler gives it unasked, which is not measured twice."""
    held = row["config"]["resident"]
    if row["status"] != "built" or not held or row["config"]["workers"]:
        return
    unasked = {**row, "config": {**row["config"], "resident": 0}}
    for other in built:
        if all(other[key] == unasked[key] for key in ("operator", "shape", "config")) and other.get("held", 0) >= held:
            row |= {"status": "twin", "reason": "as many blocks a unit unasked"}


def fits(row: dict[str, Any], operator: str, shape: tuple[int, int]) -> bool:
    """Whether this is a kernel of the row that may be measured."""
    return bool(row["status"] == "built" and row["operator"] == operator and row["shape"] == list(shape))


if __name__ == "__main__":
    sys.exit(main())
