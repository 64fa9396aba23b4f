"""Every measured row becomes a scenario, or says why not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from engine.catalog.hardware import get_hardware
from engine.errors import FileFormatError
from engine.simulator.efficiency import device_class, engine_ids
from engine.simulator.layout import Layout
from engine.simulator.validation.cases import (
    Case,
    Unusable,
    find_device,
    known_devices,
    known_models,
    make_case,
)
from engine.simulator.validation.measurement import Measurement, read_measurements

HEAD = "row_id,source_id,framework,device,model,metric,value,batch,prompt_tokens,notes"


@pytest.fixture(scope="module")
def rows() -> dict[str, Measurement]:
    return {row.row_id: row for row in read_measurements()}


def _case(row: Measurement) -> Case:
    found = make_case(row)
    assert isinstance(found, Case)
    return found


def test_every_row_is_read_once_and_nearly_all_are_usable(rows: dict[str, Measurement]) -> None:
    assert len(rows) == 2791
    found = [make_case(row) for row in rows.values()]
    reasons = Counter(item.reason for item in found if isinstance(item, Unusable))
    assert sum(reasons.values()) < 0.02 * len(rows)
    assert all(count >= 1 and reason for reason, count in reasons.items())


def test_every_engine_has_numbers(rows: dict[str, Measurement]) -> None:
    engines = {item.engine for item in map(make_case, rows.values()) if isinstance(item, Case)}
    assert engines <= set(engine_ids())


def test_file_sizes_give_the_bits_of_a_weight(rows: dict[str, Measurement]) -> None:
    case = _case(rows["S01-00001"])
    # 4.58 GiB for 8.03 billion weights.
    assert case.formats.weights.bits == pytest.approx(4.58 * 2**30 * 8 / 8.03e9, abs=0.01)
    assert case.formats.activations.name == "fp16"
    assert case.engine == "llama.cpp-cuda-2024"
    assert case.hardware.id == "rtx-3070"


def test_divisions(rows: dict[str, Measurement]) -> None:
    by_text = {
        (row.source_id, row.parallelism, row.devices): _case(row).layout
        for row in rows.values()
        if isinstance(make_case(row), Case)
    }
    assert by_text["S03", "TP4", 4] == Layout(tensor=4)
    assert by_text["S06", "DEP4", 4] == Layout(data=4, experts=True)
    assert by_text["S01", "layer-split (pipeline)", 4] == Layout(stages=4)
    assert by_text["S11", "1 nodes x 8", 8].devices == 8


def test_a_labelled_lie_is_not_believed(rows: dict[str, Measurement]) -> None:
    flagged = [r for r in rows.values() if "declared_fp16_but_engines_run_fp8" in r.flags]
    assert {_case(row).formats.weights.name for row in flagged} == {"fp8"}


def test_apple_chips_have_as_much_arithmetic_as_cores() -> None:
    small, full = find_device("M1 Pro 14-core 16GB"), get_hardware("m1-pro")
    assert small is not None
    assert small.bandwidth == full.bandwidth
    assert small.dense_flops["fp16"] == pytest.approx(full.dense_flops["fp16"] * 14 / 16)
    assert find_device("Abacus") is None


def test_measured_models_have_their_published_size() -> None:
    units = {"B": 1e9}
    for spec in known_models().values():
        if spec.family == "measured":
            nominal = float(spec.nominal_params[:-1]) * units[spec.nominal_params[-1]]
            assert spec.num_parameters == pytest.approx(nominal, rel=0.01), spec.id


def test_measured_devices_have_a_class_and_sources() -> None:
    for spec in known_devices().values():
        assert spec.sources
        assert device_class(spec)


def test_other_files_may_carry_notes_instead_of_details(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(
        f'{HEAD}\nX-1,X,llama.cpp hip,MI250,llama-2-7b,prefill_tok_s,900,1,512,"x; -fa 1 y"\n',
        encoding="utf-8",
    )
    (row,) = read_measurements(file)
    assert row.detail == {"flash": "1"}
    unknown = make_case(row)
    assert isinstance(unknown, Unusable)
    assert unknown.reason == "the number format is not known"


@pytest.mark.parametrize(
    ("text", "field"),
    [("row_id,value\nX,1\n", "device"), (f"{HEAD}\nX,X,a,b,c,d,fast,1,1,\n", None)],
)
def test_malformed_files_are_refused(tmp_path: Path, text: str, field: str | None) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(FileFormatError) as error:
        read_measurements(file)
    assert error.value.field == field
