"""`core.kernel`: a kernel factory whose tile parameters are chosen by the chip's rules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core._functions import near_name
from core.errors import KernelError, Location, ShapeMismatch
from core.tiling.arguments import check_elements, check_extents, check_sizes, checked_arguments
from core.tiling.parameters import TileParameter

if TYPE_CHECKING:
    from core._tilelang import TracedKernel
    from core.hardware import Chip
    from core.runtime.kernel import Kernel
    from core.target import Target
    from core.tiling.ranking import Ranking
    from core.tiling.rules import Tiles
    from core.tuning.report import TuneReport

#: The dtypes an argument may name: these, or what a function makes of the call's other arguments.
Dtypes = Sequence[str] | Callable[[Mapping[str, Any]], Sequence[str]]
#: Arguments that may be symbolic sizes: each by its name, or in a tuple those that may only be one and the same size.
Symbolic = Sequence[str | tuple[str, ...]]


class KernelFactory:
    """A function that returns a `@T.prim_func`, whose keyword-only tile parameters are markers.

    Made by :func:`kernel`. Shape arguments are the function's ordinary parameters.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        out: Sequence[str | int] | str | int | None,
        pass_configs: Mapping[Any, Any] | None = None,
        dtypes: Mapping[str, Dtypes] | None = None,
        symbolic: Symbolic | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.pass_configs: dict[Any, Any] = dict(pass_configs or {})
        self.dtypes: dict[str, Dtypes] = dict(dtypes or {})
        self.symbolic: tuple[tuple[str, ...], ...] | None = None
        if symbolic is not None:
            self.symbolic = tuple((names,) if isinstance(names, str) else tuple(names) for names in symbolic)
        self.out: tuple[str | int, ...] = () if out is None else (out,) if isinstance(out, (str, int)) else tuple(out)
        self.signature = inspect.signature(function)
        self.parameters: dict[str, TileParameter] = {
            name: p.default for name, p in self.signature.parameters.items() if isinstance(p.default, TileParameter)
        }
        for name in self.parameters:
            if self.signature.parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY:
                raise KernelError(
                    f"{self.name}: the tile parameter {name!r} must be keyword-only",
                    hint="put a `*` before the first tile parameter",
                    location=self.location,
                )
        for name, parameter in self.parameters.items():
            if parameter.dimension is not None and parameter.dimension not in self.signature.parameters:
                raise KernelError(
                    f"{self.name}: {name!r} tiles {parameter.dimension!r}, which is not an argument of the factory",
                    hint=f"its arguments are {', '.join(n for n in self.signature.parameters)}",
                    location=self.location,
                )
        named = {"dtypes": [*self.dtypes], "symbolic": [name for names in self.symbolic or () for name in names]}
        for declaration, name in ((declaration, name) for declaration, names in named.items() for name in names):
            if name not in self.signature.parameters:
                raise KernelError(
                    f"{self.name}: {declaration} names {name!r}, which is not an argument of the factory",
                    hint=f"its arguments are {', '.join(n for n in self.signature.parameters)}",
                    location=self.location,
                )

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def usage(self) -> str:
        """How it is called: `matmul(M, N, K, *, dtype='float16')`, with the tile parameters as `block_M=...`."""
        parts: list[str] = []
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
                parts.append("*")
            if name in self.parameters:
                parts.append(f"{name}=...")
            elif parameter.default is parameter.empty:
                parts.append(name)
            else:
                parts.append(f"{name}={parameter.default!r}")
        return f"{self.name}({', '.join(parts)})"

    def __repr__(self) -> str:
        return f"<core.kernel {self.usage}>"

    @property
    def location(self) -> Location:
        code = self.function.__code__
        return Location(code.co_filename, code.co_firstlineno)

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Every argument but the tile parameters, by name; those in :attr:`dtypes` as names of dtypes.

        Raises:
            KernelError: an argument is missing or unknown; or as :func:`core.tiling.arguments.checked_arguments`.
            ShapeMismatch: an argument names a dtype that the kernel does not compute.
        """
        given = {name: value for name, value in kwargs.items() if name not in self.parameters}
        for name in given:
            meant = None if name in self.signature.parameters else near_name(name, self.signature.parameters)
            if meant is not None:
                raise KernelError(
                    f"{self.name} has no argument {name!r}", hint=f"did you mean {meant!r}?", location=self.location
                )
        try:
            bound = self.signature.bind_partial(*args, **given)
        except TypeError as error:
            raise KernelError(
                f"{self.name}: {error}", hint=f"call it as {self.usage}", location=self.location
            ) from error
        bound.apply_defaults()
        values = {name: value for name, value in bound.arguments.items() if name not in self.parameters}
        missing = [name for name, p in self.signature.parameters.items() if p.default is p.empty and name not in values]
        if missing:
            raise KernelError(
                f"{self.name}: missing {', '.join(missing)}",
                hint=f"call it as {self.usage}",
                location=self.location,
            )
        for name in self.dtypes:
            if values[name] is not None:
                values[name] = _dtype_name(values[name])
        self._check_dtypes(values)
        return checked_arguments(self, values)

    def dtypes_of(self, argument: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The dtypes that `argument` may name, where the others are `arguments`; of one in :attr:`dtypes`."""
        allowed = self.dtypes[argument]
        return tuple(allowed(arguments) if callable(allowed) else allowed)

    def _check_dtypes(self, arguments: Mapping[str, Any]) -> None:
        """Raises ShapeMismatch for a dtype that is not declared. None is the factory's own choice."""
        for name, declared in self.dtypes.items():
            given, allowed = arguments[name], self.dtypes_of(name, arguments)
            if given is None or given in allowed:
                continue
            here = " with these arguments" if callable(declared) else ""
            others = ", ".join(other for other in self.dtypes if other != name) if callable(declared) else ""
            hint = f"name one of these as {name}, and convert tensors to it with `.to`"
            raise ShapeMismatch(
                f"{self.name} has no {name} {given}{here}: it is one of {', '.join(allowed)}",
                hint=f"{hint}; or give it with another {others}" if others else hint,
                location=self.location,
                details={"argument": name, "dtype": str(given), "allowed": list(allowed)},
            )

    def given_tiles(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The tile parameters among a call's arguments, by name.

        Raises:
            KernelError: one has a value that the parameter does not allow.
        """
        given = {name: value for name, value in kwargs.items() if name in self.parameters}
        for name, value in given.items():
            parameter = self.parameters[name]
            if isinstance(value, bool) or not isinstance(value, int if parameter.choices is None else int | str):
                reason: str | None = "it must be an int" if parameter.role != "choice" else "it must be an int or a str"
            else:
                reason = parameter.refuse(value)
            if reason is not None:
                raise KernelError(
                    f"{self.name}: {name}={value!r}: {reason}",
                    hint=f"give another value, or leave {name} out: the chip's rules then choose it",
                    location=self.location,
                )
        return given

    def trace(self, arguments: Mapping[str, Any], tiles: Tiles) -> TracedKernel:
        """The PrimFunc for these arguments and tile values, with the declared outputs and the pass configurations.

        It goes by the factory's name, which is the one its user knows: a factory may have several functions inside,
        and most call theirs `main`.
        """
        from core._tilelang import TracedKernel, named, trace

        traced = trace(self.function, (), {**arguments, **tiles})
        kernel = TracedKernel(
            named(traced.prim_func, self.name),
            self._out_idx(traced.prim_func),
            {**traced.pass_configs, **self.pass_configs},
            traced.compile_flags,
        )
        check_elements(self, kernel)
        check_sizes(self, kernel)
        return kernel

    def _out_idx(self, prim_func: Any) -> list[int] | None:
        if not self.out:
            return None
        names = [
            prim_func.buffer_map[param].name if param in prim_func.buffer_map else param.name
            for param in prim_func.params
        ]
        positions = []
        for item in self.out:
            if isinstance(item, int):
                positions.append(item)
            elif item in names:
                positions.append(names.index(item))
            else:
                raise KernelError(
                    f"{self.name}: out names {item!r}, but the parameters are {', '.join(names)}",
                    hint="name a parameter of the @T.prim_func, or give its position",
                    location=self.location,
                )
        return positions

    def compile(self, *args: Any, target: str | Target | Chip = "auto", **options: Any) -> Kernel:
        """Compiles for `target`; see :func:`core.compile`. Tile parameters not given are chosen by the chip's rules."""
        from core.compiler.driver import compile as compile_kernel

        return compile_kernel(self, *args, target=target, **options)

    def rank(
        self,
        *args: Any,
        target: str | Target | Chip = "auto",
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Ranking:
        """The ranking of this kernel's candidates for `target`, without compiling anything: what compiling would try.

        Takes the arguments of :meth:`compile`; tile parameters among them are used as they are. See docs/tiling.md.

        Args:
            options: the backend's options to rank under, as for :meth:`compile`: rules may ask for them.

        Raises:
            TargetNotFound, BackendLoadError: the target cannot be resolved.
            KernelError: an argument is missing, unknown or not allowed, or the kernel traces with no tiles.
            BackendHookError: a rule raised.
        """
        from core.tiling.problem import TileProblem

        return TileProblem.of(self, args, kwargs, target, options).ranking()

    def tune(self, *args: Any, target: str | Target | Chip = "auto", **options: Any) -> TuneReport:
        """Measures the best candidates on the chip and remembers what came out; later compilations use it.

        Takes the arguments of :meth:`compile`, or a list of shapes (tuples, or mappings by name) with what they share
        by name. How it is done is said by the options of :func:`core.tuning.tuner.tune`: `candidates`, `budget_s`,
        `timeout_s`, `executor`, `reference`, `resume`, ... See docs/tuning.md.

        Raises:
            KernelError: an argument is not allowed, or an extent to measure at (`symbols`) is no int of 1 or more.
            TuningError: nothing can be tuned; and what else :func:`core.tuning.tuner.tune` raises.
        """
        from core.tuning.tuner import tune_call

        check_extents(self, options.get("symbols"))
        return tune_call(self, args, target, options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The PrimFunc itself, when every tile parameter is given: an ordinary factory."""
        missing = [name for name in self.parameters if name not in kwargs]
        if missing:
            raise KernelError(
                f"{self.name}: tile parameters {', '.join(missing)} were not given",
                hint=f"use {self.name}.compile(..., target=...) to have them chosen for a chip",
                location=self.location,
            )
        from core._tilelang import is_prim_func, named

        made = self.function(**self.arguments(args, kwargs), **self.given_tiles(kwargs))
        return named(made, self.name) if is_prim_func(made) else made


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    out: Sequence[str | int] | str | int | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    dtypes: Mapping[str, Dtypes] | None = None,
    symbolic: Symbolic | None = None,
) -> Any:
    """Decorator that makes a kernel factory portable: `@core.kernel(out=["C"])`.

    Args:
        out: the output parameters, by name or position; `kernel(a, b)` allocates and returns them.
        pass_configs: TileLang pass configurations the kernel was designed with, as `@tilelang.jit` takes them. Those
            given to `compile` win; a chip whose lowering has no use for one is compiled for as without it.
        dtypes: by argument of the factory, the dtypes it may name (`{"dtype": ("float16", "float32")}`), or a function
            that says them of all arguments but the tile parameters. Others are refused with ShapeMismatch before
            anything is traced; None, an argument's "as the factory finds", is not looked at.
        symbolic: the arguments that may be symbolic sizes (`T.dynamic`), by name; in a tuple, those that may be so only
            as one and the same size: `symbolic=("batch", ("heads", "kv_heads"))`. Others are refused with KernelError
            before anything is traced. None lets every argument be symbolic that the function can take as such.

    Returns:
        A :class:`KernelFactory`.
    """
    if function is not None:
        return KernelFactory(function, out, pass_configs, dtypes, symbolic)
    return lambda f: KernelFactory(f, out, pass_configs, dtypes, symbolic)


def _dtype_name(dtype: Any) -> str:
    """`float16` of "float16", `torch.float16` and TileLang's own."""
    return str(dtype).removeprefix("torch.")
