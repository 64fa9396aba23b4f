"""A device of one's own from JSON: units stand in the names of fields, sparse rates are questioned.

    {"name": "My GPU", "memory_gb": 80, "bandwidth_gb_s": 3350,
     "dense_tflops": {"bf16": 989.4, "fp8": 1978.9},
     "interconnect": {"type": "NVLink4", "bidirectional_gb_s": 900},
     "tdp_w": 700, "usd_per_hour": 2.5, "category": "datacenter-gpu", "vendor": "NVIDIA"}

Data sheets often give the rate with 2:4 sparsity, which is twice the dense one. Such figures go
under "sparse_tflops" and are halved. One under "dense_tflops" that is exactly twice a known dense
rate is refused with the question, unless "confirmed_dense" names its format.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from engine.catalog.device import FALLBACKS, HardwareSpec, Interconnect, Price
from engine.catalog.hardware import published_hardware
from engine.catalog.importing.document import ConfigDocument, as_object
from engine.catalog.units import GB, GIB, significant
from engine.refusals import refused

_TERA = 10**12
_SAME = 0.002
"""Data sheets round: 1,979 is twice 989.4."""
_WIDE = ("fp32", "tf32", "bf16", "fp16")
_MAX_NAME = 100
_SPARSE_OVER_DENSE = 2


def read_custom_hardware(value: object, path: str = "hardware.custom") -> HardwareSpec:
    """The device that a JSON object describes.

    Raises:
        InvalidRequest: a field is missing, mistyped or out of range, or a rate looks like one
            with sparsity (names the field).
        UnsupportedModel: a field is unknown (names it).
    """
    document = ConfigDocument(as_object(value, path), path)
    confirmed = document.texts("confirmed_dense") or ()
    dense = _rates(document, "dense_tflops")
    sparse = _rates(document, "sparse_tflops")
    for number_format, rate in dense.items():
        if number_format not in confirmed:
            _question(f"{path}.dense_tflops.{number_format}", number_format, rate)
    for number_format in sparse.keys() & dense.keys():
        document.wrong("sparse_tflops", f"{number_format} is under dense_tflops too; give one")
    rates = {**dense, **{key: rate / _SPARSE_OVER_DENSE for key, rate in sparse.items()}}
    if not rates.keys() & set(_WIDE):
        field = document.field("dense_tflops")
        raise refused("rates_needed", field=field, choices=", ".join(_WIDE))
    spec = HardwareSpec(
        id="custom",
        name=_words(document, "name") or "custom device",
        vendor=_words(document, "vendor"),
        category=_words(document, "category") or "custom",
        memory_bytes=round(_bytes(document, "memory", "", 10**16)),
        bandwidth=_bytes(document, "bandwidth", "_s", 10**18),
        dense_flops=MappingProxyType(rates),
        interconnect=_link(document.inner("interconnect")),
        tdp=_optional(document, "tdp_w", 10**6),
        price=_price(document),
        sources=("given by the user",),
        notes=_sparse_note(sparse),
        kind="custom",
    )
    document.done()
    return spec


def dense_if_sparse(number_format: str, rate: float) -> tuple[HardwareSpec, float] | None:
    """The known device whose dense rate is half of ``rate`` FLOP/s, and that dense rate.

    None where no device has such a rate, or where some device has ``rate`` itself as its dense
    one.
    """
    known = [
        (device, device.dense_flops[number_format])
        for device in published_hardware()
        if number_format in device.dense_flops
    ]
    if any(abs(rate / dense - 1) < _SAME for _, dense in known):
        return None
    for device, dense in known:
        if abs(rate / (_SPARSE_OVER_DENSE * dense) - 1) < _SAME:
            return device, dense
    return None


def _question(field: str, number_format: str, rate: float) -> None:
    found = dense_if_sparse(number_format, rate)
    if found is None:
        return
    device, dense = found
    raise refused(
        "twice_the_dense_rate",
        field=field,
        format=number_format,
        device=device.name,
        rate=f"{dense / _TERA:g}",
    )


def _sparse_note(sparse: Mapping[str, float]) -> str:
    """What was made of rates with sparsity."""
    return " ".join(
        f"{name}: {significant(rate / _TERA, 4)} TFLOP/s were given with 2:4 sparsity; dense "
        f"products run at half of it, {significant(rate / _SPARSE_OVER_DENSE / _TERA, 4)} TFLOP/s."
        for name, rate in sparse.items()
    )


def _words(document: ConfigDocument, key: str) -> str:
    """A short text of one line; "" where the key is absent."""
    text = document.plain_text(key).strip()
    if len(text) > _MAX_NAME or not text.isprintable():
        document.wrong(key, f"give at most {_MAX_NAME} characters that can be printed")
    return text


def _rates(document: ConfigDocument, key: str) -> dict[str, float]:
    inner = document.inner(key)
    if inner is None:
        return {}
    rates = {name: inner.number(name, 10**9) * _TERA for name in FALLBACKS if name in inner}
    inner.done()
    return rates


def _bytes(document: ConfigDocument, what: str, per: str, high: int) -> float:
    """A size under "..._gb" (10^9 bytes) or "..._gib" (2^30 bytes), one of the two."""
    units = {f"{what}_gb{per}": GB, f"{what}_gib{per}": GIB}
    given = [key for key in units if key in document]
    if len(given) != 1:
        document.wrong(next(iter(units)), f"give one of {' and '.join(units)}")
    return document.number(given[0], high / GB) * units[given[0]]


def _link(document: ConfigDocument | None) -> Interconnect | None:
    """All of a device's links together; a figure for both directions is halved."""
    if document is None:
        return None
    one, both = "unidirectional_gb_s", "bidirectional_gb_s"
    if (one in document) == (both in document):
        document.wrong(one, f"give one of {one} and {both}")
    given = one if one in document else both
    bandwidth = document.number(given, 10**9) * GB
    link = Interconnect(_words(document, "type"), bandwidth if given == one else bandwidth / 2)
    document.done()
    return link


def _price(document: ConfigDocument) -> Price | None:
    each = _optional(document, "usd_per_hour", 10**6)
    return None if each is None else Price(each, each, "given by the user")


def _optional(document: ConfigDocument, key: str, high: float) -> float | None:
    return document.number(key, high) if key in document else None
