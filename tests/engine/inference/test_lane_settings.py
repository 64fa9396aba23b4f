"""Names of weight formats and caches: read, written, refused."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequest
from engine.inference.lane_settings import (
    Granularity,
    KVFormat,
    KVLayout,
    KVSettings,
    QuantizationMethod,
    WeightFormat,
    WeightSettings,
    parse_kv,
    parse_weights,
)

ALL_WEIGHTS = [
    WeightSettings(WeightFormat.FLOAT32),
    WeightSettings(WeightFormat.BFLOAT16),
    WeightSettings(WeightFormat.FILE),
    *(
        WeightSettings(format, granularity, size, method)
        for format in (WeightFormat.INT8, WeightFormat.INT4)
        for granularity, size in (
            (Granularity.TENSOR, 32),
            (Granularity.CHANNEL, 32),
            (Granularity.GROUP, 32),
            (Granularity.GROUP, 64),
            (Granularity.GROUP, 128),
        )
        for method in QuantizationMethod
    ),
]


@pytest.mark.parametrize("settings", ALL_WEIGHTS, ids=lambda s: s.name)
def test_weights_name_is_read_back(settings: WeightSettings) -> None:
    assert parse_weights(settings.name) == settings


def test_short_names_mean_groups_of_32_rounded_to_nearest() -> None:
    assert parse_weights("int4").name == "int4-g32-rtn"
    assert parse_weights("int8-channel").name == "int8-channel-rtn"
    assert parse_weights("int4-awq").name == "int4-g32-awq"


@pytest.mark.parametrize("name", ["", "int5", "int4-g16", "int4-rtn-g32", "float16", "INT4", "4"])
def test_unknown_weights_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_weights(name)
    assert refusal.value.field == "weights"


@pytest.mark.parametrize(
    "settings",
    [
        KVSettings(),
        KVSettings(KVLayout.OFF),
        KVSettings(KVLayout.CONTIGUOUS, KVFormat.INT4),
        KVSettings(KVLayout.PAGED, KVFormat.INT8, 256, 4),
        KVSettings(window=100),
    ],
    ids=lambda s: s.name,
)
def test_cache_name_is_read_back(settings: KVSettings) -> None:
    assert parse_kv(settings.name) == settings


@pytest.mark.parametrize(
    "name",
    ["", "page", "off-int8", "off-window-8", "paged-sinks-4", "paged-window-4-sinks-4",
     "paged-window-0", "paged-window-9999999", "paged-int2"],
)  # fmt: skip
def test_senseless_caches_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_kv(name)
    assert refusal.value.field == "kv_cache"
