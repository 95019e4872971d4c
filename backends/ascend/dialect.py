"""What Huawei's compiler (AscendNPU-IR) wants: arguments, attributes, and its own spelling of three operations.

Found by compiling with `ascendnpu-ir` 1.2.0; docs/ascend.md has the table.
"""

from __future__ import annotations

from core.codegen import mlir
from core.codegen.mlir import Argument, Builder, FunctionFacts, MemRef, Scalar, TileDialect, Value
from core.errors import Location, UnsupportedOp

#: Atomic kinds that `hivm.hir.store` takes.
_ATOMICS = {"add": "add", "max": "max", "min": "min", "or": "or"}


class AscendDialect(TileDialect):
    """Modules for `bishengir-compile` and `bishengir-compile-a5`."""

    name = "Ascend tile operations"
    #: The runtime counts blocks in 16 bits.
    max_blocks = 65535
    vendor_attributes = (
        r"\{tt\.divisibility = 16 : i32, tt\.tensor_kind = \d : i32\}",
        r'SyncBlockLockArgIdx = 0 : i64, WorkspaceArgIdx = 1 : i64, global_kernel = "local", '
        r'mix_mode = "\w+", parallel_mode = "simd"',
        r'\{input_precison = "ieee"\}',
    )

    def leading_arguments(self) -> tuple[Argument, ...]:
        memory = MemRef((None,), Scalar("i8"))
        return (Argument("lock", "sync_block_lock", memory), Argument("workspace", "workspace", memory))

    def tensor_attributes(self, *, reads: bool, writes: bool) -> str:
        kind = 0 if not writes else 2 if reads else 1
        return f"{{tt.divisibility = 16 : i32, tt.tensor_kind = {kind} : i32}}"

    def function_attributes(self, facts: FunctionFacts) -> str:
        mode = "mix" if facts.matmuls else "aiv"
        return (
            'SyncBlockLockArgIdx = 0 : i64, WorkspaceArgIdx = 1 : i64, global_kernel = "local", '
            f'mix_mode = "{mode}", parallel_mode = "simd"'
        )

    def check_dtype(self, dtype: str, location: Location | None) -> None:
        if dtype == "float64":
            raise UnsupportedOp(
                "float64: the Ascend compiler has no 64-bit floats",
                hint="compute in float32, or compile this kernel for cpu or cuda",
                location=location,
            )

    def matmul(self, b: Builder, x: Value, y: Value, total: Value) -> Value:
        # The attribute really is spelled so; without it float32 operands may be multiplied in a narrower type.
        return mlir.matmul(b, x, y, total, '{input_precison = "ieee"} ')

    def atomic(self, b: Builder, kind: str, value: Value, memory: Value) -> None:
        if kind not in _ATOMICS:
            raise UnsupportedOp(
                f"atomic {kind} has no operation on Ascend",
                hint=f"use one of {', '.join(_ATOMICS)}",
                location=b.location,
            )
        b.add(
            f"hivm.hir.store ins({value.name} : {value.type}) outs({memory.name} : {memory.type}) "
            f"atomic = <{_ATOMICS[kind]}>"
        )

    def cumulative_sum(self, b: Builder, value: Value, dim: int, *, reverse: bool) -> Value | None:
        text = f"hfusion.cumsum {value.name} : {value.type} cum_dims = [{dim}] reverse = {str(reverse).lower()}"
        return b.add(f"{text} -> {value.type}", value.type)
