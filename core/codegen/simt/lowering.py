"""The SIMT wave family: TileLang's own pipeline and code generator for a chip the wheel does not know.

legalise -> products without an instruction become loops -> loops get their stages -> stock pipeline, with products
lowered to the chip's matrix instructions -> stock code generator -> the vendor's language, token by token.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import _tilelang
from core.codegen.alignment import with_alignments
from core.codegen.simt.arrays import align_arrays
from core.codegen.simt.dialect import Dialect
from core.codegen.simt.emitter import MatrixEmitter
from core.codegen.simt.fma import replace_products
from core.codegen.simt.locate import barrier_line, user_line
from core.codegen.simt.matrix import Product, choose, function_source
from core.codegen.simt.pipelining import stage_loops
from core.codegen.simt.refusals import check, unresolved
from core.codegen.simt.translate import Translated, UncoveredName, translate
from core.compiler.artifacts import CompileOptions, LoweredKernel
from core.errors import TileHALError, UnsupportedOp
from core.program.nodes import Gemm
from core.program.walk import statements

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.program import Program
    from core.runtime.signature import Signature

#: Threads of a block when the kernel gives none; TileLang's default.
_DEFAULT_THREADS = 128


def include_folder() -> Path:
    """Folder of the headers `tilehal/simt/*.h` that translated kernels include."""
    return Path(__file__).with_name("include")


#: Options of a SIMT backend (`options=`): see `lower`.
OPTIONS = ("aligned_rows", "async_copy", "simulator", "tf32")


def lower(program: Program, chip: Chip, options: CompileOptions, *, dialect: Dialect) -> LoweredKernel:
    """Lowers a program for a chip that runs waves of threads.

    Options (`options.backend`): `async_copy` makes pipelined copies asynchronous, where the chip has them, into tiles
    that are not swizzled; `tf32` allows float32 products to round their operands.

    Raises:
        UnsupportedOp: the chip's wave width is unknown or none the pipeline knows, TileLang refused the kernel, a
            barrier waits for a part of a block, or the generated code uses something that the dialect does not cover
            (named, with the user's line).
    """
    from core.codegen.tir import effective, legalise
    from core.compiler.messages import translate as translate_error

    lanes = _wave_lanes(chip)
    async_copy = _async_copy(chip, options, lanes)
    check(program, chip)
    legal = legalise(program, chip, options)
    rewrites = list(legal.rewrites)
    options.check_backend(chip.vendor, OPTIONS)
    allow_tf32 = options.fast_math or bool(options.backend.get("tf32"))
    prim_func, reasons = replace_products(legal.prim_func, _reason(program, chip, allow_tf32))
    rewrites += [f"{reasons.count(why)} gemm(s) as multiply-add loops: {why}" for why in dict.fromkeys(reasons)]
    sequential = list(legal.sequential)
    if not async_copy:
        staged = stage_loops(prim_func)
        prim_func = staged.prim_func
        if staged.staged:
            rewrites.append(f"{staged.staged} loop(s) pipelined with synchronous copies: stages assigned by TileHAL")
        sequential += staged.refused
    emitter = MatrixEmitter(chip, allow_tf32=allow_tf32, dense_operands=async_copy)
    try:
        modules = _tilelang.lower_simt(
            prim_func,
            wave_lanes=lanes,
            async_copy=async_copy,
            emitter=emitter,
            pass_configs={**legal.pass_configs, **options.pass_configs},
        )
    except TileHALError:
        raise
    except _tilelang.UnreadableHost as error:
        raise UnsupportedOp(
            f"{program.name}: the host side of the kernel cannot be launched by {chip.vendor}'s runtime: {error}",
            location=program.location,
        ) from error
    except Exception as error:
        if emitter.error is not None:
            raise emitter.error from error
        unknown = unresolved(program, chip, error)
        if unknown is not None:
            raise unknown from error
        raise translate_error(
            error,
            fallback=UnsupportedOp,
            stage=f"lowering {program.name} for {chip.target}",
            location=program.location,
            view=program.view,
        ) from error
    _check_barriers(modules, program, chip)
    names = tuple(function.name for function in modules.functions)
    translated = _translate(align_arrays(modules.source), dialect, names, emitter, options, program, chip)
    changed = {stock: vendor for stock, vendor in translated.rewritten.items() if stock != vendor}
    if changed:
        rewrites.append(f"{dialect.name} dialect: " + ", ".join(f"{a} -> {b}" for a, b in sorted(changed.items())))
    source = _source(translated, dialect, emitter, chip, lanes, async_copy, program.name)
    dynamic = _dynamic_shared(modules.functions)
    static = _static_shared(translated.body)
    threads = max(f.threads[0] * f.threads[1] * f.threads[2] for f in modules.functions)
    predicted = program.footprint().resources(chip)
    memory = {} if dynamic is None else {"shared": dynamic + static}
    return LoweredKernel(
        target=chip.target,
        route="simt-wave",
        language=dialect.name,
        source=source,
        entry_points=names,
        signature=_aligned(program.signature, modules, source),
        grid=tuple(f.grid for f in modules.functions),
        block=tuple(f.threads for f in modules.functions),
        resources=replace(
            predicted,
            memory_bytes=memory,
            dynamic_shared_bytes=dynamic,
            static_shared_bytes=static,
            threads=threads,
        ),
        rewrites=tuple(rewrites),
        metadata={
            "functions": [asdict(function) for function in modules.functions],
            "plan": asdict(modules.plan),
            "effective": effective(
                program.view, prim_func, sequential, [f.threads for f in modules.functions], assigned=not async_copy
            ),
            "relaxations": legal.relaxations,
            "wave_lanes": lanes,
            "matrix_instructions": sorted({plan.instruction.name for plan in emitter.plans.values()}),
            "architecture": _architecture(chip),
        },
    )


def _check_barriers(modules: _tilelang.SimtModules, program: Program, chip: Chip) -> None:
    """Refuses a barrier of some of a block's threads: printed as one of them all, it hangs or lets threads through."""
    if modules.partial_barriers:
        barrier = modules.partial_barriers[0]
        raise UnsupportedOp(
            f"{program.name}: a barrier of {barrier.count} of the block's {barrier.threads} threads; {chip.target} has"
            " barriers of the whole block only",
            hint="let all threads of the block reach one T.sync_threads(), outside of the branch",
            location=barrier_line(program, barrier.count),
        )


def _aligned(signature: Signature, modules: _tilelang.SimtModules, source: str) -> Signature:
    """The signature with what the device code demands of addresses."""

    def position(text: str) -> int | None:
        kind, _, index = text.partition(":")
        return int(index) if kind == "tensor" and index else None

    entries = {step.function: [position(text) for text in step.arguments] for step in modules.plan.steps}
    return with_alignments(signature, source, entries)


def _wave_lanes(chip: Chip) -> int:
    lanes = chip.main_unit.lanes_per_wave if chip.units else None
    known = _tilelang.supported_wave_lanes()
    if lanes is None:
        raise UnsupportedOp(
            f"{chip.target}: the width of its waves is unknown, so nothing can be compiled for it",
            hint="compile for a chip of the same vendor that is fully described",
        )
    if lanes not in known:
        raise UnsupportedOp(
            f"{chip.target}: waves of {lanes} lanes; the SIMT family lowers for {', '.join(map(str, known))}"
        )
    return lanes


def _async_copy(chip: Chip, options: CompileOptions, lanes: int) -> bool:
    if not options.backend.get("async_copy"):
        return False
    if "async_copy" not in chip.features or lanes != 64:
        raise UnsupportedOp(
            f"{chip.target} has no asynchronous copies from global to shared memory", hint="leave out async_copy"
        )
    return True


def _reason(program: Program, chip: Chip, allow_tf32: bool) -> Any:
    """Why a product cannot use the matrix unit, for every block size in which the program multiplies."""
    sizes = set()
    for launch in program.view.launches:
        if any(isinstance(stmt, Gemm) for stmt in statements(launch)):
            threads = launch.threads or (_DEFAULT_THREADS, 1, 1)
            sizes.add(threads[0] * threads[1] * threads[2])

    def reason(product: Product, policy: int, whole_accumulator: bool) -> str | None:
        if not whole_accumulator:
            return "the accumulator is a part of a buffer"
        for threads in sorted(sizes):
            plan = choose(chip, product, threads, policy, allow_tf32=allow_tf32)
            if isinstance(plan, str):
                return plan
        return None

    return reason


def _translate(
    source: str,
    dialect: Dialect,
    names: tuple[str, ...],
    emitter: MatrixEmitter,
    options: CompileOptions,
    program: Program,
    chip: Chip,
) -> Translated:
    try:
        return translate(
            source, dialect, entry_points=names, generated=tuple(emitter.plans), fast_math=options.fast_math
        )
    except UncoveredName as error:
        first = error.found[0]
        others = ", ".join(item.name for item in error.found[1:])
        raise UnsupportedOp(
            f"{program.name} uses {first.name}, which {chip.target} has no equivalent of in {dialect.name}"
            + (f" (and {others})" if others else ""),
            hint="rewrite the statement without it, or add it to the dialect's tables",
            location=user_line(program, first),
            details={"names": [item.name for item in error.found], "dialect": dialect.name},
        ) from error


def _source(
    translated: Translated,
    dialect: Dialect,
    emitter: MatrixEmitter,
    chip: Chip,
    lanes: int,
    async_copy: bool,
    name: str,
) -> str:
    """The whole file: what it is for, headers, the matrix functions it uses, the kernels."""
    headers = [*dialect.headers, *translated.headers]
    functions = [function_source(plan, dialect, _architecture(chip)) for plan in emitter.plans.values()]
    if any("tilehal::e" in text for text in functions) and "tilehal/simt/fp8.h" not in headers:
        headers.append("tilehal/simt/fp8.h")
    return "\n".join(
        [
            f"// {name} for {chip.target}, generated by TileHAL.",
            f"#define TILEHAL_WAVE_LANES {lanes}",
            f"#define TILEHAL_ASYNC_COPY {int(async_copy)}",
            *(f"#include <{header}>" for header in headers),
            "",
            *functions,
            translated.body,
        ]
    )


def _architecture(chip: Chip) -> str:
    return str(chip.codegen.get("arch", chip.architecture or chip.name))


def _dynamic_shared(functions: tuple[_tilelang.DeviceFunction, ...]) -> int | None:
    sizes = [function.dynamic_shared_bytes for function in functions]
    return None if any(size is None for size in sizes) else max(size for size in sizes if size is not None)


_SIZES = {"char": 1, "uchar": 1, "half_t": 2, "bfloat16_t": 2, "short": 2, "ushort": 2, "int": 4, "uint": 4, "float": 4}


def _static_shared(body: str) -> int:
    """Bytes of the `__shared__` arrays with a size, the most of any kernel: workspaces of reductions."""
    import re

    most = 0
    for kernel in body.split("__global__"):
        arrays = re.findall(
            r"(?<!extern )__shared__\s+(?:__align__\(\d+\)\s+)?(?:unsigned |signed )?(\w+) \w+\[(\d+)\]", kernel
        )
        most = max(most, sum(_SIZES.get(kind, 8) * int(count) for kind, count in arrays))
    return most
