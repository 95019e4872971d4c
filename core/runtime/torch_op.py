"""Registering a kernel with `torch.library`, so that `torch.compile` keeps it as one call instead of stopping at it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from core.errors import KernelError, ShapeMismatch
from core.runtime.compiled import MISS
from core.runtime.extents import Expression
from core.runtime.signature import ScalarArgument, Signature, TensorArgument
from core.runtime.symbols import symbol_sources
from core.runtime.values import torch_dtype

if TYPE_CHECKING:
    from core.runtime.kernel import Kernel

Outputs = Literal["returned", "given"]

_QUALIFIED = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*")
_DISPATCH_KEYS = {"cpu": "CPU", "cuda": "CUDA", "npu": "PrivateUse1"}


@dataclass
class _Registered:
    """One operator: its library object must live as long as the operator is used."""

    library: Any
    signature: Signature
    outputs: Outputs
    backward: Callable[..., Any] | None
    setup_context: Callable[..., Any] | None
    #: The operator to autograd, where it computes something: what a call is that autograd has to see.
    differentiable: Callable[..., Any] | None = None
    kernels: dict[str, Kernel] = field(default_factory=dict)


_registered: dict[str, _Registered] = {}
_lock = threading.Lock()


def register(
    kernel: Kernel,
    name: str,
    *,
    outputs: Outputs = "returned",
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Registers `kernel` as the operator `name`; see :meth:`core.Kernel.as_torch_op`."""
    import torch

    if not isinstance(name, str) or not _QUALIFIED.fullmatch(name):
        raise KernelError(f"{name!r} is no operator name", hint='name it "<namespace>::<operator>"')
    if outputs not in ("returned", "given"):
        raise KernelError(f"outputs={outputs!r}, but they are returned or given", hint='pass "returned" or "given"')
    if setup_context is not None and backward is None:
        raise KernelError(f"{name} has a setup_context and no backward", hint="pass backward= as well")
    signature = kernel.program.signature
    key = _DISPATCH_KEYS.get(kernel.device_type)
    if key is None:
        raise KernelError(
            f"{kernel.name} runs on tensors of {kernel.device_type}, for which no torch operator can be registered",
            hint=f"operators are registered for {', '.join(_DISPATCH_KEYS)}; call the kernel itself",
        )
    namespace, _, short = name.partition("::")
    with _lock:
        known = _registered.get(name)
        if known is None:
            if hasattr(getattr(torch.ops, namespace), short):
                raise KernelError(
                    f"torch has an operator {name} already, which no kernel of TileHAL was registered as",
                    hint="give this one a name in a namespace of your own",
                )
            known = _registered[name] = _define(kernel, name, outputs, backward, setup_context)
        elif (known.signature, known.outputs) != (signature, outputs):
            raise KernelError(
                f"{name} is registered already, with other parameters",
                hint="give this kernel a name of its own; kernels of one operator differ in their device only",
            )
        elif backward is not None and (known.backward, known.setup_context) != (backward, setup_context):
            raise KernelError(
                f"{name} is registered already, with another backward or none",
                hint="pass backward= when it is registered for the first time, or give this one a name of its own",
            )
        if key not in known.kernels:
            known.library.impl(short, _run(kernel, outputs), key)
            if known.differentiable is not None:
                known.library.impl(short, _outside_of_autograd(kernel, known.differentiable), f"Autograd{key}")
            known.kernels[key] = kernel
        elif known.kernels[key] is not kernel:
            raise KernelError(
                f"{name} has a kernel for {kernel.device_type} already",
                hint="register one kernel for each device, and give another a name of its own",
            )
    found: Callable[..., Any] = getattr(getattr(torch.ops, namespace), short).default
    return found


