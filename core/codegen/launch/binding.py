"""A signature's argument check and call as C: the functions that Python calls for one launch.

What is generated accepts exactly what :class:`core.runtime.arguments.Binder` accepts, or gives the call back untouched
(it returns the `miss` object) and the binder says what is wrong. Everything a compile knows is a constant in the text.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.codegen.launch.expressions import to_c
from core.codegen.launch.values import Values, bounds, is_float, overflow
from core.runtime.plan import names_of
from core.runtime.signature import ScalarArgument, Signature, TensorArgument
from core.runtime.symbols import SymbolSource, symbol_sources

#: DLPack's device types.
DEVICE_TYPES = {"cpu": 1, "cuda": 2}
#: Devices of a machine that the generated code keeps a module for.
_DEVICES = {"cpu": 1, "cuda": 32}


def binding_source(signature: Signature, device_type: str, *, refuses_empty: bool) -> str:
    """C with `tilehal_bind_2(config)`, to go after what defines `tilehal_values` and the launch.

    Args:
        device_type: torch's name of the device the tensors must be on.
        refuses_empty: tensors without elements are left to the binder, because nothing can describe them (TMA).

    Raises:
        UnusablePlan: a shape is no expression over the symbols and integer scalars.
        ShapeMismatch: no argument determines a symbol.
    """
    return _Binding(signature, device_type, refuses_empty).text()


class _Binding:
    def __init__(self, signature: Signature, device_type: str, refuses_empty: bool) -> None:
        self.signature = signature
        self.arguments = signature.arguments
        self.device_type = device_type
        self.refuses_empty = refuses_empty
        self.values = Values(signature)
        self.names = {name: text.replace("v->", "v.") for name, text in self.values.names.items()}
        self.inputs = signature.inputs
        self.outputs = [i for i in range(len(self.arguments)) if self.signature.is_output(i)]
        self.sources: dict[str, SymbolSource] = symbol_sources(signature)
        for argument in self.arguments:
            for extent in (*getattr(argument, "shape", ()), *(getattr(argument, "strides", None) or ())):
                names_of(str(extent), self.names)
        tensors = [i for i, a in enumerate(self.arguments) if isinstance(a, TensorArgument)]
        self.tensors = tensors
        self.anchor = signature.anchor
        given = {i for i in self.inputs if isinstance(self.arguments[i], TensorArgument)}
        #: Outputs can be allocated: some input says on which device, and inputs determine every size.
        self.allocates = bool(self.outputs) and bool(given) and all(s.argument in given for s in self.sources.values())

    def tensor(self, index: int) -> TensorArgument:
        argument = self.arguments[index]
        assert isinstance(argument, TensorArgument)
        return argument

    # ------------------------------------------------------------------------------------------------ the file

    def text(self) -> str:
        flags = ", ".join(str(int(self.signature.is_output(index))) for index in range(len(self.arguments)))
        return "".join(
            (
                f"#define TILEHAL_ARGUMENTS {max(1, len(self.arguments))}\n",
                f"#define TILEHAL_DEVICES {_DEVICES[self.device_type]}\n",
                f"#define TILEHAL_OUTPUTS {len(self.outputs)}\n",
                f"#define TILEHAL_COUNT {self.values.count}\n",
                f"#define TILEHAL_CUDA {int(self.device_type == 'cuda')}\n",
                '#include "binding.h"\n',
                f'#include "queue_{self.device_type}.h"\n\n',
                self._call(),
                self._raw(),
                f"static const unsigned char tilehal_is_output[] = {{{flags or '0'}}};\n",
                '#include "direct.h"\n',
                '#include "bind.h"\n',
            )
        )

    # ------------------------------------------------------------------------------------------------ the call

    def _call(self) -> str:
        lines = ["tilehal_values v;"]
        if self.tensors:
            lines.append("tilehal_tensor " + ", ".join(f"t{i}" for i in self.tensors) + ";")
        everything, some = len(self.arguments), len(self.inputs)
        if self.allocates:
            lines.append("PyObject *made[TILEHAL_OUTPUTS] = {NULL};")
            lines.append(f"const int allocate = count == {some};")
            lines.append(f"if (!allocate && count != {everything}) goto miss;")
        else:
            lines.append(f"if (count != {everything}) goto miss;")
        for position, index in enumerate(self.inputs):
            lines += self._header(index, self._object(index, position))
        lines += self._solve(outputs=False)
        for index in self.inputs:
            lines += self._extents(index)
        given = []
        for index in self.outputs:
            given += self._header(index, f"args[{index}]")
        given += self._solve(outputs=True)
        for index in self.outputs:
            given += self._extents(index)
        if self.allocates:
            lines.append("if (!allocate) {")
            lines += [f"    {line}" for line in given]
            lines.append("} else {")
            for number, index in enumerate(self.outputs):
                lines += [f"    {line}" for line in self._allocate(number, index)]
            lines.append("}")
        else:
            lines += given
        lines += [f"v.p{index} = tilehal_data(&t{index});" for index in self.tensors]
        device = f"t{self.anchor}.device.id" if self.anchor is not None else "-1"
        lines.append(f"const int code = tilehal_queue(state, {device}, &v);")
        lines.append("if (code == TILEHAL_WRONG_ARGUMENT) goto miss;")
        lines.append("if (code != 0) goto failed;")
        lines += self._result()
        released = "tilehal_release(made); " if self.allocates else ""
        body = "".join(f"    {line}\n" for line in lines)
        return (
            "static PyObject *tilehal_call(tilehal_state *state, PyObject *const *args, Py_ssize_t count) {\n"
            f"{body}"
            "failed:\n"
            f"    {released}return NULL;\n"
            "miss:\n"
            f"    {released}Py_IncRef(state->miss);\n"
            "    return state->miss;\n"
            "}\n\n"
        )

    def _object(self, index: int, position: int) -> str:
        if not self.allocates or index == position:
            return f"args[{index}]"
        return f"args[allocate ? {position} : {index}]"

    def _header(self, index: int, item: str) -> list[str]:
        """What can be told before the symbolic dimensions are known."""
        argument = self.arguments[index]
        if isinstance(argument, ScalarArgument):
            if is_float(argument):
                limit = overflow(argument.dtype)
                return [f"if (!tilehal_number({item}, {limit}, &v.p{index})) goto miss;"]
            least, most = bounds(argument.dtype)
            return [f"if (!tilehal_integer({item}, {least}, {most}, &v.p{index})) goto miss;"]
        tensor = f"t{index}"
        anchor = self.anchor if self.anchor is not None else index
        if index == anchor:
            where = f"{tensor}.device.type != {DEVICE_TYPES[self.device_type]}"
        else:
            where = f"{tensor}.device.type != t{anchor}.device.type || {tensor}.device.id != t{anchor}.device.id"
        lines = [
            f"if (!tilehal_read(state, {item}, &{tensor})) goto miss;",
            f"if (!tilehal_same_type({tensor}.type, state->types[{index}]) || {where}) goto miss;",
            f"if ({tensor}.rank != {len(argument.shape)}) goto miss;",
        ]
        fixed = all(isinstance(extent, int) and extent > 0 for extent in argument.shape)
        if argument.strides is None and not fixed:
            lines.append(f"if (!tilehal_contiguous(&{tensor})) goto miss;")
        if not fixed and self.refuses_empty:
            lines.append(f"if (!tilehal_has_elements(&{tensor})) goto miss;")
        null = f"{tensor}.data == NULL"
        lines.append(f"if ({null if fixed else f'{null} && tilehal_has_elements(&{tensor})'}) goto miss;")
        packs_elements = argument.strides is None and fixed and set(argument.shape) - {1}
        if argument.dtype.startswith(("float", "bfloat")) and not packs_elements:
            lines.append(f"if (tilehal_negated(state, {item}, &{tensor})) goto miss;")
        return lines

    def _solve(self, *, outputs: bool) -> list[str]:
        lines = []
        for symbol, source in self.sources.items():
            if self.signature.is_output(source.argument) == outputs:
                array = "shape" if source.attribute == "shape" else "strides"
                value = f"t{source.argument}.{array}[{source.axis}]"
                lines.append(f"v.{self.values.symbols[symbol]} = {value} / {source.factor};")
        return lines

    def _extents(self, index: int) -> list[str]:
        argument = self.arguments[index]
        if isinstance(argument, ScalarArgument):
            return []
        tests = [f"t{index}.shape[{axis}] != {to_c(e, self.names)}" for axis, e in enumerate(argument.shape)]
        if argument.strides is not None:
            tests += [f"t{index}.strides[{axis}] != {to_c(e, self.names)}" for axis, e in enumerate(argument.strides)]
        elif all(isinstance(extent, int) and extent > 0 for extent in argument.shape):
            # Packed, as tilehal_contiguous() says it, with the strides worked out here.
            expected = 1
            for axis in reversed(range(len(argument.shape))):
                extent = argument.shape[axis]
                assert isinstance(extent, int)
                if extent != 1:
                    tests.append(f"t{index}.strides[{axis}] != {to_c(expected, self.names)}")
                expected *= extent
        return [f"if ({' || '.join(tests)}) goto miss;"] if tests else []

    def _allocate(self, number: int, index: int) -> list[str]:
        """Calls what the binder gives for a device: with nothing (fixed shape), or with the shape (and strides)."""
        argument = self.tensor(index)
        device = f"t{self.anchor}.device.id"
        fixed = argument.strides is None and all(isinstance(extent, int) for extent in argument.shape)
        shape = "NULL" if fixed else self._numbers(argument.shape)
        strides = self._numbers(argument.strides) if argument.strides is not None else "NULL"
        call = f"tilehal_make(state, {device}, {number}, {len(argument.shape)}, {shape}, {strides})"
        # What is no symbol itself can be below zero: a difference, a number.
        computed = [e for e in argument.shape if isinstance(e, str) and e not in self.signature.symbols]
        return [
            *(f"if ((int64_t)({to_c(extent, self.names)}) < 0) goto miss;" for extent in computed),
            f"made[{number}] = {call};",
            f"if (made[{number}] == NULL && tilehal_left_to_binder()) goto miss;",
            f"if (made[{number}] == NULL) goto failed;",
            f"if (!tilehal_read(state, made[{number}], &t{index})) goto miss;",
            # A mode that is active can make something without memory.
            f"if (t{index}.data == NULL && tilehal_has_elements(&t{index})) goto miss;",
        ]

    def _result(self) -> list[str]:
        order = list(self.signature.outputs)
        if not order:
            return ["return tilehal_none(state);"]

        def item(index: int) -> str:
            given = f"tilehal_again(args[{index}])"
            if not self.allocates:
                return given
            return f"(allocate ? made[{self.outputs.index(index)}] : {given})"

        if len(order) == 1:
            return [f"return {item(order[0])};"]
        lines = [f"PyObject *list = PyList_New({len(order)});", "if (list == NULL) goto failed;"]
        lines += [f"PyList_SetItem(list, {position}, {item(index)});" for position, index in enumerate(order)]
        return [*lines, "return list;"]

    def _numbers(self, extents: Sequence[int | str]) -> str:
        values = ", ".join(f"(long long)({to_c(extent, self.names)})" for extent in extents)
        return f"(const long long[]){{{values or '0'}}}"

    # ------------------------------------------------------------------------------------------------ by pointer

    def _raw(self) -> str:
        """The call with everything given: device, stream, pointers and numbers, symbolic dimensions. Checks nothing."""
        lines = []
        for index, argument in enumerate(self.arguments):
            item = f"args[{index + 2}]"
            if isinstance(argument, TensorArgument):
                lines.append(f"v.p{index} = PyLong_AsVoidPtr({item});")
            elif is_float(argument):
                lines.append(f"v.p{index} = PyFloat_AsDouble({item});")
            elif argument.dtype == "uint64":
                lines.append(f"v.p{index} = (int64_t)PyLong_AsUnsignedLongLong({item});")
            else:
                lines.append(f"v.p{index} = PyLong_AsLongLongAndOverflow({item}, &overflow);")
        for position, field in enumerate(self.values.symbols.values(), len(self.arguments) + 2):
            lines.append(f"v.{field} = PyLong_AsLongLongAndOverflow(args[{position}], &overflow);")
        return (
            "static void tilehal_take(PyObject *const *args, tilehal_values *out) {\n"
            "    tilehal_values v;\n    int overflow = 0;\n"
            "    memset(&v, 0, sizeof v);\n    (void)args; (void)overflow;\n"
            + "".join(f"    {line}\n" for line in lines)
            + "    *out = v;\n}\n\n"
        )
