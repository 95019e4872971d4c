"""A kernel's source is the same text in every process: nothing of it hangs on addresses or on hash seeds."""

import json
import os
import subprocess
import sys
from pathlib import Path

TARGETS = ["metax:c500", "cuda:h200", "cpu", "ascend:910b3"]
OPERATORS = {
    "softmax.softmax": {"M": 5, "N": 65},
    "rmsnorm.add_rmsnorm": {"M": 5, "N": 33},
    "gemm.gemm": {"M": 65, "N": 33, "K": 127},
    "conv2d.conv2d": {"batch": 1, "height": 9, "width": 7, "channels": 16, "filters": 24, "size": 3},
    "activations.gated_activation": {"M": 5, "N": 65},
    "grouped_gemm.grouped_gemm": {"groups": 2, "M": 33, "N": 65, "K": 64},
    # Reductions whose workspaces TileLang gives one name.
    "attention.attention": {"batch": 1, "heads": 2, "kv_heads": 1, "M": 33, "N": 65, "dim": 64},
    "mla.mla_decode": {"batch": 1, "M": 16, "N": 65, "dim": 64, "rope": 16},
}
#: What a process runs; it prints the source of each operator for each target.
PROGRAM = """
import json, sys
from importlib import import_module

targets, operators = json.loads(sys.argv[1])
sources = {}
for name, arguments in operators.items():
    module, _, factory = name.rpartition(".")
    compile = getattr(import_module(f"core.ops.{module}"), factory).compile
    for target in targets:
        sources[f"{name} for {target}"] = compile(**arguments, target=target, build=False).get_kernel_source()
print(json.dumps(sources))
"""


def test_two_processes_generate_the_same_sources(tmp_path: Path) -> None:
    asked = json.dumps([TARGETS, OPERATORS])
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, asked],
            # Each has a cache of its own, so that none is given what another has made.
            env={**os.environ, "PYTHONHASHSEED": seed, "TILEHAL_CACHE_DIR": str(tmp_path / seed)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1")
    ]
    printed = [process.communicate(timeout=600)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    first, second = (json.loads(text.splitlines()[-1]) for text in printed)
    assert len(first) == len(TARGETS) * len(OPERATORS)
    assert [name for name in first if second[name] != first[name]] == []