def _define(
    kernel: Kernel,
    name: str,
    outputs: Outputs,
    backward: Callable[..., Any] | None,
    setup_context: Callable[..., Any] | None,
) -> _Registered:
    """The operator without a kernel: its schema, what its outputs are, its backward."""
    import torch

    signature = kernel.program.signature
    namespace, _, short = name.partition("::")
    _check(signature, outputs)
    computes = outputs == "returned" and bool(signature.outputs) and not _written(signature, outputs)
    if backward is not None and not computes:
        raise KernelError(
            f"{name} writes its arguments, so torch takes no backward for it",
            hint='register it with outputs="returned", for a kernel that reads its inputs and writes its outputs',
            location=kernel.program.location,
        )
    library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(schema(signature, short, outputs), tags=_tags())  # type: ignore[no-untyped-call]
    torch.library.register_fake(name, _fake(signature, outputs), lib=library)
    differentiable = None
    if computes:
        # Torch would otherwise go back through the operator as if it had no inputs, with a warning at most.
        used = backward if backward is not None else _without_backward(kernel, name)
        operator = getattr(getattr(torch.ops, namespace), short).default
        differentiable = _differentiable(operator, used, setup_context)
        library.impl(short, differentiable, "Autograd")  # type: ignore[no-untyped-call]
    return _Registered(library, signature, outputs, backward, setup_context, differentiable)


def _differentiable(
    operator: Callable[..., Any], backward: Callable[..., Any], setup_context: Callable[..., Any] | None
) -> Callable[..., Any]:
    """What `torch.library.register_autograd` registers, in fewer steps: `operator` has no keywords and no lists."""
    import torch

    def below(*args: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*args)

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            output = below(*args)
            if setup_context is not None:
                setup_context(ctx=ctx, inputs=args, output=output)
            return output

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return backward(ctx, *gradients)

    def differentiable(*args: Any) -> Any:
        return Backward.apply(*args) if _wants_gradient(args) else below(*args)  # type: ignore[no-untyped-call]

    return differentiable


def _wants_gradient(args: tuple[Any, ...]) -> bool:
    import torch

    if torch.is_grad_enabled():
        for value in args:  # where any() takes several times as long
            if isinstance(value, torch.Tensor) and value.requires_grad:
                return True
    return False


def _outside_of_autograd(kernel: Kernel, differentiable: Callable[..., Any]) -> Callable[..., Any]:
    """The operator to autograd for the kernel's device: a call in which nothing has to be seen is made at once.

    On the way down the dispatcher would come through Python a second time, which costs more than the call itself. What
    torch keeps below (modes, subclasses, wrappers of functionalisation, negated views) is left alone by the compiled
    check, which makes the outputs.
    """
    several = len(kernel.program.signature.outputs) > 1

    def outside(*args: Any) -> Any:
        if _wants_gradient(args) or kernel._has_own_call():
            return differentiable(*args)
        outputs = kernel._compiled_call(args)
        if outputs is MISS:
            return differentiable(*args)
        return tuple(outputs) if several else outputs

    return outside


def _without_backward(kernel: Kernel, name: str) -> Callable[..., Any]:
    def backward(*gradients: Any) -> Any:
        raise KernelError(
            f"{name} has no backward, and a gradient is asked for",
            hint="register it with as_torch_op(..., backward=), or call it under torch.no_grad()",
            location=kernel.program.location,
        )

    return backward


def _written(signature: Signature, outputs: Outputs) -> list[int]:
    """Positions, among the operator's arguments, of the tensors that it writes."""
    taken = [a for i, a in enumerate(signature.arguments) if outputs == "given" or not signature.is_output(i)]
    return [i for i, a in enumerate(taken) if isinstance(a, TensorArgument) and a.writes]


def _tags() -> tuple[Any, ...]:
    """Inductor then hands over tensors with the strides they would have had without it: a kernel checks them."""
    import torch

    exact = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    return (torch.Tag.pt2_compliant_tag, exact)


def _check(signature: Signature, outputs: Outputs) -> None:
    tensors = [a for a in signature.arguments if isinstance(a, TensorArgument)]
    given = [a for a in tensors if not a.is_output or outputs == "given"]
    if not given:
        raise KernelError(
            f"{signature.name} takes no tensor, so torch cannot tell on which device to run it",
            hint='register it with outputs="given"',
        )
    if outputs == "returned":
        late = [s for s, source in symbol_sources(signature).items() if signature.is_output(source.argument)]
        if late:
            raise KernelError(
                f"{signature.name}: {', '.join(late)} is known from an output only, so the outputs cannot be allocated",
                hint='register it with outputs="given"',
            )


