"""Small kernels for the cache's tests, and a way to run the cache in other processes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from core.compiler.artifacts import BuiltKernel, LoweredKernel, Resources, Toolchain
from core.runtime.signature import ScalarArgument, Signature, TensorArgument


def key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def lowered_kernel(name: str = "softmax", target: str = "cpu:here", source: str = "void softmax() {}") -> LoweredKernel:
    return LoweredKernel(
        target=target,
        route="cpp",
        language="c++",
        source=source,
        entry_points=(name,),
        signature=Signature(
            name,
            (
                TensorArgument("A", "float16", ("M", 128), writes=False),
                TensorArgument("C", "float16", ("M", 128), ("2*M", 1), is_output=True, reads=False, writes=True),
                ScalarArgument("scale", "float32"),
            ),
            symbols=("M",),
            outputs=(1,),
        ),
        grid=(("(M + 7)//8", "1"),),
        block=((128, 1, 1),),
        resources=Resources(memory_bytes={"cache": 4096}, threads=128, flops=1.5e9),
        rewrites=("reduce over a slice: copied first",),
        attachments={"include/helper.h": b"#define X\r\n", "table": bytes(range(256))},
        metadata={"nested": {"list": [1, 2.5, None, True, "x"]}},
    )


def builder(lowered: LoweredKernel, content: bytes = b"ELF") -> Callable[[Path], BuiltKernel]:
    """A build that writes one library and a source file, and counts its calls in `builder.calls`."""

    def make(folder: Path) -> BuiltKernel:
        (folder / "kernel.so").write_bytes(content)
        (folder / "src").mkdir()
        (folder / "src" / "kernel.cpp").write_text(lowered.source)
        return BuiltKernel(
            lowered=lowered,
            toolchain=Toolchain("g++", "12.2", "/usr/bin/g++", ("g++", "-o", f"{folder}/kernel.so")),
            files={"library": "kernel.so"},
            directory=folder,
            resources=Resources(threads=1, stack_bytes=64),
            metadata={"symbol": "run"},
        )

    return make


def never(*_: object) -> LoweredKernel:
    raise AssertionError("it must come from the cache")


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Runs `code` in a process of its own, where everything here is imported and `arguments` are strings in `args`."""
    prelude = "import sys, os, time\nfrom pathlib import Path\nfrom tests.compiler.cache_samples import *\n"
    prelude += "from core.compiler.cache import Cache\nargs = sys.argv[1:]\n"
    return subprocess.Popen(
        [sys.executable, "-c", prelude + textwrap.dedent(code), *map(str, arguments)],
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], status: int = 0) -> str:
    """What the process printed; it must end with `status`."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    return out
