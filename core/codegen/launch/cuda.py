"""A launch plan for the CUDA driver as C: one function that queues every launch of a kernel on a stream.

The same text serves the launches of this process and exported kernels. Whatever can be told while generating is: which
launches need a condition, a bound or an attribute, and which numbers are constants.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.codegen.launch.expressions import to_c
from core.codegen.launch.values import Values, c_type
from core.runtime.plan import (
    LARGEST_INT32_SIZE,
    WORKSPACE_ALIGNMENT,
    Argument,
    DeviceLaunch,
    DriverPlan,
    TensorMap,
    names_of,
    passed_as_int32,
)
from core.runtime.signature import Signature, TensorArgument

#: CUDA 12.0 brought tensor maps and launches with attributes that clusters need; the rest is older.
_DRIVER_FOR_MAPS = 12000
_DRIVER = 11040
#: Encoded tensor maps each thread keeps, per map of the kernel.
_KEPT_MAPS = 4


def required_driver(plan: DriverPlan) -> int:
    """Oldest CUDA version the driver must support, as the driver counts it (12000 is 12.0)."""
    special = any(launch.cluster or launch.programmatic or launch.cooperative for launch in plan.launches)
    return _DRIVER_FOR_MAPS if plan.maps or special else _DRIVER


def capability(arch: str) -> tuple[int, bool]:
    """`sm_90a` as (90, True): compute capability, and whether the binary runs on exactly that one."""
    text = arch.removeprefix("sm_")
    digits = text.rstrip("af")
    return int(digits), text.endswith("a")


def launch_source(signature: Signature, plan: DriverPlan, limits: Sequence[int], arch: str) -> str:
    """C with `tilehal_values`, `tilehal_entries` and `tilehal_launch(device, stream, values)`.

    Args:
        limits: most blocks along each axis of a grid.
        arch: what the binary was built for (`sm_90a`).

    Raises:
        UnusablePlan: a scalar has no C type, or an expression names something unknown.
    """
    values = Values(signature)
    plan.check(values.names)
    number, exact = capability(arch)
    parts = [
        f"#define TILEHAL_LAUNCHES {len(plan.launches)}\n",
        f"#define TILEHAL_DRIVER {required_driver(plan)}\n",
        f"#define TILEHAL_CAPABILITY {number}\n#define TILEHAL_EXACT {int(exact)}\n",
        "#define TILEHAL_WORKSPACES\n" if plan.workspaces else "",
        '#include "launch.h"\n\n',
        values.structure(),
        _entries(plan),
        *(_map_function(index, item, signature, values) for index, item in enumerate(plan.maps)),
        _launch_function(signature, plan, values, limits),
    ]
    return "".join(parts)


def _entries(plan: DriverPlan) -> str:
    rows = []
    for launch in plan.launches:
        shared = launch.shared_bytes if launch.shared_bytes.isdigit() else "-1"
        rows.append(f'    {{"{launch.function}", {shared}, {int(launch.cluster is not None)}}},\n')
    return f"static const tilehal_entry tilehal_entries[] = {{\n{''.join(rows)}}};\n\n"


def _map_function(index: int, item: TensorMap, signature: Signature, values: Values) -> str:
    """A function that gives the encoded map: it depends on the address and the symbolic dimensions only."""
    name = "scratch memory" if item.of_workspace else signature.arguments[item.tensor].name
    address = "data" if item.of_workspace else f"v->p{item.tensor}"
    texts = (*item.dims, *item.strides, *item.box, *item.element_strides)
    used = set().union(*(names_of(text, values.names) for text in texts))
    fields = sorted(values.names[name] for name in used)
    key = ", ".join([f"(uint64_t)(uintptr_t){address}", *(f"(uint64_t){field}" for field in fields)])

    def array(kind: str, label: str, items: Sequence[str | int]) -> str:
        rendered = ", ".join(f"({kind}){to_c(text, values.names)}" for text in items) or "0"
        return f"    const {kind} {label}[] = {{{rendered}}};\n"

    body = array("uint64_t", "dims", item.dims) + array("uint64_t", "strides", item.strides)
    body += array("uint32_t", "steps", item.element_strides)
    tail = f"steps, {item.interleave}, {item.swizzle}, {item.l2_promotion}, {item.out_of_bounds}"
    head = f"&kept->map, {item.data_type}, {item.rank}, {address}, dims, strides"
    if item.lower is not None and item.upper is not None:
        body += array("int", "lower", item.lower) + array("int", "upper", item.upper)
        encode = f"im2col({head}, lower, upper, {item.channels}, {item.pixels}, {tail})"
    else:
        body += array("uint32_t", "box", item.box)
        encode = f"tiled({head}, box, {tail})"
    count = 1 + len(fields)
    return (
        f"static const tilehal_map *tilehal_map_{index}({_map_parameters(item)}) {{\n"
        f"    static __thread struct {{ uint64_t key[{count}]; tilehal_map map; }} cache[{_KEPT_MAPS}], *kept;\n"
        "    static __thread unsigned next;\n"
        f"    const uint64_t key[] = {{{key}}};\n"
        f"    for (int i = 0; i < {_KEPT_MAPS}; ++i) {{\n"
        "        if (memcmp(cache[i].key, key, sizeof key) == 0) return &cache[i].map;\n"
        "    }\n"
        f"    kept = &cache[next++ % {_KEPT_MAPS}];\n"
        "    memset(kept->key, 0, sizeof kept->key);\n"
        f"{body}"
        f"    const int code = tilehal_driver.{encode};\n"
        "    if (code != 0) {\n"
        f'        tilehal_fail_map(code, "{name}", {address}, {item.rank}, dims, strides);\n'
        "        return NULL;\n"
        "    }\n"
        "    memcpy(kept->key, key, sizeof key);\n"
        "    return &kept->map;\n"
        "}\n\n"
    )


def _map_parameters(item: TensorMap) -> str:
    return f"const tilehal_values *v{', void *data' if item.of_workspace else ''}"


def _launch_function(signature: Signature, plan: DriverPlan, values: Values, limits: Sequence[int]) -> str:
    lines = _alignment(signature)
    for name in passed_as_int32(plan, values.symbols):
        message = f'"{name} is too large: the kernel counts it in 32 bits, up to {LARGEST_INT32_SIZE}"'
        test = f"{values.names[name]} > {LARGEST_INT32_SIZE}"
        lines.append(f"if ({test}) return tilehal_fail(TILEHAL_WRONG_ARGUMENT, {message});")
    for number, launch in enumerate(plan.launches):
        lines += _grid(number, launch, values, limits)
    used = sorted({a.index for launch in plan.launches for a in launch.arguments if a.kind == "map"})
    every = " && ".join(f"!go{number}" for number in range(len(plan.launches)))
    if (used or plan.workspaces) and every:
        lines.append(f"if ({every}) return 0;")
    # What is allocated is given back whatever happens in between.
    failed = "code = {0};" if plan.workspaces else "return {0};"
    lines += _workspaces(plan, values) if plan.workspaces else ["int code = 0;"]
    for index in used:
        data = f", w{plan.maps[index].tensor}" if plan.maps[index].of_workspace else ""
        lines.append(f"const tilehal_map *map{index} = tilehal_map_{index}(v{data});")
        lines.append(f"if (map{index} == NULL) {failed.format('TILEHAL_WRONG_ARGUMENT')}")
    for number, launch in enumerate(plan.launches):
        lines.append(f"if ({'code == 0 && ' if plan.workspaces else ''}go{number}) {{")
        lines += [f"    {line}" for line in _one_launch(number, launch, values, failed)]
        lines.append("}")
    lines.append("return tilehal_give_back(scratch, stream, code);" if plan.workspaces else "return 0;")
    body = "".join(f"    {line}\n" for line in lines)
    unused = "" if values.count else "    (void)v;\n"
    return (
        "static int tilehal_launch(tilehal_device *device, void *stream, const tilehal_values *v) {\n"
        f"{unused}{body}}}\n"
    )


def _workspaces(plan: DriverPlan, values: Values) -> list[str]:
    """One allocation, each workspace at a multiple of WORKSPACE_ALIGNMENT in it; declares `code`."""
    lines = []
    end = "0"
    for index, text in enumerate(plan.workspaces):
        lines.append(f"const int64_t at{index} = {end};")
        lines.append(f"const int64_t bytes{index} = {to_c(text, values.names)};")
        rounded = f"(bytes{index} + {WORKSPACE_ALIGNMENT - 1}) / {WORKSPACE_ALIGNMENT} * {WORKSPACE_ALIGNMENT}"
        end = f"at{index} + {rounded}"
    lines.append("char *scratch = NULL;")
    lines.append(f"int code = tilehal_scratch(device, stream, {end}, &scratch);")
    lines.append("if (code != 0) return code;")
    lines += [f"void *w{index} = scratch + at{index};" for index in range(len(plan.workspaces))]
    return lines


def _alignment(signature: Signature) -> list[str]:
    """One test for all addresses of an alignment; which of them it is, is asked only when one is wrong."""
    wanted: dict[int, list[int]] = {}
    for index, argument in enumerate(signature.arguments):
        if isinstance(argument, TensorArgument) and argument.alignment > 1:
            wanted.setdefault(argument.alignment, []).append(index)
    lines = []
    for alignment, indices in sorted(wanted.items()):
        together = " | ".join(f"(uintptr_t)v->p{index}" for index in indices)
        each = [f'tilehal_misaligned("{signature.arguments[i].name}", v->p{i}, {alignment})' for i in indices]
        lines.append(
            f"if ((({together}) & {alignment - 1}) != 0 && ({' || '.join(each)})) return TILEHAL_WRONG_ARGUMENT;"
        )
    return lines


def _grid(number: int, launch: DeviceLaunch, values: Values, limits: Sequence[int]) -> list[str]:
    """Extents, whether there is anything to launch, and what the chip does not launch; before the first launch."""
    lines = [
        f"const int64_t {axis}{number} = {to_c(text, values.names)};"
        for axis, text in zip("xyz", launch.grid, strict=True)
    ]
    tests = [to_c(text, values.names) for text in launch.conditions]
    tests += [
        f"{axis}{number} > 0" for axis, text in zip("xyz", launch.grid, strict=True) if not text.lstrip("-").isdigit()
    ]
    lines.append(f"const int go{number} = {' && '.join(tests) or '1'};")
    for axis, text, limit in zip("xyz", launch.grid, limits, strict=False):
        if not text.isdigit() or int(text) > limit:
            message = f'"%lld blocks along grid axis {axis}, the chip launches {limit}"'
            lines += [
                f"if (go{number} && {axis}{number} > {to_c(limit, {})}) {{",
                f"    snprintf(tilehal_error, sizeof tilehal_error, {message}, (long long){axis}{number});",
                "    return TILEHAL_WRONG_ARGUMENT;",
                "}",
            ]
    return lines


def _one_launch(number: int, launch: DeviceLaunch, values: Values, failed: str) -> list[str]:
    lines: list[str] = []
    pointers = []
    for position, argument in enumerate(launch.arguments):
        pointers.append(_pointer(position, argument, values, lines))
    lines.append(f"void *arguments[] = {{{', '.join(pointers) or 'NULL'}}};")
    block = ", ".join(f"(uint32_t)({to_c(text, values.names)})" for text in launch.block)
    grid = ", ".join(f"(uint32_t){axis}{number}" for axis in "xyz")
    shared = f"(uint32_t)({to_c(launch.shared_bytes, values.names)})"
    attributes = [f"{{{which}, 0, {{{{{', '.join(map(str, value))}}}}}}}" for which, value in launch.attributes]
    function = f"device->functions[{number}]"
    if attributes:
        lines.append(f"tilehal_attribute attributes[] = {{{', '.join(attributes)}}};")
        fields = f"{{{grid}}}, {{{block}}}, {shared}, stream, attributes, {len(attributes)}"
        lines.append(f"const tilehal_config config = {{{fields}}};")
        lines.append(f"code = tilehal_driver.launch_config(&config, {function}, arguments, NULL);")
    else:
        lines.append(f"code = tilehal_driver.launch({function}, {grid}, {block}, {shared}, stream, arguments, NULL);")
    fault = f'tilehal_fail(code, "launching {launch.function}")'
    lines.append(f"if (code != 0) {failed.format(fault)}")
    return lines


def _pointer(position: int, argument: Argument, values: Values, lines: list[str]) -> str:
    if argument.kind == "map":
        return f"(void *)map{argument.index}"
    if argument.kind == "tensor":
        return f"(void *)&v->p{argument.index}"
    if argument.kind == "workspace":
        return f"(void *)&w{argument.index}"
    # TVM hands a bool over in 32 bits, which serves an entry point that reads one byte as well.
    kind = "int32_t" if argument.dtype == "bool" else c_type(argument.dtype)
    lines.append(f"const {kind} a{position} = ({kind}){to_c(argument.value, values.names)};")
    return f"(void *)&a{position}"
