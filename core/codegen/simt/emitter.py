"""Matrix products as TIR: fragment layouts and loads from an instruction's lane layouts, and calls that issue it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.codegen.simt.matrix import MatrixPlan, Product, choose
from core.errors import TileHALError, UnsupportedOp


class MatrixEmitter:
    """Lowers the products of one compilation; implements `core._tilelang.GemmEmitter`.

    Products it cannot do were replaced by loops before lowering, so that :func:`choose` answers with a plan here.
    """

    def __init__(self, chip: Any, *, allow_tf32: bool, dense_operands: bool = False) -> None:
        self._chip = chip
        self._allow_tf32 = allow_tf32
        #: Whether shared operands stay row-major: asynchronous copies write them in lane order.
        self._dense_operands = dense_operands
        #: Plans used so far, by the function that issues their instruction.
        self.plans: dict[str, MatrixPlan] = {}
        #: The first typed error, which the pipeline may wrap beyond recognition.
        self.error: TileHALError | None = None

    def infer_layout(self, gemm: Any, threads: int) -> dict[Any, Any]:
        """Fragments get the instruction's layout, shared operands a swizzled one that avoids bank conflicts."""
        from tilelang.layout import make_swizzled_layout
        from tilelang.utils.language import is_fragment

        plan = self._plan(gemm, threads)
        layouts = {gemm.C: self._accumulator(plan, gemm.C)}
        for name, buffer, transposed in (("a", gemm.A, bool(gemm.trans_A)), ("b", gemm.B, bool(gemm.trans_B))):
            if is_fragment(buffer):
                layouts[buffer] = self._operand(plan, name, buffer, transposed)
            elif not self._dense_operands:
                layouts[buffer] = make_swizzled_layout(buffer)
        return layouts

    def lower(self, gemm: Any, thread_index: Any, threads: int) -> Any:
        """Loops over k: load both operands' registers from shared memory, then issue the instructions."""
        from tilelang import language as T
        from tilelang.transform.simplify import _Simplify
        from tilelang.utils.language import is_fragment

        plan = self._plan(gemm, threads)
        self.plans[plan.function] = plan
        a_in_registers, b_in_registers = is_fragment(gemm.A), is_fragment(gemm.B)
        a_count, b_count = plan.layout("a").elements_per_lane, plan.layout("b").elements_per_lane
        c_count = plan.layout("c").elements_per_lane
        rows, columns, steps = plan.rows, plan.columns, plan.steps
        lane = thread_index % plan.wave_lanes
        wave = thread_index // plan.wave_lanes
        wave_m, wave_n = wave % plan.waves_m, wave // plan.waves_m % plan.waves_n
        a_read = self._reader(plan, "a", gemm.ARegion, bool(gemm.trans_A), lane, wave_m * rows)
        b_read = self._reader(plan, "b", gemm.BRegion, bool(gemm.trans_B), lane, wave_n * columns)
        a_vector, b_vector = self._contiguous(plan, "a", gemm.trans_A), self._contiguous(plan, "b", gemm.trans_B)
        a_loop, b_loop = (T.vectorized if vector else T.serial for vector in (a_vector, b_vector))
        function, swapped = plan.function, plan.swapped
        A, B, C, clear = gemm.A, gemm.B, gemm.C, gemm.clear_accum
        a_dtype, b_dtype = str(gemm.a_dtype), str(gemm.b_dtype)

        def issue(a: Any, a_first: Any, b: Any, b_first: Any, c_first: Any) -> Any:
            left, right = (b, b_first), (a, a_first)
            if not swapped:
                left, right = right, left
            return T.call_extern("handle", function, C.data, c_first, left[0], left[1], right[0], right[1])

        @T.macro
        def load_a(registers: Any, step: Any) -> None:
            for tile in T.serial(rows):
                for i in a_loop(a_count):
                    registers[tile * a_count + i] = a_read(tile, step, i)

        @T.macro
        def load_b(registers: Any, step: Any) -> None:
            for tile in T.serial(columns):
                for i in b_loop(b_count):
                    registers[tile * b_count + i] = b_read(tile, step, i)

        @T.macro
        def multiply(a: Any, b: Any, a_base: Any, b_base: Any) -> None:
            for i, j in T.grid(rows, columns):
                T.evaluate(issue(a, (a_base + i) * a_count, b, (b_base + j) * b_count, (i * columns + j) * c_count))

        if a_in_registers and b_in_registers:

            @T.prim_func
            def product() -> None:
                if clear:
                    T.clear(C)
                for step in T.serial(steps):
                    multiply(A.data, B.data, step * rows, step * columns)

        elif a_in_registers:

            @T.prim_func
            def product() -> None:
                B_local = T.alloc_local((columns * b_count,), b_dtype)
                if clear:
                    T.clear(C)
                for step in T.serial(steps):
                    load_b(B_local, step)
                    multiply(A.data, B_local.data, step * rows, 0)

        elif b_in_registers:

            @T.prim_func
            def product() -> None:
                A_local = T.alloc_local((rows * a_count,), a_dtype)
                if clear:
                    T.clear(C)
                for step in T.serial(steps):
                    load_a(A_local, step)
                    multiply(A_local.data, B.data, 0, step * columns)

        else:

            @T.prim_func
            def product() -> None:
                A_local = T.alloc_local((rows * a_count,), a_dtype)
                B_local = T.alloc_local((columns * b_count,), b_dtype)
                if clear:
                    T.clear(C)
                for step in T.serial(steps):
                    load_a(A_local, step)
                    load_b(B_local, step)
                    multiply(A_local.data, B_local.data, 0, 0)

        return _Simplify(product, inline_let=True)

    # ------------------------------------------------------------------------------------------------- choice

    def _plan(self, gemm: Any, threads: int) -> MatrixPlan:
        product = Product(
            str(gemm.a_dtype), str(gemm.b_dtype), str(gemm.accum_dtype), int(gemm.M), int(gemm.N), int(gemm.K)
        )
        plan = choose(self._chip, product, threads, policy_of(gemm.policy), allow_tf32=self._allow_tf32)
        if isinstance(plan, str):
            self.error = self.error or UnsupportedOp(f"T.gemm: {plan}", hint="use a tile the instructions divide")
            raise self.error
        return plan

    # ------------------------------------------------------------------------------------------------- layouts

    def _accumulator(self, plan: MatrixPlan, buffer: Any) -> Any:
        from tilelang.layout import Fragment

        place = _inverse(plan, "c")

        def forward(*indices: Any) -> tuple[Any, Any]:
            row, column = indices[-2], indices[-1]
            height, width = plan.rows * plan.tile_m, plan.columns * plan.tile_n
            lane, register = place(row % plan.tile_m, column % plan.tile_n)
            tile = (row % height) // plan.tile_m * plan.columns + (column % width) // plan.tile_n
            wave = row // height + column // width * plan.waves_m
            return lane + wave * plan.wave_lanes, tile * plan.layout("c").elements_per_lane + register

        return Fragment([int(extent) for extent in buffer.shape], forward_fn=forward)

    def _operand(self, plan: MatrixPlan, name: str, buffer: Any, transposed: bool) -> Any:
        """Every wave that shares a row (of A) or column (of B) of waves holds a copy of it."""
        from tilelang.layout import Fragment

        place = _inverse(plan, name)
        is_a = name == "a"
        tile, count = (plan.tile_m, plan.rows) if is_a else (plan.tile_n, plan.columns)
        copies = plan.waves_n if is_a else plan.waves_m
        elements = plan.layout(name).elements_per_lane
        step_k = plan.instruction.k

        def spatial_and_k(*indices: Any) -> tuple[Any, Any]:
            first, second = indices[-2], indices[-1]
            return (first, second) if is_a != transposed else (second, first)

        def thread(*indices: Any) -> Any:
            indices, copy = (indices[:-1], indices[-1]) if copies > 1 else (indices, 0)
            spatial, k = spatial_and_k(*indices)
            lane = place(*_matrix_order(is_a, spatial % tile, k % step_k))[0]
            along = spatial // (tile * count)
            wave = along + copy * plan.waves_m if is_a else copy + along * plan.waves_m
            return lane + wave * plan.wave_lanes

        def register(*indices: Any) -> Any:
            spatial, k = spatial_and_k(*indices)
            inside = place(*_matrix_order(is_a, spatial % tile, k % step_k))[1]
            return (k // step_k * count + spatial % (tile * count) // tile) * elements + inside

        shape = [int(extent) for extent in buffer.shape]
        return Fragment(shape, forward_thread_fn=thread, forward_index_fn=register, replicate=copies)

    def _reader(
        self, plan: MatrixPlan, name: str, region: Any, transposed: bool, lane: Any, first_tile: Any
    ) -> Callable[[Any, Any, Any], Any]:
        """Element i of the lane, for an instruction tile along m or n and a step along k, as a load."""
        *leading, outer, inner = region.region
        is_a = name == "a"
        tile_extent = plan.tile_m if is_a else plan.tile_n

        def read(tile: Any, step: Any, i: Any) -> Any:
            spatial, k = _spatial_and_k(plan, name, lane, i)
            spatial, k = (first_tile + tile) * tile_extent + spatial, step * plan.instruction.k + k
            row, column = (spatial, k) if is_a != transposed else (k, spatial)
            return region.buffer[(*(r.min for r in leading), outer.min + row, inner.min + column)]

        return read

    def _contiguous(self, plan: MatrixPlan, name: str, transposed: Any) -> bool:
        """Whether a lane's elements are neighbours in a row of the operand's tile in memory."""
        if plan.layout(name).elements_per_lane < 2:
            return False
        (s0, k0), (s1, k1) = _spatial_and_k(plan, name, 0, 0), _spatial_and_k(plan, name, 0, 1)
        k_is_inner = (name == "a") != bool(transposed)
        return (s1 - s0, k1 - k0) == ((0, 1) if k_is_inner else (1, 0))


def policy_of(policy: Any) -> int:
    """0 square, 1 full row, 2 full column of TileLang's warp policy object."""
    return int(getattr(policy, "policy_type", policy))


def _matrix_order(is_a: bool, spatial: Any, k: Any) -> tuple[Any, Any]:
    """(row, column) in the kernel's A (m, k) or B (k, n)."""
    return (spatial, k) if is_a else (k, spatial)


def _element(plan: MatrixPlan, name: str, lane: Any, i: Any) -> tuple[Any, Any]:
    """(row, column) of the kernel's operand that register i of a lane holds."""
    row, column = plan.layout(name).element(lane, i)
    return (column, row) if plan.swapped else (row, column)


def _spatial_and_k(plan: MatrixPlan, name: str, lane: Any, i: Any) -> tuple[Any, Any]:
    row, column = _element(plan, name, lane, i)
    return (row, column) if name == "a" else (column, row)


def _inverse(plan: MatrixPlan, name: str) -> Callable[[Any, Any], tuple[Any, Any]]:
    """(row, column) of the kernel's operand -> (lane, register).

    Raises:
        UnsupportedOp: the layout cannot be inverted, so it is no arrangement of a matrix over lanes and registers.
    """
    from tvm import ir
    from tvm.tirx import IndexMap

    def forward(lane: Any, i: Any) -> list[Any]:
        return list(_element(plan, name, lane, i))

    index_map = IndexMap.from_func(forward, index_dtype="int32")
    lanes = [ir.Range(0, plan.wave_lanes), ir.Range(0, plan.layout(name).elements_per_lane)]
    try:
        inverse = index_map.inverse(lanes)
    except Exception as error:
        raise UnsupportedOp(
            f"the lane layout of operand {name} of {plan.instruction.name} cannot be inverted: {error}",
            hint="check the layout in the chip's descriptor",
        ) from error

    def place(row: Any, column: Any) -> tuple[Any, Any]:
        lane, register = inverse.map_indices([row, column])
        return lane, register

    return place
