"""TileHAL's targets inside TileLang: `tilelang.compile(f, target="metax")` goes through `core.compile`.

TileLang asks a target's kind who compiles it. TVM has a kind for devices it does not know, `ext_dev`, which no backend
of TileLang claims; ours takes exactly the targets that carry our key, and hands the PrimFunc to :func:`core.compile`.
What TileLang then gets is the native source, and a host function that forwards the call to the TileHAL kernel. That
function carries the kernel's IR, so that TileLang's own on-disk cache can hold it: a later process compiles it again
through TileHAL's cache. (The kind `rocm` is unclaimed too, but making such a target probes for ROCm and warns.)

Names TileLang owns (`cuda`, `ascend`, `hip`, ...) keep their meaning; TileHAL's are reached as `tilehal:cuda`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from typing import TYPE_CHECKING, Any

from core._tilelang.importing import import_tilelang
from core.errors import UnsupportedOp

if TYPE_CHECKING:
    from core.runtime.kernel import Kernel

_KIND = "ext_dev"
_KEY = "tilehal"
_LAUNCH = "tilehal.launch"
_lock = threading.Lock()
_installed = False
_kernels: dict[str, Kernel] = {}


def install_tilelang_targets() -> tuple[str, ...]:
    """Makes TileHAL's targets valid for `tilelang.compile` and `@tilelang.jit`. Idempotent.

    Returns:
        The target names that now work: every vendor TileLang does not own, and `tilehal:<vendor>` for all.

    Assumes: `register_backend` accepts a module for the kind `ext_dev`, which no built-in backend claims; a registered
    normalizer is asked before a target string is parsed; the execution backend named `tvm_ffi` gets its host module
    from the module's host codegen; `ffi.Module.create.cuda` makes a module that only carries source.
    """
    global _installed
    import_tilelang()
    from core.plugins import manager

    vendors = manager().vendors()
    with _lock:
        if not _installed:
            _register()
            _installed = True
    free = [vendor for vendor in vendors if not _owned(vendor)]
    return (*free, *(f"tilehal:{vendor}" for vendor in vendors))


def _owned(name: str) -> bool:
    """Whether TileLang itself gives `name` a meaning as a target."""
    from tilelang.backend.module import list_backends

    kinds = {kind for backend in list_backends() for kind in _kinds(backend) if kind != _KIND}
    return name in kinds | {"auto", "cutedsl", "asc", "llvm", "c"}


def _kinds(backend: Any) -> tuple[str, ...]:
    from tilelang.backend.module import get_backend

    module = get_backend(backend) if isinstance(backend, str) else backend
    return tuple(module.target_kinds)


def _register() -> None:
    import tvm_ffi
    from tilelang.backend.device_codegen import DeviceCodegen
    from tilelang.backend.execution_backend import ExecutionBackendSpec
    from tilelang.backend.host_codegen import HostCodegen
    from tilelang.backend.module import BackendModule, register_backend
    from tilelang.backend.pass_pipeline import PassPipeline
    from tilelang.backend.target import register_target_normalizer

    tvm_ffi.register_global_func(_LAUNCH, _launch, override=True)
    register_target_normalizer(_KEY, _normalize, override=True)
    register_backend(
        BackendModule(
            name=_KEY,
            target_kinds=(_KIND,),
            supports_target=lambda target: _KEY in target.keys,
            pipelines={_KIND: PassPipeline(_KIND, _lower)},
            device_codegens={_KIND: DeviceCodegen(_KEY, build=_device_module, build_without_compile=_device_module)},
            host_codegens={"c": HostCodegen("c", build=_host_module)},
            execution_backends=(ExecutionBackendSpec("tvm_ffi", enable_host_codegen=True, enable_device_compile=True),),
        )
    )


def _normalize(target: Any) -> Any:
    """A TVM target for one of our names, None for anybody else's."""
    if not isinstance(target, str):
        return None
    explicit = target.startswith(f"{_KEY}:")
    name = target.removeprefix(f"{_KEY}:")
    vendor = name.partition(":")[0].partition("+")[0]
    from core.plugins import manager

    if not explicit and (vendor not in manager().vendors() or _owned(vendor)):
        return None
    from tvm.target import Target

    from core.target import resolve

    chip = resolve(name).chip
    # The backend's code is part of the target's text, because TileLang's cache keys hold nothing else of it.
    code = manager().backend(chip.vendor).fingerprint(chip)[:16]
    return Target({"kind": _KIND, "keys": [_KEY, f"{_KEY}-target={chip.target}", f"{_KEY}-code={code}"]})


def _target_of(tvm_target: Any) -> str:
    prefix = f"{_KEY}-target="
    return next(str(key)[len(prefix) :] for key in tvm_target.keys if str(key).startswith(prefix))


