"""Each common source form of TileLang and the nodes it becomes."""

import tilelang.language as T

from core.program import (
    AtomicElement,
    AtomicTile,
    BinaryOp,
    Cast,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Let,
    LoopKind,
    Parallel,
    Program,
    Reduce,
    Scope,
    Store,
    Var,
    VarKind,
    While,
)


def test_grid_threads_and_buffers(launch):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(T.ceildiv(100, 32), 3, threads=128) as (bx, by):
            s = T.alloc_shared((32, 16), "float16")
            f = T.alloc_fragment((32, 16), "float32")
            v = T.alloc_var("int32", init=7)
            T.fill(f, by)
            T.copy(f, s)
            T.copy(s, A[bx * 16 + v, 0])

    found = launch(main)
    assert [(var.name, extent.value) for var, extent in found.grid] == [("bx", 4), ("by", 3)]
    assert found.threads == (128, 1, 1)
    assert not found.uses_threads
    assert {b.name: (b.scope, b.dtype) for b in found.buffers} == {
        "s": (Scope.SHARED, "float16"),
        "f": (Scope.FRAGMENT, "float32"),
        "v": (Scope.VAR, "int32"),
    }


def test_threads_are_absent_when_the_author_gave_none(launch):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            T.fill(A, 0)

    assert launch(main).threads is None


def test_copy_of_a_tile_with_a_tail(lines):
    @T.prim_func
    def main(A: T.Tensor((100, 64), "float16"), B: T.Tensor((100, 64), "float16")):
        with T.Kernel(4, 2, threads=64) as (bx, by):
            s = T.alloc_shared((32, 32), "float16")
            T.copy(A[bx * 32, by * 32], s)
            T.copy(s, B[bx * 32, by * 32])

    assert lines(main) == [
        "copy A[bx * 32:+32, by * 32:+32] -> s[0:+32, 0:+32] guard src[0] else 0.0",
        "copy s[0:+32, 0:+32] -> B[bx * 32:+32, by * 32:+32] guard dst[0]",
    ]


def test_copy_drops_unit_dimensions_and_pairs_the_rest_in_order(launch):
    @T.prim_func
    def main(A: T.Tensor((4, 8, 16), "float16")):
        with T.Kernel(4, threads=32) as b:
            s = T.alloc_shared((8, 16), "float16")
            T.copy(A[b, 0:8, 0:16], s)
            row = T.alloc_fragment((16,), "float16")
            T.copy(s[2, 0:16], row)

    whole, row = (stmt for stmt in launch(main).body if isinstance(stmt, Copy))
    assert (whole.src_dims, whole.dst_dims) == ((1, 2), (0, 1))
    assert (row.src_dims, row.dst_dims) == ((1,), (0,))


def test_copy_of_single_elements_is_a_store(launch):
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((8,), "float32")
            T.clear(x)
            T.copy(x[0], A[0, 0])

    assert isinstance(launch(main).body[-1], Store)


def test_fill_values_are_converted_to_the_buffer(lines):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((8,), "float32")
            h = T.alloc_fragment((8,), "float16")
            T.clear(x)
            T.fill(x, -T.infinity("float32"))
            T.fill(h, 1.5)
            T.fill(x[2], 3)
            T.copy(x, A)

    assert lines(main)[:4] == [
        "fill x[0:+8] = 0.0",
        "fill x[0:+8] = -inf",
        "fill h[0:+8] = float16(1.5)",
        "fill x[2] = 3.0",
    ]


def test_gemm_arguments(launch):
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float16")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((32, 64), "float16")
            b = T.alloc_shared((48, 32), "float16")
            c = T.alloc_fragment((64, 48), "float32")
            for k in T.serial(4):
                T.gemm(
                    a, b, c, transpose_A=True, transpose_B=True, clear_accum=(k == 0), policy=T.GemmWarpPolicy.FullRow
                )

    gemm = launch(main).body[0].body[0]
    assert isinstance(gemm, Gemm)
    assert (gemm.m, gemm.n, gemm.k) == (64, 48, 32)
    assert (gemm.transpose_a, gemm.transpose_b, gemm.policy) == (True, True, 1)
    assert gemm.clear.dtype == "bool"


