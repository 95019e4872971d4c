"""Calling a simulated kernel: tensors by address, sizes and grids computed from the arguments, blocks in parallel."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backends.ascend.simulator.native import LoadedObject
from core.errors import LaunchError

from backends.ascend.arguments import LaunchPlan

if TYPE_CHECKING:
    from core.compiler import LoweredKernel
