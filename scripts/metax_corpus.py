"""The corpus on MetaX, as the table in docs/metax.md: each kernel compiled, run on the simulator, compared with torch.

    python scripts/metax_corpus.py            # rewrites the table between its markers
    python scripts/metax_corpus.py --check    # fails when the table is not what this run gives

Kernels with 8-bit floats go to C600, which multiplies them; everything else to C500.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PAGE = ROOT / "docs" / "metax.md"
BEGIN, END = "<!-- corpus: begin (scripts/metax_corpus.py) -->", "<!-- corpus: end -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the page instead of writing it")
    check = parser.parse_args().check
    new = f"\n\n{table()}\n"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    old, _, after = rest.partition(END)
    if check:
        if old == new:
            return 0
        print("docs/metax.md is not what the corpus gives: run scripts/metax_corpus.py", file=sys.stderr)
        return 1
    PAGE.write_text(f"{before}{BEGIN}{new}{END}{after}", encoding="utf-8")
    return 0


def table() -> str:
    """Counts by topic, then each kernel that is not right, with the reason."""
    import torch

    import core
    from tests.kernels import TOPICS, all_kernels

    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    gaps: list[tuple[str, str]] = []
    instructions: dict[str, set[str]] = {topic: set() for topic in TOPICS}
    for case in all_kernels():
        total[case.topic] += 1
        target = "metax:c600" if "fp8" in case.name or "float8" in case.name else "metax:c500"
        try:
            kernel = case.compile(target, simulate=True)
            inputs = list(case.inputs(torch.Generator().manual_seed(20)))
            case.check(case.run(kernel, inputs), inputs)
        except core.TileHALError as error:
            gaps.append((case.name, f"{type(error).__name__}: {error.message.splitlines()[0]}"))
            continue
        except AssertionError as error:
            gaps.append((case.name, f"wrong: {str(error).splitlines()[0]}"))
            continue
        right[case.topic] += 1
        source = kernel.get_kernel_source()
        instructions[case.topic] |= {
            i.name.removeprefix("__builtin_mxc_mma_") for i in kernel.chip.matrix_instructions if f"{i.name}(" in source
        }
        print(f"{case.name}: right", file=sys.stderr, flush=True)
    lines = ["| topic | kernels | agree with torch (simulated) | matrix instructions used |", "|---|---|---|---|"]
    for topic in TOPICS:
        used = ", ".join(f"`{name}`" for name in sorted(instructions[topic])) or "none"
        lines.append(f"| {topic} | {total[topic]} | {right[topic]} | {used} |")
    lines.append(f"| **all** | **{sum(total.values())}** | **{sum(right.values())}** | |")
    lines += ["", "Not lowered, and why:", "", "| kernel | reason |", "|---|---|"]
    lines += [f"| `{name}` | {reason.replace('|', '/')} |" for name, reason in gaps]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