def test_pipelined_loop_keeps_its_stages(launch):
    @T.prim_func
    def main(A: T.Tensor((64,), "float16")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((16,), "float16")
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[k * 16], s)

    (loop,) = launch(main).body
    assert isinstance(loop, For)
    assert (loop.kind, loop.num_stages) == (LoopKind.PIPELINED, 3)


def test_parallel_loops_merge_and_stores_read_their_operands(lines):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((8, 4), "float32")
            m = T.alloc_fragment((8,), "float32")
            T.clear(x)
            T.clear(m)
            for i, j in T.Parallel(8, 4):
                x[i, j] = T.exp2(x[i, j] * 2.0 - m[i])
            for i, j in T.Parallel(8, 4):
                x[i, j] *= m[i]

    assert lines(main)[2:] == [
        "parallel i < 8, j < 4",
        "x[i, j] = exp2((x[i, j] * 2.0) - m[i])",
        "parallel i_1 < 8, j_1 < 4",
        "x[i_1, j_1] = x[i_1, j_1] * m[i_1]",
    ]


def test_parallel_loops_whose_extents_depend_stay_nested(launch):
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                for j in T.Parallel(i + 1):
                    A[i, j] = 1.0

    (outer,) = launch(main).body
    assert isinstance(outer, Parallel)
    assert len(outer.vars) == 1
    assert isinstance(outer.body[0], Parallel)


def test_reduce(launch):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((8, 16), "float32")
            m = T.alloc_fragment((8,), "float32")
            k = T.alloc_fragment((8, 1), "float32")
            T.clear(x)
            T.clear(m)
            T.reduce_max(x, m, dim=1, clear=False)
            T.reduce_absmax(x, k, dim=-1)

    first, second = launch(main).body[2:]
    assert isinstance(first, Reduce)
    assert (first.kind, first.dim, first.clear) == ("max", 1, False)
    assert (second.kind, second.dim, second.clear) == ("absmax", 1, True)


def test_reduction_of_a_shared_tile_is_staged_and_keeps_the_users_line(launch):
    @T.prim_func
    def main(A: T.Tensor((8, 16), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8, 16), "float32")
            m = T.alloc_shared((8,), "float32")
            T.copy(A, s)
            T.reduce_sum(s, m, dim=1)  # the line asserted below
            T.copy(m, B)

    body = launch(main).body
    assert [type(stmt).__name__ for stmt in body] == ["Copy", "Copy", "Reduce", "Copy", "Copy"]
    first = body[0].location
    assert [stmt.location.line - first.line for stmt in body] == [0, 1, 1, 1, 2]
    assert {stmt.location.file for stmt in body} == {first.file}
    assert first.file.endswith("test_forms.py")


