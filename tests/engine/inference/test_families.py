"""Every family against transformers: the slow path, the fast one, its cache and its batches."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from engine.inference.executor import TorchExecutor
from engine.inference.lane_settings import parse_weights
from engine.inference.model.load import load_transformer
from engine.inference.model.reference import ReferenceModel
from engine.inference.model.transformer import Transformer
from engine.inference.native.weights import unsupported
from engine.inference.quantization.quantize import quantize
from engine.inference.weights import open_checkpoint
from tests.engine.inference.families_for_tests import FAMILIES, WINDOW, Written, write_family
from tests.engine.inference.native.steps import decoder, step
from tests.engine.inference.runs_for_tests import (
    CPU,
    Run,
    alone,
    logits,
    new_cache,
    random_ids,
    sequence,
)

pytestmark = pytest.mark.usefixtures("one_thread")

LONG = 90
assert LONG > 3 * WINDOW


@dataclass(frozen=True)
class Case:
    """A family in all its forms, and what transformers says about a text far beyond the window."""

    name: str
    written: Written
    reference: ReferenceModel
    fast: Transformer
    ids: list[int]
    expected: Tensor


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    written = write_family(request.param, tmp_path_factory.mktemp(request.param))
    ids = random_ids(LONG, seed=7)
    return Case(
        request.param,
        written,
        ReferenceModel(written.checkpoint),
        load_transformer(written.checkpoint, torch.float32, CPU),
        ids,
        written.logits(ids),
    )


def _close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=2e-4, rtol=2e-4)


# Shorter than the windows, just as long, one longer, and far beyond them.
@pytest.mark.parametrize("length", [1, WINDOW - 1, WINDOW, WINDOW + 1, LONG])
def test_the_reference_equals_transformers(case: Case, length: int) -> None:
    _close(case.reference.logits(case.ids[:length]), case.expected[:length])


@pytest.mark.parametrize("length", [1, WINDOW - 1, WINDOW, WINDOW + 1, LONG])
def test_a_whole_prefill_equals_transformers(case: Case, length: int) -> None:
    whole = sequence(case.ids[:length], table=range(3, 20))
    _close(logits(case.fast, new_cache(case.fast), whole)["a"], case.expected[length - 1])


@pytest.mark.parametrize("chunks", [[1, 89], [20, 1, 40, 29], [7] * 12 + [6]], ids=str)
def test_chunks_equal_transformers(case: Case, chunks: list[int]) -> None:
    cache, start = new_cache(case.fast), 0
    for size in chunks:
        chunk = sequence(case.ids[start : start + size], start=start, table=[9, 2, 7, 1, 4, 8])
        start += size
        _close(logits(case.fast, cache, chunk)["a"], case.expected[start - 1])


def test_decoding_equals_transformers(case: Case) -> None:
    cache = new_cache(case.fast)
    logits(case.fast, cache, sequence(case.ids[:8], table=range(6)))
    for position in range(8, LONG):
        one = sequence([case.ids[position]], start=position, table=range(6))
        _close(logits(case.fast, cache, one)["a"], case.expected[position])


def test_batched_equals_alone(case: Case) -> None:
    """Sequences on both sides of the window, with single tokens and a chunk in one step."""
    cache = new_cache(case.fast)
    ends = {"a": 89, "b": 60, "c": WINDOW, "d": WINDOW + 1, "e": 10}
    tables = {name: range(6 * row, 6 * row + 6) for row, name in enumerate(ends)}
    for name, end in ends.items():
        prompt = sequence(case.ids[: end - 1], table=tables[name], request_id=name)
        logits(case.fast, cache, prompt)
    steps = [
        sequence([case.ids[end - 1]], start=end - 1, table=tables[name], request_id=name)
        for name, end in ends.items()
    ]
    chunk = sequence(case.ids[:33], table=range(30, 36), request_id="f")
    together = logits(case.fast, cache, *steps, chunk)
    for name, end in {**ends, "f": 33}.items():
        _close(together[name], case.expected[end - 1])


def test_greedy_tokens_are_those_of_transformers(case: Case) -> None:
    with torch.no_grad():
        theirs = case.written.model.generate(
            torch.tensor([case.ids[:20]]),
            max_new_tokens=30,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )[0, 20:].tolist()
    executor = TorchExecutor(case.fast, num_blocks=16)
    assert alone(executor, case.ids[:20], 30) == theirs
    batched = Run(executor)
    batched.add("it", case.ids[:20], 30)
    batched.add("another", case.ids[30:77], 20)
    batched.finish()
    assert batched.tokens("it") == theirs


def test_bfloat16_stays_close(case: Case) -> None:
    model = load_transformer(case.written.checkpoint, torch.bfloat16, CPU)
    actual = logits(model, new_cache(model), sequence(case.ids, table=range(6)))["a"]
    p, q = case.expected[-1].log_softmax(-1), actual.log_softmax(-1)
    assert float((p.exp() * (p - q)).sum()) < 0.02


NATIVE = {"llama", "smollm2", "mistral", "mistral-global", "qwen2", "qwen2-window", "qwen3"}


def test_native_steps_equal_transformers_or_say_what_they_lack(case: Case) -> None:
    reason = unsupported(case.fast, new_cache(case.fast))
    assert (reason is None) == (case.name in NATIVE), reason
    if reason is not None:
        return
    native = decoder(case.fast, new_cache(case.fast))
    start = 0
    for size in (20, 1, 40, 1, 28):
        chunk = sequence(case.ids[start : start + size], start=start, table=[9, 2, 7, 1, 4, 8])
        start += size
        _close(step(native, chunk)["a"], case.expected[start - 1])


@pytest.mark.parametrize("scheme", ["int8-channel", "int8-channel-awq"])
def test_quantised_weights_stay_close(case: Case, scheme: str) -> None:
    """8 bits are close to the model only where every scale went to the right place."""
    weights = quantize(case.written.checkpoint, parse_weights(scheme))
    model = load_transformer(weights.checkpoint, torch.float32, CPU, matrices=weights.matrices)
    actual = logits(model, new_cache(model), sequence(case.ids, table=range(6)))["a"]
    _close(actual, ReferenceModel(weights.dequantized()).logits(case.ids)[-1])
    p, q = case.expected[-1].log_softmax(-1), actual.log_softmax(-1)
    assert float((p.exp() * (p - q)).sum()) < 0.01


def test_all_parameters_are_loaded(case: Case) -> None:
    config = case.written.checkpoint.config
    assert config.num_parameters == case.written.model.num_parameters()
    norms_of_heads = sum(
        (config.num_attention_heads - 1 + config.num_kv_heads - 1) * config.head_dim
        for _ in range(config.num_layers)
        if config.qk_norm
    )
    copies = config.vocab_size * config.hidden_size if config.tied_embeddings else 0
    expected = 4 * (config.num_parameters + norms_of_heads)
    assert case.fast.weights.nbytes in (expected, expected + 4 * copies)


def test_a_shorter_context_is_all_that_is_kept(case: Case) -> None:
    short = load_transformer(case.written.checkpoint, torch.float32, CPU, max_positions=32)
    assert short.max_positions == 32
    assert all(table.max_positions == 32 for table in short.rotary)
    whole = sequence(case.ids[:32], table=range(2))
    _close(logits(short, new_cache(short), whole)["a"], case.expected[31])


def test_the_family_is_named(case: Case) -> None:
    assert (
        case.written.checkpoint.config.family
        == case.written.model.config.model_type.removesuffix("_text")
    )


def test_layers_that_turn_alike_share_a_table(tmp_path) -> None:
    written = write_family("gemma3", tmp_path)
    model = load_transformer(written.checkpoint, torch.float32, CPU)
    assert len(model.rotary) == 2
    assert [layer.rotary for layer in model.weights.layers] == [0, 0, 0, 0, 0, 1, 0]
    assert [layer.attention.window for layer in model.weights.layers] == [
        *[WINDOW] * 5,
        None,
        WINDOW,
    ]


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_gpt2_with_either_prefix_and_stored_masks(prefix: str, tmp_path) -> None:
    """The published files have no prefix, and causal masks among the weights."""
    from safetensors.torch import load_file, save_file

    written = write_family("gpt2", tmp_path)
    path = tmp_path / "model.safetensors"
    stored = load_file(path)
    renamed = {prefix + name.removeprefix("transformer."): stored[name] for name in stored}
    masks = {f"{prefix}h.{layer}.attn.bias": torch.ones(1, 1, 8, 8).tril() for layer in range(4)}
    save_file(renamed | masks, path)
    ids = random_ids(12, seed=3)
    _close(ReferenceModel(open_checkpoint(tmp_path)).logits(ids), written.logits(ids))