def schema(signature: Signature, name: str, outputs: Outputs) -> str:
    """The operator's schema: what is written is declared (`Tensor(a0!)`), outputs are returned or are parameters."""
    parameters = []
    for index, argument in enumerate(signature.arguments):
        if isinstance(argument, ScalarArgument):
            parameters.append(f"{_scalar_type(argument.dtype)} {argument.name}")
        elif not argument.is_output:
            parameters.append(f"Tensor{f'(a{index}!)' if argument.writes else ''} {argument.name}")
        elif outputs == "given":
            parameters.append(f"Tensor(a{index}!) {argument.name}")
    count = len(signature.outputs) if outputs == "returned" else 0
    result = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    return f"{name}({', '.join(parameters)}) -> {result}"


def _scalar_type(dtype: str) -> str:
    if dtype == "bool":
        return "bool"
    return "float" if dtype.startswith(("float", "bfloat")) else "SymInt"


def _run(kernel: Kernel, outputs: Outputs) -> Callable[..., Any]:
    """What the dispatcher calls. Several outputs are a tuple there, and none is None."""
    import torch

    written = _written(kernel.program.signature, outputs)
    count = len(kernel.program.signature.outputs) if outputs == "returned" else 0

    def writes(*args: Any) -> Any:
        result = kernel(*args)
        # A backward that saved one of these tensors must not read what is in it now.
        torch.autograd.graph.increment_version([args[position] for position in written])
        return result if count == 1 else tuple(result) if count else None

    if written:
        return writes
    if count == 1:

        def one(*args: Any) -> Any:
            return kernel(*args)

        return one

    def several(*args: Any) -> tuple[Any, ...]:
        return tuple(kernel(*args))

    return several


def _fake(signature: Signature, outputs: Outputs) -> Callable[..., Any]:
    """Shapes and dtypes of the outputs, from symbolic shapes of the inputs; refuses what a call would refuse."""
    arguments = signature.arguments
    positions = [i for i in range(len(arguments)) if outputs == "given" or not signature.is_output(i)]
    sources = symbol_sources(signature)
    shapes = {i: [Expression(e) for e in a.shape] for i, a in enumerate(arguments) if isinstance(a, TensorArgument)}
    strides = {
        i: [Expression(e) for e in a.strides]
        for i, a in enumerate(arguments)
        if isinstance(a, TensorArgument) and a.strides is not None
    }

    def fake(*args: Any) -> Any:
        import torch

        given = dict(zip(positions, args, strict=True))
        for index, value in given.items():
            _check_header(signature, index, value)
        names: dict[str, Any] = {
            a.name: given[i] for i, a in enumerate(arguments) if isinstance(a, ScalarArgument) and i in given
        }
        for symbol, source in sources.items():
            names[symbol] = source.read(given[source.argument])
        for index, value in given.items():
            for axis, extent in enumerate(shapes.get(index, ())):
                expected = extent(names)
                where = f"{signature.name}: argument {index} ({arguments[index].name}): axis {axis} must be "
                message = partial("{}{}".format, where, expected)
                torch._check_with(ShapeMismatch, value.shape[axis] == expected, message)
        if outputs == "given" or not signature.outputs:
            return None
        home = next(value for value in given.values() if isinstance(value, torch.Tensor))
        made = []
        for index in signature.outputs:
            argument = arguments[index]
            size, dtype = [extent(names) for extent in shapes[index]], torch_dtype(argument.dtype)
            if index in strides:
                stride = [extent(names) for extent in strides[index]]
                made.append(home.new_empty_strided(size, stride, dtype=dtype))
            else:
                made.append(home.new_empty(size, dtype=dtype))
        return made[0] if len(made) == 1 else tuple(made)

    return fake


def _check_header(signature: Signature, index: int, value: Any) -> None:
    argument = signature.arguments[index]
    if isinstance(argument, ScalarArgument):
        return
    where = f"{signature.name}: argument {index} ({argument.name})"
    if value.dtype is not torch_dtype(argument.dtype):
        raise ShapeMismatch(
            f"{where} is {argument.dtype}, got {str(value.dtype).removeprefix('torch.')}",
            hint="convert it, or compile the kernel for its dtype",
        )
    if value.dim() != len(argument.shape):
        raise ShapeMismatch(f"{where} has rank {value.dim()}, expected rank {len(argument.shape)}", hint="reshape it")
