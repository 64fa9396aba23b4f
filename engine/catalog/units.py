"""Units and how numbers are shown. GB is 10^9 bytes, GiB is 2^30: a label always says which."""

from __future__ import annotations

from math import floor, log10

KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12
KIB, MIB, GIB = 2**10, 2**20, 2**30

_SI_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SMALL_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_DECIMAL_BYTES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_BINARY_NAMES = {"PB": (2**50, "PiB"), "TB": (2**40, "TiB"), "GB": (GIB, "GiB"), "MB": (MIB, "MiB")}


def significant(value: float, digits: int = 3) -> str:
    """The value with that many significant digits, without an exponent: 0.0123, 6.63, 1,230."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - floor(log10(abs(rounded)))
    return f"{rounded:,.{max(decimals, 0)}f}"


def bytes_label(count: float) -> str:
    """Bytes in decimal and binary units side by side: "48.0 GB / 44.7 GiB"."""
    for scale, name in _DECIMAL_BYTES:
        if abs(count) >= scale:
            decimal = f"{count / scale:,.1f} {name}"
            if name not in _BINARY_NAMES:
                return f"{decimal} / {count / KIB:,.1f} KiB"
            binary, binary_name = _BINARY_NAMES[name]
            return f"{decimal} / {count / binary:,.1f} {binary_name}"
    return f"{count:,.0f} B" if count == int(count) else f"{count:,.1f} B"


def time_label(seconds: float) -> str:
    """Seconds with a fitting prefix: "6.63 ms"."""
    for scale, name in _SMALL_TIMES:
        if seconds >= scale:
            return f"{significant(seconds / scale)} {name}"
    return f"{significant(seconds / 1e-9)} ns"


def si_label(value: float, unit: str) -> str:
    """A value with an SI prefix before its unit: "312 TFLOP/s"."""
    for scale, prefix in _SI_PREFIXES:
        if abs(value) >= scale:
            return f"{significant(value / scale)} {prefix}{unit}"
    return f"{significant(value)} {unit}"


def label(value: float, unit: str) -> str:
    """A value as a person reads it, by its unit (s, B, FLOP, FLOP/s, B/s, FLOP/B, tokens/s, …)."""
    if unit == "s":
        return time_label(value)
    if unit == "B":
        return bytes_label(value)
    if unit in {"FLOP", "FLOP/s", "B/s"}:
        return si_label(value, unit)
    if isinstance(value, int):
        return f"{value:,} {unit}".rstrip()
    return f"{significant(value)} {unit}".rstrip()


def count(number: int, noun: str) -> str:
    """A number of things: "1 request", "64 requests"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
