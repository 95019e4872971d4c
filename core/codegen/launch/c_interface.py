"""The C interface of an exported kernel: a header, and one source file that loads and launches it.

Both depend on the C library only; the CUDA driver is opened by name when the kernel is loaded. The launch is the same
generated text that this process calls for the kernel itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.codegen.launch.cpu import call_source
from core.codegen.launch.cuda import launch_source
from core.codegen.launch.values import c_type
from core.runtime.plan import DriverPlan
from core.runtime.signature import ScalarArgument, Signature, TensorArgument

_RESERVED = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while kernel device "
    "stream directory threads class new delete this template namespace bool true false".split()
)


@dataclass(frozen=True, slots=True)
class BinaryFile:
    """The binary beside the source, as the loader checks it: `hash` is FNV-1a in 64 bits."""

    name: str
    size: int
    hash: int


def fnv1a(content: bytes) -> int:
    """FNV-1a in 64 bits (http://www.isthe.com/chongo/tech/comp/fnv/): finds damage, not malice."""
    value = 0xCBF29CE484222325
    for byte in content:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def c_name(name: str) -> str:
    """A kernel's name as a C identifier."""
    found = re.sub(r"\W", "_", name)
    return f"{found}_" if found in _RESERVED or not found or found[0].isdigit() else found


class _Interface:
    def __init__(self, signature: Signature, title: str) -> None:
        self.signature = signature
        self.title = title
        self.name = c_name(signature.name)
        self.names: list[str] = []
        for name in (*(a.name for a in signature.arguments), *signature.symbols):
            wanted = c_name(name)
            while wanted in self.names:
                wanted += "_"
            self.names.append(wanted)

    def parameters(self) -> str:
        """The parameters of the launch: device, stream, every parameter of the kernel, symbolic dimensions."""
        parts = [f"{self.name}_kernel *kernel", "int device", "void *stream"]
        for name, argument in zip(self.names, self.signature.arguments, strict=False):
            if isinstance(argument, TensorArgument):
                parts.append(f"{'' if argument.writes else 'const '}void *{name}")
            else:
                parts.append(f"{c_type(argument.dtype)} {name}")
        parts += [f"int64_t {name}" for name in self.names[len(self.signature.arguments) :]]
        return ", ".join(parts)

    def comment(self) -> str:
        lines = []
        for name, argument in zip(self.names, self.signature.arguments, strict=False):
            if isinstance(argument, ScalarArgument):
                lines.append(f"//   {name}: a number, {argument.dtype}")
                continue
            shape = ", ".join(map(str, argument.shape)) + ("," if len(argument.shape) == 1 else "")
            layout = "packed row by row"
            if argument.strides is not None:
                layout = f"strides in elements ({', '.join(map(str, argument.strides))})"
            if argument.alignment > 1:
                layout += f", from a multiple of {argument.alignment} bytes"
            access = "written" if argument.writes and not argument.reads else "read"
            access = "read and written" if argument.writes and argument.reads else access
            lines.append(f"//   {name}: {argument.dtype} ({shape}), {layout}, {access}")
        lines += [f"//   {name}: a size in the shapes above" for name in self.names[len(self.signature.arguments) :]]
        return "\n".join(lines)

    def header(self, device: str, extra: str = "") -> str:
        guard = f"TILEHAL_{self.name.upper()}_H"
        return (
            f"// {self.title}\n"
            f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n\n"
            '#ifdef __cplusplus\nextern "C" {\n#endif\n\n'
            f"typedef struct {self.name}_kernel {self.name}_kernel;\n\n"
            "// Every function gives 0, or a code that is not; this is what it means, in the thread that got it.\n"
            f"const char *{self.name}_error(void);\n\n"
            "// Loads the kernel from the folder it was exported to, or a copy. The folder is not needed afterwards.\n"
            f"int {self.name}_load({self.name}_kernel **kernel, const char *directory);\n\n"
            f"// {device}\n"
            f"{self.comment()}\n"
            f"int {self.name}_launch({self.parameters()});\n\n"
            f"{extra}"
            "// The kernel must not be running any more.\n"
            f"void {self.name}_unload({self.name}_kernel *kernel);\n\n"
            "#ifdef __cplusplus\n}\n#endif\n\n#endif\n"
        )

    def values(self) -> str:
        """The statement that collects a launch's parameters."""
        fields = []
        for index, argument in enumerate(self.signature.arguments):
            cast = "(void *)" if isinstance(argument, TensorArgument) else ""
            fields.append(f"{cast}{self.names[index]}")
        fields += self.names[len(self.signature.arguments) :]
        return f"const tilehal_values values = {{{', '.join(fields) or '0'}}};"


def cuda_interface(
    signature: Signature, plan: DriverPlan, limits: Sequence[int], arch: str, title: str, binary: BinaryFile
) -> tuple[str, str]:
    """Header and source for a kernel on CUDA devices, the source with `#include`s of this package's headers.

    Raises:
        UnusablePlan: a scalar has no C type.
    """
    interface = _Interface(signature, title)
    name = interface.name
    header = interface.header(
        "Queues the kernel on a device (its index) and a stream (a CUstream or cudaStream_t); asynchronous. Pointers\n"
        "// are to memory of that device."
    )
    source = (
        f"// {title}\n// Compile it with any C compiler; link with -ldl and -lpthread where they are separate.\n"
        f'#include "{name}.h"\n\n'
        f"{launch_source(signature, plan, limits, arch)}\n"
        '#include "exported.h"\n\n'
        "#define TILEHAL_DEVICES 32\n\n"
        f"struct {name}_kernel {{\n    char *image;\n    pthread_mutex_t loading;\n"
        "    tilehal_device devices[TILEHAL_DEVICES];\n};\n\n"
        f"const char *{name}_error(void) {{ return tilehal_error; }}\n\n"
        f"int {name}_load({name}_kernel **kernel, const char *directory) {{\n"
        "    *kernel = NULL;\n"
        f"    {name}_kernel *made = ({name}_kernel *)calloc(1, sizeof *made);\n"
        '    if (made == NULL) return tilehal_damaged(directory, "cannot be loaded: no memory");\n'
        "    pthread_mutex_init(&made->loading, NULL);\n"
        "    int code = tilehal_open_driver(TILEHAL_DRIVER);\n"
        f'    if (code == 0) code = tilehal_read_file(directory, "{binary.name}", {binary.size}, '
        f"UINT64_C({binary.hash:#x}), &made->image);\n"
        "    if (code != 0) { free(made); return code; }\n"
        "    *kernel = made;\n"
        "    return 0;\n}\n\n"
        f"int {name}_launch({interface.parameters()}) {{\n"
        f"    {interface.values()}\n"
        "    int code = 0, pushed;\n"
        "    if (device < 0 || device >= TILEHAL_DEVICES) {\n"
        '        return tilehal_fail(TILEHAL_WRONG_ARGUMENT, "a device index out of range");\n'
        "    }\n"
        "    tilehal_device *on = &kernel->devices[device];\n"
        "    if (!__atomic_load_n(&on->ready, __ATOMIC_ACQUIRE)) {\n"
        "        pthread_mutex_lock(&kernel->loading);\n"
        "        if (!on->ready) {\n"
        "            code = tilehal_load(on, device, kernel->image, TILEHAL_CAPABILITY, TILEHAL_EXACT, "
        "tilehal_entries);\n"
        "        }\n"
        "        pthread_mutex_unlock(&kernel->loading);\n"
        "        if (code != 0) return code;\n"
        "    }\n"
        "    code = tilehal_enter(on, stream, &pushed);\n"
        "    if (code != 0) return code;\n"
        "    code = tilehal_launch(on, stream, &values);\n"
        "    tilehal_leave(pushed);\n"
        "    return code;\n}\n\n"
        f"void {name}_unload({name}_kernel *kernel) {{\n"
        "    if (kernel == NULL) return;\n"
        "    for (int i = 0; i < TILEHAL_DEVICES; ++i) tilehal_unload(&kernel->devices[i]);\n"
        "    pthread_mutex_destroy(&kernel->loading);\n"
        "    free(kernel->image);\n    free(kernel);\n}\n"
    )
    return header, source


def cpu_interface(
    signature: Signature, function: str, types: Sequence[str], set_threads: str, title: str, binary: BinaryFile
) -> tuple[str, str]:
    """Header and source for a kernel on the CPU: the same interface, with device and stream unused.

    Args:
        function: the kernel's C function in the library, and the dtypes of its arguments.
        set_threads: the library's function that takes the number of threads.

    Raises:
        UnusablePlan: an argument has no C type.
    """
    interface = _Interface(signature, title)
    name = interface.name
    threads = (
        "// How many threads the kernel may use; 1 at first.\n"
        f"void {name}_set_threads({name}_kernel *kernel, int threads);\n\n"
    )
    header = interface.header(
        "Runs the kernel; returns when it has ended. Device and stream are not looked at, so that a program is the\n"
        "// same for every chip.",
        threads,
    )
    source = (
        f"// {title}\n// Compile it with any C compiler; link with -ldl and -lpthread where they are separate.\n"
        f'#include "{name}.h"\n\n'
        "#include <dlfcn.h>\n#include <stdio.h>\n\n"
        f"{call_source(signature, types)}"
        "#define TILEHAL_DAMAGED (-4)\n"
        '#include "exported.h"\n\n'
        f"struct {name}_kernel {{ void *library, *entry; }};\n\n"
        f"const char *{name}_error(void) {{ return tilehal_error; }}\n\n"
        f"int {name}_load({name}_kernel **kernel, const char *directory) {{\n"
        "    char path[4096], *content = NULL;\n"
        "    *kernel = NULL;\n"
        f'    const int code = tilehal_read_file(directory, "{binary.name}", {binary.size}, '
        f"UINT64_C({binary.hash:#x}), &content);\n"
        "    if (code != 0) return code;\n"
        "    free(content);\n"
        f'    snprintf(path, sizeof path, "%s%s/{binary.name}", strchr(directory, \'/\') ? "" : "./", directory);\n'
        "    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);\n"
        "    if (library == NULL) return tilehal_damaged(path, dlerror());\n"
        f'    void *entry = dlsym(library, "{function}");\n'
        f"    {name}_kernel *made = entry != NULL ? ({name}_kernel *)calloc(1, sizeof *made) : NULL;\n"
        '    if (made == NULL) { dlclose(library); return tilehal_damaged(path, "lacks the kernel"); }\n'
        "    made->library = library;\n    made->entry = entry;\n    *kernel = made;\n"
        "    return 0;\n}\n\n"
        f"int {name}_launch({interface.parameters()}) {{\n"
        f"    {interface.values()}\n"
        "    (void)device; (void)stream;\n"
        "    const char *failed = tilehal_launch(kernel->entry, &values);\n"
        "    if (failed == NULL) return 0;\n"
        '    if (failed != tilehal_error) snprintf(tilehal_error, sizeof tilehal_error, "%s", failed);\n'
        "    return TILEHAL_WRONG_ARGUMENT;\n}\n\n"
        f"void {name}_set_threads({name}_kernel *kernel, int threads) {{\n"
        "    typedef struct { int32_t kind; uint32_t padding; union { int64_t number; void *pointer; } value; } slot;\n"
        "    const slot arguments[] = {{4, 0, {0}}, {1, 0, {threads}}};\n"
        "    slot result;\n"
        f"    int (*set)(void *, const slot *, int32_t, slot *) = (int (*)(void *, const slot *, int32_t, slot *))\n"
        f'        dlsym(kernel->library, "{set_threads}");\n'
        "    if (set != NULL) set(NULL, arguments, 2, &result);\n}\n\n"
        f"void {name}_unload({name}_kernel *kernel) {{\n"
        "    if (kernel == NULL) return;\n"
        "    // The library stays: threads of its pool may still be waiting in its code.\n"
        "    free(kernel);\n}\n"
    )
    return header, source