def _lower(mod: Any, target: Any) -> Any:
    """Compiles the module's kernel through TileHAL; what remains for TileLang is an empty device function."""
    from tvm import IRModule, tirx
    from tvm.ir import CallingConv, load_json, save_json

    if len(mod.functions) != 1:
        names = ", ".join(variable.name_hint for variable in mod.functions)
        raise UnsupportedOp(
            f"a TileHAL target compiles one kernel at a time; this module has {names}",
            hint="call tilelang.compile for each PrimFunc",
        )
    functions = {}
    for variable, func in mod.functions.items():
        clean = func.without_attr("tilelang_out_idx") if "tilelang_out_idx" in (func.attrs or {}) else func
        text = save_json(clean)
        identity = hashlib.sha256(f"{_target_of(target)}\0{text}".encode()).hexdigest()
        _kernels[identity] = _compile(load_json(text), _target_of(target))
        attributes = {
            "global_symbol": variable.name_hint,
            "tilehal.kernel": identity,
            "tilehal.ir": text,
            "target": target,
        }
        host = tirx.PrimFunc([], tirx.Evaluate(0)).with_attrs(attributes)
        functions[variable.name_hint] = host
        device = host.with_attrs({"calling_conv": int(CallingConv.DEVICE_KERNEL_LAUNCH)})
        functions[f"{variable.name_hint}_device"] = device.with_attr("global_symbol", f"{variable.name_hint}_device")
    return IRModule(functions)


def _compile(prim_func: Any, target: str) -> Kernel:
    from core.compiler.driver import compile as compile_kernel

    return compile_kernel(prim_func, target=target, build=None)


def _device_module(mod: Any, target: Any) -> Any:
    """A module that carries the native source for `get_kernel_source` and no code: the kernel is TileHAL's."""
    import tvm_ffi

    source = "\n\n".join(
        _kernels[str(func.attrs["tilehal.kernel"])].get_kernel_source() for _, func in mod.functions.items()
    )
    create = tvm_ffi.get_global_func("ffi.Module.create.cuda")
    return create(b"", "cubin", {}, {"cuda": source})


def _host_module(mod: Any, target_host: Any) -> Any:
    """The C function TileLang calls: it forwards its arguments to `tilehal.launch`, the kernel's identity first."""
    import tvm_ffi

    functions = [func for _, func in mod.functions.items() if "tilehal.kernel" in func.attrs]
    target = _target_of(functions[0].attrs["target"])
    payload = json.dumps(
        {"id": str(functions[0].attrs["tilehal.kernel"]), "target": target, "ir": str(functions[0].attrs["tilehal.ir"])}
    )
    literal = "\n".join(f"  {json.dumps(payload[i : i + 4000])}" for i in range(0, len(payload), 4000))
    source = _HOST_TEMPLATE % {"payload": literal, "launch": _LAUNCH}
    return tvm_ffi.get_global_func("runtime.CSourceModuleCreate")(source, "c", ["main"], [])


_HOST_TEMPLATE = """\
#include <stdint.h>
#include <string.h>
#include "tvm/ffi/c_api.h"

static const char kernel[] =
%(payload)s;

#ifdef __cplusplus
extern "C"
#endif
TVM_FFI_DLL_EXPORT int __tvm_ffi_main(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  static TVMFFIObjectHandle launch = 0;
  TVMFFIAny forwarded[64];
  if (num_args > 63) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "a TileHAL kernel takes at most 63 arguments");
    return -1;
  }
  if (launch == 0) {
    TVMFFIByteArray name = {"%(launch)s", sizeof("%(launch)s") - 1};
    if (TVMFFIFunctionGetGlobal(&name, &launch) != 0) return -1;
    if (launch == 0) {
      TVMFFIErrorSetRaisedFromCStr("RuntimeError", "call core.install_tilelang_targets() before using this kernel");
      return -1;
    }
  }
  memset(forwarded, 0, sizeof(forwarded));
  forwarded[0].type_index = kTVMFFIRawStr;
  forwarded[0].v_c_str = kernel;
  memcpy(forwarded + 1, args, sizeof(TVMFFIAny) * (size_t)num_args);
  return TVMFFIFunctionCall(launch, forwarded, num_args + 1, result);
}
"""


def _launch(payload: str, *arguments: Any) -> None:
    """Runs the kernel a host function stands for; compiles it again when TileLang's cache outlived the process."""
    import torch.utils.dlpack

    identity = payload[8:72]  # {"id": "<64 hexadecimal digits>", ...
    kernel = _kernels.get(identity)
    if kernel is None:
        from tvm.ir import load_json

        data = json.loads(payload)
        kernel = _kernels[data["id"]] = _compile(load_json(data["ir"]), data["target"])
    kernel(*(torch.utils.dlpack.from_dlpack(a) if hasattr(a, "__dlpack__") else a for a in arguments))
