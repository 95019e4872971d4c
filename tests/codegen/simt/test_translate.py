"""A dialect is applied to tokens, over a closed vocabulary: what it does not know is refused by name."""

from __future__ import annotations

import pytest

from core.codegen.simt import STOCK
from core.codegen.simt.translate import UncoveredName, translate

HEADER = 'extern "C" __global__ void __launch_bounds__(64) k(float* __restrict__ A, int n) {\n'


def body(text: str, **options: bool) -> str:
    dialect = STOCK.with_names(barriers={"__syncthreads": "team_wait"})
    return translate(HEADER + text + "\n}\n", dialect, entry_points=["k"], **options).body


def refused(text: str) -> list[str]:
    with pytest.raises(UncoveredName) as caught:
        body(text)
    return [item.name for item in caught.value.found]


def test_names_are_replaced_and_nothing_else_is_touched() -> None:
    text = body('  __syncthreads();  // __syncthreads\n  A[0] = "__syncthreads" ? 1.0f : 2.0f;')
    assert "  team_wait();  // __syncthreads\n" in text
    assert '"__syncthreads"' in text


def test_a_longer_name_that_contains_a_known_one_is_another_name() -> None:
    assert refused("  __syncthreads_or(1);") == ["__syncthreads_or"]


def test_a_variable_may_be_called_like_anything_foreign() -> None:
    assert "int hipster = n;" in body("  int hipster = n;\n  A[hipster] = 0.0f;")


def test_a_member_may_be_called_like_anything_foreign() -> None:
    assert "v.hip" in body("  float4 v;\n  A[0] = v.hip;")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("  A[0] = __builtin_amdgcn_rcpf(A[0]);", "__builtin_amdgcn_rcpf"),
        ("  hipDeviceSynchronize();", "hipDeviceSynchronize"),
        ("  rocwmma::fill(A);", "rocwmma::fill"),
        ('  asm volatile("s_nop 0");', "asm"),
        ('  __asm__ volatile("");', "__asm__"),
        ("  A[0] = users_own(A[0]);", "users_own"),
        ("  mystery_t x;", "mystery_t"),
    ],
)
def test_what_the_dialect_does_not_cover_is_named(text: str, name: str) -> None:
    assert refused(text)[0] == name


def test_all_foreign_names_are_reported_once_with_their_neighbours() -> None:
    with pytest.raises(UncoveredName) as caught:
        body("  A[n] = one(two(A[n]));\n  A[0] = one(1.0f);")
    found = caught.value.found
    assert [item.name for item in found] == ["one", "two"]
    assert {"A", "n"} <= found[0].neighbours
    assert found[0].line == 2


def test_approximate_functions_are_meant_only_with_fast_math() -> None:
    assert "A[0] = expf(A[0]);" in body("  A[0] = __expf(A[0]);")
    assert "A[0] = __expf(A[0]);" in body("  A[0] = __expf(A[0]);", fast_math=True)


def test_rounding_is_to_even() -> None:
    assert "nearbyintf(A[0])" in body("  A[0] = roundf(A[0]);")


def test_a_vector_made_by_its_constructor_is_made_by_a_function() -> None:
    text = body("  float4 v = float4(1.0f, 2.0f, 3.0f, 4.0f);\n  v = (float4)(v);")
    assert "float4 v = make_float4(1.0f" in text
    assert "(float4)(v)" in text


def test_headers_follow_from_what_is_used() -> None:
    plain = translate(HEADER + "}\n", STOCK, entry_points=["k"])
    atomic = translate(HEADER + "  AtomicAdd((&(A[0])), 1.0f);\n}\n", STOCK, entry_points=["k"])
    assert plain.headers == ()
    assert atomic.headers == ("tilehal/simt/atomic.h",)


def test_the_stock_headers_are_dropped() -> None:
    text = "#include <hip/hip_runtime.h>\n#include <tl_templates/hip/gemm.h>\n" + HEADER + "#pragma unroll\n}\n"
    translated = translate(text, STOCK, entry_points=["k"]).body
    assert "hip" not in translated
    assert "#pragma unroll" in translated
