"""The native matrix kernels against float64, against themselves in parts, and path by path."""

from __future__ import annotations

from ctypes import CDLL

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.inference.native.matrix import MatrixPacker
from engine.inference.quantization.tensor import QuantizedTensor
from tests.engine.inference.native.matrices import (
    FORMS,
    Form,
    Sample,
    as_the_kernel_sees,
    compile_kernels,
    make_sample,
    multiply,
    prepare,
)

EPSILON = 2.0**-24  # half a unit in the last place of float32
SHAPES = ((96, 64), (70, 576), (33, 1536), (128, 320))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> CDLL:
    return compile_kernels(tmp_path_factory.mktemp("plain") / "kernels.so", "-DFT_PLAIN")


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> CDLL:
    return compile_kernels(tmp_path_factory.mktemp("native") / "kernels.so")


def inputs_of(rows: int, columns: int, seed: int = 1) -> NDArray[np.float32]:
    random = np.random.default_rng(seed)
    return random.standard_normal((rows, columns)).astype(np.float32)


def sum_bound(sample: Sample, seen_mk: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far float32 sums may be from exact ones: γ = c·ε of the sum of magnitudes, with c
    operations on the way of a term (Higham, Accuracy and Stability of Numerical Algorithms, 3.1).

    Floats are rounded at most twice an input. Levels are summed exactly within 32 inputs, and
    scales, offsets and bias round a few times more; what a level minus its zero cancels is still
    in the magnitudes that are rounded when there are offsets, so those count apart.
    """
    columns = seen_mk.shape[1]
    roundings = 2 * columns + 8 if not sample.form.quantised else 6 * (columns // 32 + 1) + 8
    magnitude = np.abs(seen_mk) @ np.abs(sample.weight_nk).T + np.abs(sample.bias_n)
    if sample.form.offsets:
        # |level * scale| + |offset| may exceed |weight|: both are below 3 * 0.01 * 4 + 4 * 0.1
        # standard deviations here, so twice the largest weight covers them.
        largest = 2 * np.abs(sample.weight_nk).max()
        magnitude += largest * np.abs(seen_mk).sum(axis=1, keepdims=True)
    return roundings * EPSILON * magnitude


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_rows_come_out_as_they_went_in(form: Form, shape: tuple[int, int], native: CDLL) -> None:
    sample = make_sample(native, form, *shape, seed=5)
    which = torch.tensor([shape[0] - 1, 0, 31, 31, 32])
    got = sample.native.rows(which).double().numpy()
    np.testing.assert_allclose(got, sample.weight_nk[which.numpy()], rtol=2e-7, atol=1e-8)


@pytest.mark.parametrize("path", ["plain", "native"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_products_are_those_of_the_dequantised_weights(
    form: Form, shape: tuple[int, int], path: str, request: pytest.FixtureRequest
) -> None:
    library = request.getfixturevalue(path)
    sample = make_sample(library, form, *shape, seed=3)
    for rows in (1, 2, 5, 8, 13, 33):
        x = inputs_of(rows, shape[1])
        seen = as_the_kernel_sees(form, x)
        expected = seen @ sample.weight_nk.T + sample.bias_n
        error = np.abs(multiply(library, sample.native, x) - expected)
        assert (error <= sum_bound(sample, seen)).all(), error.max()


@pytest.mark.parametrize("form", [form for form in FORMS if form.quantised], ids=str)
def test_eight_bit_inputs_cost_at_most_half_a_level_each(native: CDLL, form: Form) -> None:
    sample = make_sample(native, form, 70, 576, seed=4)
    x = inputs_of(6, 576)
    chunks = np.abs(x).reshape(6, -1, 32).max(axis=-1)
    half_levels = np.repeat(chunks / 127 / 2, 32, axis=1) * (1 + 1e-5)
    bound = half_levels @ np.abs(sample.weight_nk).T + sum_bound(sample, np.abs(x) + half_levels)
    expected = x.astype(np.float64) @ sample.weight_nk.T + sample.bias_n
    assert (np.abs(multiply(native, sample.native, x) - expected) <= bound).all()


@pytest.mark.parametrize("columns", [1, 31, 33, 72])
@pytest.mark.parametrize("form", [form for form in FORMS if not form.group], ids=str)
def test_rows_of_any_length(native: CDLL, form: Form, columns: int) -> None:
    sample = make_sample(native, form, 40, columns, seed=5)
    x = inputs_of(3, columns)
    seen = as_the_kernel_sees(form, x)
    error = np.abs(multiply(native, sample.native, x) - seen @ sample.weight_nk.T - sample.bias_n)
    assert (error <= sum_bound(sample, seen)).all()


@pytest.mark.parametrize("path", ["plain", "native"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_row_in_a_batch_is_that_row_alone(
    form: Form, path: str, request: pytest.FixtureRequest
) -> None:
    library = request.getfixturevalue(path)
    sample = make_sample(library, form, 70, 576, seed=6)
    x = inputs_of(130, 576)
    alone = np.concatenate([multiply(library, sample.native, x[i : i + 1]) for i in range(130)])
    for rows in (*range(2, 34), 47, 64, 127, 130):
        together = multiply(library, sample.native, x[:rows])
        np.testing.assert_array_equal(together, alone[:rows])


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_parts_are_the_whole(native: CDLL, form: Form) -> None:
    sample = make_sample(native, form, 200, 576, seed=7)
    x = inputs_of(9, 576)
    whole = multiply(native, sample.native, x)
    for bounds in ((32,), (96,), (192,), (64, 128), (32, 64, 96, 128, 160, 192)):
        np.testing.assert_array_equal(multiply(native, sample.native, x, bounds), whole)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_part_touches_no_other_output(native: CDLL, form: Form) -> None:
    sample = make_sample(native, form, 70, 64, seed=8)
    x = inputs_of(2, 64)
    zeros = np.zeros((2, 70), np.float32)
    onto = multiply(native, sample.native, x, (32,), onto=zeros)
    np.testing.assert_array_equal(onto, multiply(native, sample.native, x))
    ones = np.ones((2, 70), np.float32)
    np.testing.assert_array_equal(multiply(native, sample.native, x, onto=ones), onto + 1)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_both_paths_agree(native: CDLL, plain: CDLL, form: Form) -> None:
    fast = make_sample(native, form, 70, 576, seed=9)
    slow = make_sample(plain, form, 70, 576, seed=9)
    assert fast.native.nbytes == slow.native.nbytes
    x = inputs_of(11, 576)
    difference = multiply(native, fast.native, x) - multiply(plain, slow.native, x)
    bound = 2 * sum_bound(fast, as_the_kernel_sees(form, x))
    assert (np.abs(difference) <= bound).all()


@pytest.mark.parametrize("form", [FORMS[0], FORMS[1], FORMS[2], FORMS[6]], ids=str)
def test_both_paths_prepare_the_same_inputs(native: CDLL, plain: CDLL, form: Form) -> None:
    sample = make_sample(native, form, 32, 320, seed=9)
    x = inputs_of(40, 320) * np.geomspace(1e-20, 1e20, 40, dtype=np.float32)[:, np.newaxis]
    x[3, :64] = 0
    x[4, 5] = 1e-38
    fast, slow = prepare(native, sample.native, x), prepare(plain, sample.native, x)
    np.testing.assert_array_equal(fast, slow)


@pytest.mark.parametrize("path", ["plain", "native"])
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_what_is_not_finite_shows(
    form: Form, broken: float, path: str, request: pytest.FixtureRequest
) -> None:
    library = request.getfixturevalue(path)
    sample = make_sample(library, form, 40, 64, seed=10)
    x = inputs_of(3, 64)
    x[1, 7] = broken
    y = multiply(library, sample.native, x)
    assert not np.isfinite(y[1]).any()
    assert np.isfinite(y[[0, 2]]).all()


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_zero_gives_the_bias(native: CDLL, form: Form) -> None:
    sample = make_sample(native, form, 40, 64, seed=11)
    y = multiply(native, sample.native, np.zeros((2, 64), np.float32))
    np.testing.assert_array_equal(y, np.broadcast_to(sample.bias_n.astype(np.float32), (2, 40)))


def test_bytes_are_those_of_the_bits(native: CDLL) -> None:
    def nbytes(form: Form) -> int:
        return make_sample(native, form, 64, 576, seed=0).native.nbytes - 64 * 4  # the bias

    assert nbytes(Form("f32")) == 64 * 576 * 4
    assert nbytes(Form("bf16")) == 64 * 576 * 2
    assert nbytes(Form("i8", 32)) == 64 * (576 + 18 * 2)
    assert nbytes(Form("i8")) == 64 * (576 + 2)
    assert nbytes(Form("i4", 32, offsets=True)) == 64 * (288 + 18 * 4)


def test_refuses_what_it_cannot_hold(native: CDLL) -> None:
    levels = torch.zeros((4, 96), dtype=torch.int8)
    packer = MatrixPacker(native)
    with pytest.raises(ValueError, match="groups of 48"):
        packer.pack_quantized(QuantizedTensor(8, 48, levels, torch.ones(4, 2)))
    with pytest.raises(ValueError, match="groups of 64 in rows of 96"):
        packer.pack_quantized(QuantizedTensor(4, 64, levels, torch.ones(4, 1)))
    with pytest.raises(ValueError, match="scales"):
        packer.pack_quantized(QuantizedTensor(8, 96, levels, torch.full((4, 1), 0.1)))
