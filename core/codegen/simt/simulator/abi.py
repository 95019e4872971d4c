"""The structures of runtime/abi.h, for ctypes."""

from __future__ import annotations

import ctypes
from enum import IntEnum


class FaultKind(IntEnum):
    """What a simulated launch can be stopped by."""

    NONE = 0
    OUT_OF_BOUNDS = 1
    RACE = 2
    UNINITIALISED = 3
    DIVERGENT_BARRIER = 4
    MASK = 5
    INACTIVE_LANE = 6
    PARTIAL_WAVE = 7
    MISALIGNED = 8
    STACK = 9
    TRAP = 10
    ADDRESS = 11


class Region(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("begin", ctypes.c_uint64), ("bytes", ctypes.c_uint64))


class Part(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("offset", ctypes.c_uint64), ("bytes", ctypes.c_uint64))


class LaunchRequest(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("wave_lanes", ctypes.c_uint32),
        ("workers", ctypes.c_uint32),
        ("checked", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("dynamic_shared_bytes", ctypes.c_uint64),
        ("regions", ctypes.POINTER(Region)),
        ("region_count", ctypes.c_uint64),
        ("parts", ctypes.POINTER(Part)),
        ("part_count", ctypes.c_uint64),
        ("parts_of_line", ctypes.POINTER(ctypes.c_uint64)),
        ("line_count", ctypes.c_uint64),
    )


class Fault(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("is_write", ctypes.c_uint32),
        ("is_shared", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("other_line", ctypes.c_uint32),
        ("other_is_write", ctypes.c_uint32),
        ("missing", ctypes.c_uint32),
        ("thread", ctypes.c_int32),
        ("other_thread", ctypes.c_int32),
        ("block", ctypes.c_uint32 * 3),
        ("is_local", ctypes.c_uint32),
        ("offset", ctypes.c_int64),
        ("buffer_bytes", ctypes.c_uint64),
        ("buffer", ctypes.c_char * 96),
        ("detail", ctypes.c_char * 256),
    )
