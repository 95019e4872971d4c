"""What a `chips.toml` may say where a word is one of a closed list: dtypes, scopes, features, figures of `cost`."""

from __future__ import annotations

_FLOAT8 = ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")

#: Types of a matrix instruction's operands. `tfloat32` is float32 rounded by the instruction.
DTYPES = (
    *("float64", "float32", "tfloat32", "float16", "bfloat16"),
    *(f"float8_{encoding}" for encoding in _FLOAT8),
    *("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
    *("int64", "int32", "int16", "int8", "int4", "uint64", "uint32", "uint16", "uint8", "uint4", "bool"),
)
#: Types of a rate: those, and a width that stands for all encodings of it.
RATE_DTYPES = (*DTYPES, "float8", "float6", "float4")

#: TileLang's scopes up to the first dot: what follows it is the vendor's (`shared.l1`).
SCOPES = ("global", "shared", "fragment", "local", "reducer", "var")

#: Feature -> what a chip with it can do. A vendor's further ones are declared in its file, under `vendor_features`.
FEATURES = {
    "async_copy": "copies from global to shared memory while threads go on",
    "clusters": "blocks that run together on neighbouring units",
    "cross_core_sync": "units of different kinds wait for each other",
    "distributed_shared_memory": "a block reads the shared memory of another one of its cluster",
    "fp4_matrix": "matrix products of 4-bit floats",
    "fp8_matrix": "matrix products of 8-bit floats",
    "fp64_matrix": "matrix products of 64-bit floats",
    "ldmatrix": "a wave loads a matrix operand from shared memory in the layout of its instruction",
    "programmatic_launch": "a launch begins before the one ahead of it has ended",
    "setmaxnreg": "waves hand registers to others of their block",
    "split_cores": "matrix and vector work run on cores of their own",
    "tcgen05": "matrix products that accumulate in tensor memory",
    "tma": "a unit of its own copies tiles between global and shared memory",
    "wgmma": "matrix products that a group of waves issues, with operands in shared memory",
}

#: Figures of the cost model that a chip may give of itself (docs/cost-model.md says what each is).
COST_FIGURES = (
    *("launch_s", "block_start_s", "memory_latency_s", "l2_latency_s", "shared_latency_s", "barrier_s"),
    *("product_latency_s", "memory_share", "matrix_share", "wave_matrix_share", "l2_ratio", "l2_port_bytes_per_cycle"),
    *("l2_reuse_share", "vector_cost_special", "vector_cost_divide", "vector_cost_convert", "vector_cost_index"),
    "vector_cost_shuffle",
    *("issue_waves", "in_flight_contexts", "load_sharpness", "cluster_s", "memory_line_bytes", "in_step_blocks"),
    *("in_step_passes", "register_overhead", "register_temporaries", "sector_bytes", "copy_threads", "copy_registers"),
    "shared_granule_bytes",
)

#: Keys under `codegen` that TileHAL itself reads. Further ones are the backend's own.
CODEGEN_KEYS = ("arch", "tvm_kind", "triple", "plans_memory", "synchronous_copies", "emulates_float8")
