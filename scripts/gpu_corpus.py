#!/usr/bin/env python3
"""Runs the kernel corpus and the silent differences on a device against torch, prints a table and writes JSON.

    python scripts/gpu_corpus.py --json corpus.json            # everything on `cuda`
    python scripts/gpu_corpus.py --match gemm --jobs 4
    python scripts/gpu_corpus.py --target cpu --topic softmax

TileHAL must be installed (`pip install --no-build-isolation --no-deps -e . -e backends/cuda`). Every case gets fresh
random data twice: once on torch's default stream and once on another. Cases run in child processes, a topic (or a part
of a long one) to a process; one that dies (a fault of the device cannot be recovered from in CUDA) is noted and the
rest of its topic goes on in a new one. Exit status: how many cases are not as they should be, at most 99.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

#: Exit status of a child whose device no longer answers.
DEVICE_LOST = 70

#: Longer topics are run in parts of so many cases, to keep all processes busy to the end.
CASES_PER_PROCESS = 16


def entries() -> dict[str, Any]:
    """Every case and silent difference by name."""
    from tests.kernels import all_kernels
    from tests.kernels.silent import silent_cases

    return {entry.name: entry for entry in all_kernels()} | {entry.name: entry for entry in silent_cases()}


def child(names: list[str], target: str, device: str, results: Path) -> int:
    """Evaluates the named cases in order, one JSON line each as soon as it is known."""
    import logging

    from tests.kernels.evaluate import evaluate

    logging.disable(logging.CRITICAL)  # a failed trace logs the whole rewritten source
    known = entries()
    with results.open("a") as out:
        for name in names:
            outcome = evaluate(known[name], target, device)
            print(json.dumps(outcome.to_json()), file=out, flush=True)
            if device.startswith("cuda") and not device_answers():
                return DEVICE_LOST
    return 0


def device_answers() -> bool:
    """Whether the CUDA context still works: after a fault every later call fails."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def run_topic(names: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Evaluates the cases in child processes, starting another one after each that dies."""
    done: list[dict[str, Any]] = []
    while len(done) < len(names):
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results.jsonl"
            command = [sys.executable, __file__, "--child", str(results), "--target", options.target]
            process = subprocess.Popen(
                [*command, "--device", options.device, *names[len(done) :]],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # so that a compiler it started dies with it
            )
            try:
                output, _ = process.communicate(timeout=options.timeout)
                reason = f"exit status {process.returncode}"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                reason = f"no end after {options.timeout:g} s"
            finished = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
        done += finished
        if process.returncode not in (0, DEVICE_LOST) and len(done) < len(names):
            message = f"the process died: {reason}\n{output[-2000:]}"
            done.append({"name": names[len(done)], "status": "crashed", "expected": False, "message": message})
        elif process.returncode == 0 and not finished:
            raise RuntimeError(f"the child for {names[len(done)]} did nothing:\n{output}")
    return done


def batched(names: list[str], size: int) -> list[list[str]]:
    """The names in parts of about equal length, none longer than `size`."""
    count = -(-len(names) // size)
    return [names[len(names) * part // count : len(names) * (part + 1) // count] for part in range(count)]


def environment(options: argparse.Namespace) -> dict[str, str]:
    """What the figures were taken with."""
    import tilelang
    import torch

    found = {"target": options.target, "device": options.device, "python": sys.version.split()[0]}
    found |= {"torch": torch.__version__, "tilelang": tilelang.__version__}
    if options.device.startswith("cuda"):
        found["device_name"] = torch.cuda.get_device_name(options.device)
    return found


def first_line(message: str, width: int) -> str:
    """The message's first line, cut to `width`."""
    line = message.strip().partition("\n")[0]
    return line if len(line) <= width else line[: width - 1] + "…"


def show(outcome: dict[str, Any], compact: bool = False) -> None:
    """One row of the table, and the message of what is not as it should be."""
    mark = " " if outcome["expected"] else "!"
    figures = [outcome.get(key) for key in ("largest_error", "compile_s", "run_s")]
    error, compile_s, run_s = ("" if value is None else f"{value:.3g}" for value in figures)
    print(f"{mark} {outcome['name']:56} {outcome['status']:8} {error:>9} {compile_s:>8} {run_s:>8}")
    if outcome["status"] != "ok" and not compact:
        print(f"      {outcome.get('error_type', '')}: {first_line(outcome['message'], 160)}")


def main() -> int:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda", help="what to compile for (default: cuda, the detected device)")
    parser.add_argument("--device", default="", help="torch device of the arguments (default: by the target)")
    parser.add_argument("--topic", action="append", default=[], help="only this topic; may be repeated")
    parser.add_argument("--match", default="", help="only cases whose name contains this")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1), help="processes at a time")
    parser.add_argument("--timeout", type=float, default=540.0, help="seconds for one topic's process")
    parser.add_argument("--json", type=Path, help="write every outcome here")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.device = options.device or ("cuda" if options.target.startswith("cuda") else "cpu")
    if options.child:
        return child(options.names, options.target, options.device, options.child)

    chosen = [name for name in entries() if options.match in name]
    chosen = [name for name in chosen if not options.topic or name.partition(".")[0] in options.topic]
    if not chosen:
        parser.error("no case is of these topics and has this in its name")
    topics: dict[str, list[str]] = {}
    for name in chosen:
        topics.setdefault(name.partition(".")[0], []).append(name)
    parts = [part for names in topics.values() for part in batched(names, CASES_PER_PROCESS)]
    start = time.monotonic()
    outcomes: list[dict[str, Any]] = []
    print(f"  {'case':56} {'status':8} {'error':>9} {'compile':>8} {'run s':>8}")
    with ThreadPoolExecutor(options.jobs) as pool:
        for finished in pool.map(lambda names: run_topic(names, options), parts):
            outcomes += finished
            for outcome in finished:
                show(outcome)
    wrong = [outcome for outcome in outcomes if not outcome["expected"]]
    counts = {
        status: sum(outcome["status"] == status for outcome in outcomes)
        for status in ("ok", "wrong", "refused", "error", "crashed")
    }
    print(
        f"\n{len(outcomes)} cases in {time.monotonic() - start:.0f} s: "
        + ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        + f"; {len(wrong)} not as they should be"
    )
    for outcome in wrong:
        show(outcome, compact=True)
    if options.json:
        report = {"environment": environment(options), "outcomes": outcomes}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return min(len(wrong), 99)


if __name__ == "__main__":
    raise SystemExit(main())
