"""Host time per launch: TileHAL's ways to launch beside raw tilelang, Triton and torch, in one process.

    python scripts/launch_overhead.py --target cuda --out launch.json

How it is done is said in `core/bench/launch.py`; `tilehal bench launch` shows the same figures beside the operators'.
Standard output is JSON and nothing else: what compilers and libraries say while it works goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from core.bench.facts import describe
from core.bench.launch import launch_overhead
from core.tuning.json_process import own_output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cuda", help="cuda (default) or cpu")
    parser.add_argument("--rounds", type=int, default=300, help="times each way to launch is sampled (%(default)s)")
    parser.add_argument("--calls", type=int, default=50, help="launches per round; fewer than a driver queues (1024)")
    parser.add_argument("--out", type=Path, help="write JSON here as well")
    options = parser.parse_args()
    answers = own_output()
    document = {
        "environment": describe(options.target),
        **launch_overhead(options.target, options.rounds, options.calls),
    }
    print(f"launched by: {document['launched_by']}", file=sys.stderr)
    text = json.dumps(document, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text, file=answers, flush=True)


if __name__ == "__main__":
    main()