def test_scan_of_a_fragment_goes_through_shared_memory(lines):
    @T.prim_func
    def main(A: T.Tensor((8, 16), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((8, 16), "float32")
            T.copy(A, x)
            T.cumsum(x, dim=1)
            T.copy(x, A)

    assert "scan sum scan_smem[0:+8, 0:+16] dim 1 -> scan_smem[0:+8, 0:+16]" in lines(main)


def test_conditional_expressions_are_lazy_and_select_is_not(lines):
    @T.prim_func
    def main(A: T.Tensor((20,), "float32"), B: T.Tensor((32,), "float32"), n: T.int32):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[i] = T.if_then_else(i < 20, A[i], 0.0)
            for i in T.Parallel(32):
                B[i] = T.Select(i < n, A[i], T.float32(0))

    assert lines(main) == [
        "parallel i < 32",
        "B[i] = choose(i < 20, A[i], 0.0)",
        "parallel i_1 < 32",
        "B[i_1] = select(i_1 < n, A[i_1]?[0], 0.0)",
    ]


def test_branch_conditions_remove_guards(lines):
    @T.prim_func
    def main(A: T.Tensor((100,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            for i in T.Parallel(32):
                if bx * 32 + i < 100:
                    A[bx * 32 + i] = 1.0
                else:
                    A[bx * 32 + i] = 2.0

    assert lines(main) == [
        "parallel i < 32",
        "if ((bx * 32) + i) < 100",
        "A[(bx * 32) + i] = 1.0",
        "else",
        "A[(bx * 32) + i] = 2.0 guard [0]",
    ]


def test_symbolic_sizes_become_symbols():
    M = T.dynamic("M")

    @T.prim_func
    def main(A: T.Tensor((M, 64), "float16"), B: T.Tensor((2 * M, 64), "float16")):
        with T.Kernel(T.ceildiv(M, 128), threads=128) as bx:
            s = T.alloc_shared((128, 64), "float16")
            T.copy(A[bx * 128, 0], s)
            T.copy(s, B[bx * 128, 0])

    program = Program(main)
    (symbol,) = program.view.symbols
    assert (symbol.name, symbol.kind) == ("M", VarKind.SYMBOL)
    assert [argument.shape for argument in program.signature.arguments] == [("M", 64), ("2 * M", 64)]
    (found,) = program.view.launches
    assert found.body[0].src_guard == (0,)


def test_max_promotes_by_the_literal(launch):
    @T.prim_func
    def main(A: T.Tensor((8,), "float16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                A[i] = T.max(A[i], 0)
            for i in T.Parallel(8):
                A[i] = T.max(A[i], 0.0)

    first, second = (loop.body[0].value for loop in launch(main).body)
    assert (first.op, first.dtype) == (BinaryOp.MAX, "float16")
    assert isinstance(second, Cast)
    assert (second.a.op, second.a.dtype) == (BinaryOp.MAX, "float32")


def test_casts(lines):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                B[i] = T.cast(A[i], "float16")
            for i in T.Parallel(8):
                B[i] = A[i].astype("float16")
            for i in T.Parallel(8):
                A[i] = T.float32(B[i]) + T.reinterpret(i, "float32")

    assert [line for line in lines(main) if "=" in line] == [
        "B[i] = float16(A[i])",
        "B[i_1] = float16(A[i_1])",
        "A[i_2] = float32(B[i_2]) + reinterpret_float32(i_2)",
    ]


def test_atomics(launch):
    @T.prim_func
    def main(out: T.Tensor((8, 8), "float32"), P: T.Tensor((8,), "int32")):
        with T.Kernel(4, threads=32) as b:
            x = T.alloc_fragment((4, 8), "float32")
            T.fill(x, 1)
            T.atomic_add(out[b * 4, 0], x)
            for i in T.Parallel(8):
                T.atomic_max(P[i], i)
            old = T.atomic_add(P[0], 1, return_prev=True)
            P[1] = old

    _, tile, loop, let, _ = launch(main).body
    assert isinstance(tile, AtomicTile)
    assert (tile.kind, tile.guard, tile.dst_dims) == ("add", (0,), (0, 1))
    assert isinstance(loop.body[0], AtomicElement)
    assert loop.body[0].kind == "max"
    assert (let.value.kind, let.value.dtype) == ("add", "int32")


def test_scheduling_attributes_become_annotations(launch):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(4, 4, threads=32) as (bx, by):
            s = T.alloc_shared((16, 16), "float16")
            T.use_swizzle(8)
            T.annotate_layout({s: T.Layout(s.shape, lambda i, j: (j, i))})
            T.copy(A[bx * 16, by * 16], s)

    found = launch(main)
    assert [type(stmt) for stmt in found.body] == [Copy]
    assert "rasterization2DRow" in found.annotations["swizzle"]
    assert list(found.annotations["layout_map"]) == ["s"]


def test_local_variables_are_stores_and_plain_names_are_lets(launch):
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(4, threads=32) as bx:
            v = T.alloc_var("int32", init=0)
            v += 1
            y = bx * 2
            A[y] = v

    first, second, let, store = launch(main).body
    assert isinstance(first, Store)
    assert first.buffer.scope is Scope.VAR
    assert isinstance(second, Store)
    assert isinstance(let, Let)
    assert let.var.kind is VarKind.LET
    assert isinstance(store, Store)


def test_reshape_is_another_buffer_of_the_same_storage(launch):
    @T.prim_func
    def main(A: T.Tensor((8, 4), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8, 4), "float32")
            flat = T.reshape(s, (32,))
            bits = T.view(s, (8, 4), "int32")
            T.copy(A, s)
            flat[3] = 1.0
            bits[0, 0] = 5

    found = launch(main)
    assert [b.name for b in found.buffers] == ["s", "flat", "bits"]
    assert len({id(b.storage) for b in found.buffers}) == 1
    assert [b.dtype for b in found.buffers] == ["float32", "float32", "int32"]


def test_eager_outputs():
    import tilelang

    @tilelang.jit
    def add(A, B):
        N = T.const("N")
        A: T.Tensor((N,), "float32")
        B: T.Tensor((N,), "float32")
        C = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
            for i in T.Parallel(64):
                C[bx * 64 + i] = A[bx * 64 + i] + B[bx * 64 + i]
        return C

    program = Program(add.get_tir(N=100))
    assert program.outputs == (2,)
    assert program.signature.outputs == (2,)
    assert [a.is_output for a in program.signature.arguments] == [False, False, True]
    assert [(a.reads, a.writes) for a in program.signature.arguments] == [(True, False), (True, False), (False, True)]


def test_stepped_loops(lines):
    @T.prim_func
    def main(A: T.Tensor((10,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.serial(1, 10, 3):
                A[i] = i
            for i in T.unroll(4):
                A[i] = i
            for i in range(2, 5):
                A[i] = i

    assert lines(main) == [
        "for i_tmp from 0 times 3 serial",
        "let i: int32 = 1 + (i_tmp * 3)",
        "A[i] = i",
        "for i_1 from 0 times 4 unrolled",
        "A[i_1] = i_1",
        "for i_2 from 2 times 3 serial",
        "A[i_2] = i_2",
    ]


def test_while_break_continue(launch):
    @T.prim_func
    def main(A: T.Tensor((10,), "int32")):
        with T.Kernel(1, threads=32):
            v = T.alloc_var("int32", init=0)
            while v < 10:
                v += 1
                if v == 3:
                    continue
                if v == 7:
                    break
                A[v] = v

    loop = launch(main).body[1]
    assert isinstance(loop, While)
    assert [type(s.then[0]).__name__ for s in loop.body if isinstance(s, If)] == ["Continue", "Break"]


def test_gathered_rows_have_loads_in_their_mins(lines):
    @T.prim_func
    def main(B: T.Tensor((100, 64), "float16"), rows: T.Tensor((8,), "int32"), C: T.Tensor((8, 64), "float16")):
        with T.Kernel(8, threads=32) as bx:
            r = T.alloc_fragment((64,), "float16")
            T.copy(B[rows[bx], 0:64], r)
            T.copy(r, C[bx, 0:64])

    assert lines(main)[0] == "copy B[rows[bx], 0:+64] -> r[0:+64] guard src[0] else 0.0"


def test_persistent_binds_its_indices_inside_the_loop(lines):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32")):
        with T.Kernel(3, threads=32) as w:
            for bx, by in T.Persistent([4, 4], 3, w):
                A[bx, by] = 1.0

    loop, *rest = lines(main)
    assert loop.startswith("for")
    assert [line.split(":")[0].split("_")[0] for line in rest[:2]] == ["let by", "let bx"]


def test_slice_assignment_is_a_parallel_loop(lines):
    @T.prim_func
    def main(A: T.Tensor((8, 16), "float32")):
        with T.Kernel(8, threads=32) as bx:
            x = T.alloc_fragment((4,), "float32")
            x[0:4] = A[bx, 4:8]
            A[bx, 0:4] = x[0:4]

    assert lines(main) == [
        "parallel lane < 4",
        "x[lane] = A[bx, 4 + lane]",
        "parallel lane_1 < 4",
        "A[bx, lane_1] = x[lane_1]",
    ]


def test_reading_a_thread_index_makes_per_thread_code(launch):
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(2, threads=32) as bx:
            tx = T.get_thread_binding(0)
            A[bx * 32 + tx] = tx

    found = launch(main)
    assert found.uses_threads
    assert found.body[-1].guard == ()


def test_print_of_a_tile_is_not_per_thread_code(launch):
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((4,), "float32")
            T.copy(A, s)
            T.print(s)
            T.print(s[0], msg="first")

    found = launch(main)
    assert not found.uses_threads
    assert [type(s).__name__ for s in found.body] == ["Copy", "For", "Let", "Print"]


def test_unknown_calls_are_opaque_with_their_line():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            T.call_extern("handle", "vendor_magic", A.data)
            A[0] = T.call_extern("float32", "vendor_value", 1)

    view = Program(main).view
    statement, expression = view.opaque
    assert statement.operation == "call_extern vendor_magic"
    assert statement.location.line > 0
    assert expression.operation == "tirx.call_extern"
    assert view.parameters[0].reads
    assert view.parameters[0].writes


def test_what_touches_a_dialects_own_memory_is_opaque():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            near = T.alloc_shared((8,), "float32", scope="shared.l1")
            T.copy(A, near)
            T.fill(near, 0)
            near[0] = 1
            A[0] = near[1]

    view = Program(main).view
    assert [node.operation for node in view.opaque] == [
        "tl.tileop.copy",
        "tl.tileop.fill",
        "BufferStore",
        "load from shared.l1",
    ]


def test_several_launches_some_of_them_conditional():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), n: T.int32):
        with T.Kernel(1, threads=32):
            T.fill(A, 1)
        if n > 3:
            with T.Kernel(2, threads=64) as b:
                T.fill(A[b * 32 : b * 32 + 32], 2)

    view = Program(main).view
    assert [type(stmt).__name__ for stmt in view.body] == ["Launch", "If"]
    assert [launch.threads for launch in view.launches] == [(32, 1, 1), (64, 1, 1)]


def test_host_assertion():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), n: T.int32):
        assert n > 0, "n must be positive"
        with T.Kernel(1, threads=32):
            T.fill(A, n)

    check = Program(main).view.body[0]
    assert (type(check).__name__, check.on_device) == ("Assert", False)
    assert "n must be positive" in check.message


def test_names_are_identifiers_and_unique(launch):
    @T.prim_func
    def main(float: T.Tensor((8,), "float32"), integers: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                float[i] = integers[i]
            for i in T.Parallel(8):
                float[i] = integers[i]

    view = Program(main).view
    assert [p.name for p in view.parameters] == ["float_", "integers"]
    first, second = (loop.vars[0] for loop in view.launches[0].body)
    assert isinstance(first, Var)
    assert first.name != second.name


def test_fill_of_a_slice(launch):
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(8, threads=32) as b:
            T.fill(A[b, 2:6], 1)

    (fill,) = launch(main).body
    assert isinstance(fill, Fill)
    assert [e.value for e in fill.dst.extents] == [1, 4]
    assert fill.guard == ()


def test_variables_compare_by_identity():
    first, second = Var("int32", "i", VarKind.LOOP), Var("int32", "i", VarKind.LOOP)
    assert first != second
    assert len({first, second}) == 2
