"""From a rewritten module to LLVM IR, with the vendor's `bishengir-opt` and upstream's `mlir-translate`."""

from __future__ import annotations

import re
from pathlib import Path

from backends.ascend.simulator.rewrite import rewrite_buffers, rewrite_divisions
from backends.ascend.simulator.tools import opt_program, translate_program
from core.compiler import run_tool

#: Tensors to memory. One-shot bufferization keeps a loop's tensors in place where nothing else reads them.
BUFFERIZE = (
    "--convert-elementwise-to-linalg",
    "--linalg-fuse-elementwise-ops",
    "--one-shot-bufferize=allow-return-allocs-from-loops",
    "--buffer-deallocation-pipeline",
)
#: Memory and loops to the LLVM dialect. Arithmetic on bfloat16 is done in float32 and rounded after each operation, in
#: integers, because few CPUs have it and those that have flush subnormals; functions of 16-bit floats likewise.
LOWER = (
    "--convert-linalg-to-loops",
    "--expand-strided-metadata",
    "--lower-affine",
    "--convert-scf-to-cf",
    "--math-legalize-to-f32",
    "--arith-emulate-unsupported-floats=source-types=bf16 target-type=f32",
    "--arith-expand=include-bf16=true",
    "--convert-math-to-llvm",
    "--convert-math-to-libm",
    "--convert-arith-to-llvm",
    "--finalize-memref-to-llvm",
    "--convert-func-to-llvm",
    "--convert-cf-to-llvm",
    "--reconcile-unrealized-casts",
)
#: An attribute that LLVM 19 prints on declarations of libm functions and later versions spell otherwise.
_MEMORY_EFFECTS = re.compile(r"memory(?:_effects)? = #llvm\.memory_effects<[^>]*>,? ?")
#: What functions of 16-bit floats are given on the way to float32 and back. A conversion contracts with nothing, and
#: the LLVM dialect does not know the attribute.
_FAST_CONVERSION = re.compile(r"(llvm\.fp(?:ext|trunc) %\w+) \{fastmath = #arith\.fastmath<contract>\}")
_TIMEOUT_S = 300.0


def to_llvm_ir(module: str, folder: Path, *, verbose: bool = False) -> tuple[str, tuple[str, ...]]:
    """LLVM IR of a module without vendor operations, and the rewriting rules applied on the way.

    The stages stay in `folder`: what the tools were given is there when one of them fails.

    Raises:
        ToolchainNotFound: what to install.
        BuildFailed: a tool refused the module; its message, command and input.
    """
    opt, translate = opt_program(), translate_program()
    bufferized = _run([*opt.command, "module.mlir", *BUFFERIZE], "module.mlir", module, folder, verbose)
    buffers = rewrite_buffers(bufferized)
    lowered = _run([*opt.command, "buffers.mlir", *LOWER], "buffers.mlir", buffers.text, folder, verbose)
    lowered = _FAST_CONVERSION.sub(r"\1", _MEMORY_EFFECTS.sub("", lowered))
    ir = _run([*translate.command, "--mlir-to-llvmir", "llvm.mlir"], "llvm.mlir", lowered, folder, verbose)
    divisions = rewrite_divisions(ir)
    return divisions.text, (*buffers.rules, *divisions.rules)


def _run(command: list[str], name: str, text: str, folder: Path, verbose: bool) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    result = run_tool(
        command,
        cwd=folder,
        timeout_s=_TIMEOUT_S,
        source=folder / name,
        purpose="lower a module for the simulator",
        verbose=verbose,
    )
    return result.stdout
