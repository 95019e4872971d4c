"""From an entry to a plugin whose hooks may be called: versions, trial import, import, validation.

Whatever goes wrong is a `BackendLoadError` that names the package, its version and the cause; a plugin is taken whole
or not at all.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

import pluggy

from core.errors import BackendHookError, BackendLoadError, TileHALError
from core.plugins import hookspecs, trace, versions
from core.plugins.entries import LOAD_PLUGINS, Entry
from core.plugins.fingerprint import code_hash, code_root
from core.plugins.isolation import LOAD_TIMEOUT, import_fault
from core.plugins.results import RESULT_TYPES

PROJECT = "tilehal"

hookimpl = pluggy.HookimplMarker(PROJECT)

#: Hooks that describe the vendor itself: only its owner can answer them.
OWNER_HOOKS = frozenset({"tilehal_chips", "tilehal_detect"})

_HOOKS = "docs/plugins.md lists every hook and its arguments"


class Hooks:
    """The plugin object that pluggy sees: one guarded function for each hook the plugin implements."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A loaded plugin.

    Attributes:
        entry: where it came from.
        code_hash: hash of its package's files, for cache keys.
        priority: place in the calling order: higher is called earlier; the owner is 0.
        implemented: names of the hooks it answers by itself; `wrapped`: those it only works around.
        refused: errors for hooks of an extension that only the owner of a vendor answers: they are never called.
    """

    entry: Entry
    code_hash: str
    priority: int
    implemented: frozenset[str]
    wrapped: frozenset[str]
    hooks: Hooks = field(compare=False, repr=False)
    refused: tuple[BackendLoadError, ...] = field(default=(), compare=False, repr=False)


def new_plugin_manager() -> pluggy.PluginManager:
    """A pluggy manager that knows our hooks and no plugin."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def load(entry: Entry) -> Plugin:
    """Loads one plugin. Raises BackendLoadError; nothing of a plugin that fails stays registered anywhere."""
    if entry.name_fault:
        raise load_error(entry, "metadata", f"its entry point's name is wrong: {entry.name_fault}")
    wrong = versions.mismatches(entry)
    if wrong:
        raise load_error(
            entry,
            "versions",
            "; ".join(str(mismatch) for mismatch in wrong),
            hint=f"install a release of {entry.distribution} made for these versions, or the versions it asks for",
        )
    content = code_hash(entry.module)
    fault = import_fault(entry, content)
    if fault:
        raise load_error(
            entry,
            "import",
            fault,
            hint=f"the fault is in {entry.distribution}; {LOAD_TIMEOUT} sets the time limit, "
            f"and {LOAD_PLUGINS} leaves the package out",
        )
    return validated(entry, _import(entry), content)


def load_error(entry: Entry, stage: str, cause: str, hint: str = "") -> BackendLoadError:
    """The error for a plugin that cannot be used; `stage` is where it failed."""
    return BackendLoadError(
        f"{entry.package}, which {'owns' if entry.role == 'owner' else 'extends'} the target {entry.name!r}, "
        f"cannot be used: {cause}",
        hint=hint or f"repair or uninstall {entry.distribution}",
        details=_details(entry, entry_point=entry.value, stage=stage, cause=cause),
    )


def _details(entry: Entry, **more: str) -> dict[str, str]:
    """Whose fault an error is, for whoever reads it by machine."""
    own = {"distribution": entry.distribution, "version": entry.version, "role": entry.role, "target": entry.name}
    return {**own, **more}


def _import(entry: Entry) -> object:
    if entry.plugin is not None:
        return entry.plugin
    try:
        plugin: object = import_module(entry.module)
        for attribute in filter(None, entry.value.partition(":")[2].strip().split(".")):
            plugin = getattr(plugin, attribute)
    except (Exception, SystemExit) as error:
        cause = f"importing {entry.value} raised {type(error).__name__}: {error}"
        raise load_error(entry, "import", cause, hint=_import_hint(entry, error)) from error
    return plugin


def _import_hint(entry: Entry, error: BaseException) -> str:
    top = entry.module.partition(".")[0]
    # The entry point's own module is not there: either the installation is broken, or something else has its name.
    if isinstance(error, ModuleNotFoundError) and error.name and f"{entry.module}.".startswith(f"{error.name}."):
        here = getattr(sys.modules.get(top), "__file__", None) or code_root(top)
        where = f"; the {top!r} that Python finds is {here}" if here else ""
        return f"reinstall {entry.distribution}, or rename what shadows its module{where}"
    return f"repair or uninstall {entry.distribution}; `tilehal doctor` shows the whole traceback"


