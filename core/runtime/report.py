"""What a compiled kernel says about itself: `k.config`, `k.resources`, `k.provenance`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from core.compiler.artifacts import Evidence, Resources
from core.tiling import Rejection


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One parameter of a kernel.

    Attributes:
        requested: the value asked for, by the user, a rule or the kernel's own text.
        effective: what runs. The chip's compiler may have made something else of it (warp specialisation launches more
            threads than asked), and so may a rewrite that keeps the kernel's meaning (0 stages where no loop is
            pipelined any more). None when the parameter does not apply on this chip, or to nothing in this kernel.
        chosen_by: `user`, `rule:<name>`, `tuned:<where>`, `shrunk` (smaller than anything that was proposed, because
            nothing of that fits), `default`, or `kernel` for a number written in the kernel.
        note: why effective differs, or why it does not apply.
        reason: why whoever chose it did: the rule's own sentence.
    """

    requested: Any
    effective: Any
    chosen_by: str
    note: str = ""
    reason: str = ""

    @property
    def applies(self) -> bool:
        return self.effective is not None


@dataclass(frozen=True, slots=True)
class TileChoice:
    """How the tile parameters of a factory came to be what they are.

    Attributes:
        source: `ranking`, `user` (all of them given), or `tuned:<where>`.
        reason: why this configuration and no other, one sentence.
        place: of the candidate that compiled, 1 for the first choice.
        ranked, refused: how many candidates could be compiled, as far as was known, and how many could not.
        predicted_s: the cost model's device time of one call, seconds; None where it says nothing.
        bound: what decides that time (`matrix`, `memory`, ...).
        rules: the rules that proposed or weighed it, by name, each with its reason.
    """

    source: str
    reason: str
    place: int = 1
    ranked: int = 1
    refused: int = 0
    predicted_s: float | None = None
    bound: str | None = None
    rules: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KernelConfig(Mapping[str, ConfigEntry]):
    """Tile parameters by name, relaxations of meaning the user allowed, and the candidates that were tried and failed.

    A mapping: `k.config["block_M"].effective`. `k.config.tiles` is the plain `{name: requested}`.

    Attributes:
        rejected: candidates that failed to compile before this one did, and configurations that a rule prefers by name
            and that were refused. `factory.rank(...).refused` has all.
        choice: how the tile parameters were chosen; None for a kernel that is no `@core.kernel` factory.
    """

    entries: Mapping[str, ConfigEntry] = field(default_factory=dict)
    relaxations: tuple[str, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    choice: TileChoice | None = None

    def __getitem__(self, name: str) -> ConfigEntry:
        return self.entries[name]

    def __iter__(self) -> Any:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def tiles(self) -> dict[str, Any]:
        return {name: entry.requested for name, entry in self.entries.items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "parameters": {name: asdict(entry) for name, entry in self.entries.items()},
            "relaxations": list(self.relaxations),
            "rejected": [{"tiles": dict(r.tiles), "reason": r.reason} for r in self.rejected],
            "choice": None if self.choice is None else asdict(self.choice),
        }


@dataclass(frozen=True, slots=True)
class KernelResources:
    """`predicted` from the kernel's text and the chip before building; `actual` once a toolchain has built it."""

    predicted: Resources
    actual: Resources | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a kernel came from.

    Attributes:
        evidence: how far it is proved here: `device`, `vendor compiler`, `simulated` or `source only`.
        backend: distribution and version that lowered it, e.g. `tilehal-cuda 0.1.0`.
        toolchain: the native compiler with its version; None while not built.
        rewrites: changes made to the kernel (legalisation) or, for a simulator, to its source.
        source_cached, binary_cached: whether they came from the cache.
        launch: how calls reach the device (`the CUDA driver, compiled`), and why not the fastest way; None before the
            first call.
    """

    target: str
    evidence: Evidence
    backend: str
    extensions: tuple[str, ...]
    route: str
    language: str
    tilelang: str
    cache_key: str
    toolchain: str | None = None
    rewrites: tuple[str, ...] = ()
    source_cached: bool = False
    binary_cached: bool = False
    launch: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
