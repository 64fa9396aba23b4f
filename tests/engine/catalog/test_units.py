from __future__ import annotations

import pytest

from engine.catalog.units import bytes_label, count, label, si_label, significant, time_label


@pytest.mark.parametrize(
    ("count_", "text"),
    [
        (48e9, "48.0 GB / 44.7 GiB"),
        (80_000_000_000, "80.0 GB / 74.5 GiB"),
        (16 * 2**30, "17.2 GB / 16.0 GiB"),
        (335_544_320, "335.5 MB / 320.0 MiB"),
        (524_288, "524.3 kB / 512.0 KiB"),
        (1.5e12, "1.5 TB / 1.4 TiB"),
        (512, "512 B"),
        (1.5, "1.5 B"),
        (0, "0 B"),
    ],
)
def test_bytes_are_labelled_in_both_units(count_: float, text: str) -> None:
    assert bytes_label(count_) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0, 3, "0"),
        (6.6348, 3, "6.63"),
        (0.012345, 3, "0.0123"),
        (1234.5, 3, "1,230"),
        (9.999, 3, "10.0"),
    ],
)
def test_significant_digits(value: float, digits: int, text: str) -> None:
    # 9.999 rounds up into the next decade: three digits of 10.0, not 10.00.
    assert significant(value, digits) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.50 s"), (0.0066348, "6.63 ms"), (2.5e-5, "25.0 µs"), (3e-9, "3.00 ns"), (0, "0 ns")],
)
def test_times(seconds: float, text: str) -> None:
    assert time_label(seconds) == text


def test_rates_and_plain_units() -> None:
    assert si_label(312e12, "FLOP/s") == "312 TFLOP/s"
    assert label(2039e9, "B/s") == "2.04 TB/s"
    assert label(153.016, "FLOP/B") == "153 FLOP/B"
    assert label(40, "blocks") == "40 blocks"
    assert label(6.74e9, "FLOP") == "6.74 GFLOP"


def test_counts_agree_in_number() -> None:
    assert count(1, "request") == "1 request"
    assert count(4096, "request") == "4,096 requests"
