"""Forms that releases before 0.1.15 traced, rebuilt by hand from today's."""

import tilelang.language as T
from tilelang import tvm

from core.program import Gemm, Program, Store
from core.program.tir.spans import statement_location

tirx = tvm.tirx


@T.prim_func
def product(A: T.Tensor((64, 32), "float16"), B: T.Tensor((16, 32), "float16"), C: T.Tensor((64, 16), "float32")):
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((64, 32), "float16")
        b = T.alloc_shared((16, 32), "float16")
        c = T.alloc_fragment((64, 16), "float32")
        T.copy(A, a)
        T.copy(B, b)
        T.gemm(a, b, c, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullCol)
        T.copy(c, C)


def with_calls(prim_func, name, change):
    """The function with the arguments of every call of `name` replaced by `change(arguments)`."""

    def rewrite(call):
        if getattr(call.op, "name", "") != name:
            return None
        return tirx.Call(call.dtype, call.op, change(list(call.args)))

    body = tirx.stmt_functor.ir_transform(prim_func.body, None, rewrite, ["tirx.Call"])
    return prim_func.with_body(body)


def gemm_of(prim_func) -> Gemm:
    (launch,) = Program(prim_func).view.launches
    (found,) = (stmt for stmt in launch.body if isinstance(stmt, Gemm))
    return found


def test_gemm_with_nineteen_arguments():
    zero = tirx.IntImm("int32", 0)
    one = tirx.IntImm("int32", 1)

    def older(args):
        a, b, c, ta, tb, m, n, k, policy, clear = args[:10]
        strides_and_offsets = [tirx.IntImm("int32", 32), tirx.IntImm("int32", 32), zero, zero]
        return [a, b, c, ta, tb, m, n, k, policy, clear, *strides_and_offsets, one, zero, zero, zero, zero]

    old, new = gemm_of(with_calls(product, "tl.tileop.gemm", older)), gemm_of(product)
    assert len(older([zero] * 13)) == 19
    for field in ("m", "n", "k", "transpose_a", "transpose_b", "policy", "clear"):
        assert getattr(old, field) == getattr(new, field)
    assert (old.m, old.n, old.k, old.transpose_b, old.policy) == (64, 16, 32, True, 2)


def test_gemm_of_another_length_is_opaque():
    changed = with_calls(product, "tl.tileop.gemm", lambda args: args[:11])
    (opaque,) = Program(changed).view.opaque
    assert opaque.operation == "tl.tileop.gemm"


def test_thread_loops_around_the_body():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(2) as b:
            tx = T.get_thread_binding(0)
            A[b * 32 + tx] = tx

    def rewrite(stmt):
        if not isinstance(stmt.value, tirx.Call) or stmt.value.op.name != "tl.launch_thread_idx":
            return None
        return tirx.Evaluate(0)

    thread = None

    def find(node):
        nonlocal thread
        if isinstance(node, tirx.Bind) and thread is None:
            thread = node.var

    tirx.stmt_functor.post_order_visit(main.body, find)
    root = main.body.block
    blocks = root.body
    body = tirx.stmt_functor.ir_transform(blocks.body, None, rewrite, ["tirx.Bind"])
    binding = tirx.IterVar(tvm.ir.Range(0, 32), tirx.Var("threadIdx.x", "int32"), 1, "threadIdx.x")
    threads = tirx.For(thread, 0, 32, tirx.ForKind.THREAD_BINDING, body, binding)
    grid = tirx.For(blocks.loop_var, 0, 2, tirx.ForKind.THREAD_BINDING, threads, blocks.thread_binding)
    (launch,) = Program(main.with_body(grid)).view.launches
    assert launch.threads == (32, 1, 1)
    assert launch.uses_threads
    (store,) = (stmt for stmt in launch.body if isinstance(stmt, Store))
    assert store.guard == ()
    assert statement_location(grid) is None
    assert store.location is not None