def validated(entry: Entry, plugin: object, content: str) -> Plugin:
    """Checks every hook of a plugin against the specifications and wraps each so that its faults carry its name."""
    hooks = Hooks()
    implemented: set[str] = set()
    wrapped: set[str] = set()
    refused: list[BackendLoadError] = []
    for name, function, options in _hook_functions(entry, plugin):
        hook = cast(str, options.get("specname") or name)
        if hook not in RESULT_TYPES:
            raise load_error(entry, "register", f"it implements an unknown hook {hook!r}{_near(hook)}", _HOOKS)
        if hook in implemented | wrapped:
            raise load_error(entry, "register", f"it implements {hook} twice")
        if entry.role == "extension" and hook in OWNER_HOOKS:
            refused.append(_owner_hook_error(entry, hook))
            continue
        trap = _argument_fault(function)
        if trap:
            raise load_error(entry, "register", f"{trap} of its {hook} would never be passed: hooks get what they name")
        if options.get("hookwrapper"):
            raise load_error(entry, "register", f"its {hook} is an old-style hookwrapper; use hookimpl(wrapper=True)")
        is_wrapper = bool(options.get("wrapper"))
        (wrapped if is_wrapper else implemented).add(hook)
        setattr(hooks, name, _guarded(entry, hook, function, is_wrapper))
    if not implemented and not wrapped and not refused:
        raise load_error(entry, "register", f"{entry.value} implements no hook")
    if entry.role == "owner" and "tilehal_chips" not in implemented:
        raise load_error(entry, "register", "it owns a vendor but does not implement tilehal_chips")
    trial = new_plugin_manager()
    try:
        trial.register(hooks, name=entry.distribution)
        trial.check_pending()
    except pluggy.PluginValidationError as error:
        cause = " ".join(str(error).split())
        raise load_error(entry, "register", cause, hint=_HOOKS) from error
    priority = _priority(entry, plugin)
    return Plugin(entry, content, priority, frozenset(implemented), frozenset(wrapped), hooks, tuple(refused))


def _owner_hook_error(entry: Entry, hook: str) -> BackendLoadError:
    """The error for an extension that speaks for the vendor. That hook alone is left out: the owner's chips live on."""
    return BackendLoadError(
        f"{hook} of {entry.package} is not called: it extends the target {entry.name!r}, and only the owner of a "
        f"vendor answers that hook",
        hint="chips of your own need a vendor of your own (an entry point in tilehal.backends); a chip like an "
        "existing one, with other figures, is a what-if target such as cuda:h200+shared=128KiB (docs/plugins.md)",
        details=_details(entry, stage="owner-hook", hook=hook),
    )


def _hook_functions(entry: Entry, plugin: object) -> list[tuple[str, Callable[..., Any], dict[str, Any]]]:
    found: list[tuple[str, Callable[..., Any], dict[str, Any]]] = []
    for name in dir(plugin):
        # Statically: a plugin object's properties are not ours to run.
        if isinstance(inspect.getattr_static(plugin, name, None), property):
            continue
        function = getattr(plugin, name, None)
        options = getattr(function, f"{PROJECT}_impl", None)
        if callable(function) and isinstance(options, dict):
            found.append((name, function, options))
        elif name.startswith(f"{PROJECT}_") and inspect.isroutine(function):
            near = "" if name in RESULT_TYPES else _near(name)
            cause = f"{name} is named like a hook but lacks @hookimpl, so nobody calls it{near}"
            raise load_error(entry, "register", cause)
    return found


def _near(name: str) -> str:
    """The hook that a wrong name may mean, for the cause, which doctor shows as well; empty when none is near."""
    near = difflib.get_close_matches(name, RESULT_TYPES, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _argument_fault(function: Callable[..., Any]) -> str | None:
    """A parameter that pluggy accepts and then leaves out of every call."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY):
            return f"the parameter {str(parameter).split(':')[0]}"
        if parameter.default is not parameter.empty:
            return f"the parameter {parameter.name}, which has a default,"
    return None


def _priority(entry: Entry, plugin: object) -> int:
    if entry.role == "owner":
        return 0
    priority = getattr(plugin, "priority", 1)
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise load_error(entry, "register", f"its priority is {priority!r}, not an int")
    return priority


def _guarded(entry: Entry, hook: str, function: Callable[..., Any], is_wrapper: bool) -> Callable[..., Any]:
    """The function with its faults attributed to the package, its result checked, and its time traced."""

    @functools.wraps(function)
    def implementation(*arguments: Any) -> Any:
        with _attributed(entry, hook, arguments):
            return _checked(entry, hook, function(*arguments))

    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Generator[None, Any, Any]:
        with _attributed(entry, hook, arguments):
            # What the wrapped hooks raised arrives here as a TileHALError already; anything else is the wrapper's own.
            value = yield from function(*arguments)
            # Around a hook that collects, the value is the list of what each implementation returned.
            collected = isinstance(value, list) and RESULT_TYPES[hook].many
            for part in value if collected else [value]:
                _checked(entry, hook, part)
            return value

    return wrapper if is_wrapper and inspect.isgeneratorfunction(inspect.unwrap(function)) else implementation


@contextlib.contextmanager
def _attributed(entry: Entry, hook: str, arguments: Sequence[Any]) -> Iterator[None]:
    """Gives what a hook raises the name of its package, and traces how long it took. Errors of ours pass unchanged."""
    begin = time.perf_counter()
    try:
        yield
    except TileHALError:
        raise
    except (Exception, SystemExit) as error:
        raise hook_error(entry, hook, f"raised {type(error).__name__}: {error}") from error
    finally:
        trace.hook_called(entry, hook, arguments, time.perf_counter() - begin)


def _checked(entry: Entry, hook: str, value: Any) -> Any:
    fault = RESULT_TYPES[hook].fault(value)
    if fault:
        raise hook_error(entry, hook, fault)
    return value


def hook_error(entry: Entry, hook: str, cause: str) -> BackendHookError:
    """The error for a hook that misbehaved: names the package, its version and the hook."""
    return BackendHookError(
        f"{hook} of {entry.package} failed: {cause}",
        hint=f"this is a fault in {entry.distribution}; report it to its authors. TILEHAL_TRACEBACK=1 shows where",
        details={"distribution": entry.distribution, "version": entry.version, "hook": hook, "cause": cause},
    )
