"""Models and devices of one's own on the simulator's page: understood, or refused by name."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qsl, urlencode

import pytest
from fastapi.testclient import TestClient

from engine.catalog.hardware import get_hardware
from engine.catalog.models import get_model
from engine.errors import EngineError
from webapp.i18n import Language, texts
from webapp.pages.own import MOST_TEXT, OWN, Described, OwnDevice
from webapp.pages.simulator_export import scenario_of
from webapp.pages.simulator_question import Side, read_simulator_question
from webapp.pages.simulator_side import SideView, side_view
from webapp.pages.simulator_view import simulator_answer

CONFIG = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False,
    "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip
H100 = OwnDevice(memory=80, bandwidth=3350, bf16=989.4, fp8=1978.9, link=450, tdp=700)
OWN_SIDE = Side(model=OWN, hardware=OWN, config=json.dumps(CONFIG), device=H100)


def numbers(view: SideView) -> tuple[str, ...]:
    assert view.itl is not None
    return view.ttft.ideal, view.itl.ideal, *(part.words for part in view.memory)


def test_a_model_described_is_the_catalogue_s() -> None:
    own = side_view("A", Side(model=OWN, config=json.dumps(CONFIG), batch=4))
    known = side_view("A", Side(model="llama-3.1-8b", batch=4))
    assert numbers(own) == numbers(known)
    assert own.model_id == "imported-llama"


def test_a_device_by_its_figures_or_as_json() -> None:
    spec = OWN_SIDE.described.chosen_hardware()
    assert not isinstance(spec, str)
    known = get_hardware("h100-sxm")
    assert spec.bandwidth == known.bandwidth
    assert spec.dense_flops["bf16"] == pytest.approx(known.dense_flops["bf16"], rel=1e-3)
    assert spec.interconnect is not None
    assert spec.interconnect.bandwidth == 450e9
    text = json.dumps({"memory_gb": 80, "bandwidth_gb_s": 1, "dense_tflops": {"bf16": 2}})
    as_json = Described("x", OWN, device=OwnDevice(json=text, memory=3)).chosen_hardware()
    assert not isinstance(as_json, str)
    assert (as_json.memory_bytes, as_json.bandwidth) == (80e9, 1e9)


def test_its_query_is_the_scenario() -> None:
    side = Side(
        model=OWN, hardware=OWN, config=json.dumps(CONFIG), device=H100, tensor=2, data=2,
        utilization=80, usd=1.5, per_node=4, network=25.0, imbalance=1.5, offload=55.0, split=2,
        split_link=12.5, drafts=3, draft_model="llama-3.2-1b", draft_cost=7, idle=30, hit=50,
    )  # fmt: skip
    again = read_simulator_question(dict(parse_qsl(side.query))).a
    assert again == side
    asked = scenario_of(side)
    assert asked.model == {"config": CONFIG}
    assert (asked.memory_utilization, asked.usd_per_hour, asked.per_node) == (0.8, 1.5, 4)
    assert (asked.network_gb_s, asked.imbalance, asked.idle_share) == (25.0, 1.5, 0.3)
    assert asked.disaggregation is not None
    assert (asked.disaggregation.devices, asked.disaggregation.link_gb_s) == (2, 12.5)
    assert asked.offload is not None
    assert asked.offload.link_gb_s == 55.0
    assert asked.speculation is not None
    assert asked.speculation.draft_model == "llama-3.2-1b"
    assert Side().has_more is False
    assert side.has_more


def test_the_second_side_takes_the_first_one_s_device_and_no_price() -> None:
    query = {**dict(parse_qsl(OWN_SIDE.query)), "usd": "2", "compare": "on", "b_tensor": "2"}
    question = read_simulator_question(query)
    assert question.b is not None
    assert question.b.device == H100
    assert question.b.config == OWN_SIDE.config
    assert (question.a.usd, question.b.usd) == (2.0, None)
    own = read_simulator_question({**query, "b_hardware": OWN, "b_device_memory": "24"}).b
    assert own is not None
    assert own.device == OwnDevice(memory=24)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"config": ""}, "model.config"),
        ({"config": "{"}, "model.config"),
        ({"config": "[" * 3000}, "model.config"),
        ({"config": '{"model_type":"llama"}'}, "model.config.num_hidden_layers"),
        ({"config": json.dumps({**CONFIG, "hidden_size": -1})}, "model.config.hidden_size"),
        ({"config": " " * MOST_TEXT + "{}"}, "model.config"),
        ({"device": OwnDevice()}, "hardware.custom.dense_tflops"),
        ({"device": OwnDevice(json="{}")}, "hardware.custom.dense_tflops"),
        ({"device": OwnDevice(bandwidth=1, bf16=1)}, "hardware.custom.memory_gb"),
        ({"device": OwnDevice(memory=80, bandwidth=0, bf16=1)}, "hardware.custom.bandwidth_gb_s"),
        (
            {"device": OwnDevice(memory=80, bandwidth=3350, bf16=1978.9)},
            "hardware.custom.dense_tflops.bf16",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_its_field(changes: dict[str, object], field: str) -> None:
    values = {"model": OWN, "hardware": OWN, "config": json.dumps(CONFIG), "device": H100}
    side = Side(**{**values, **changes})
    with pytest.raises(EngineError) as refused:
        side.deployment("ideal").cost_model()
    assert refused.value.field == field
    answer = simulator_answer(read_simulator_question(dict(parse_qsl(side.query))),
                              texts(Language.ENGLISH))  # fmt: skip
    assert answer.refusal is not None
    assert answer.refusal[:2] == (field, refused.value.message)


def test_a_rate_that_is_said_to_be_dense_is_taken() -> None:
    device = OwnDevice(memory=80, bandwidth=3350, bf16=1978.9, dense=True)
    spec = Described("x", OWN, device=device).chosen_hardware()
    assert not isinstance(spec, str)
    assert spec.dense_flops["bf16"] == pytest.approx(1978.9e12)


def test_the_page_keeps_what_was_pasted_and_does_not_run_it(client: TestClient) -> None:
    hostile = "</textarea><script>alert(1)</script>"
    page = client.get(f"/simulator?{urlencode({'model': OWN, 'config': hostile})}").text
    assert "<script>alert" not in page
    assert "&lt;/textarea&gt;" in page
    assert re.search(r'<fieldset class="own" data-own="model">', page)
    assert re.search(r'<fieldset class="own" data-own="hardware" hidden disabled>', page)
    exported = client.get(f"/simulator/scenario.json?{OWN_SIDE.query}").json()
    assert exported["ttft"]["value"] > 0
    opened = client.get(f"/fragments/explain?{OWN_SIDE.query}").text
    assert "bandwidth_factor" in opened


def test_a_link_may_be_as_long_as_the_longest_description(client: TestClient) -> None:
    config = json.dumps({**CONFIG, "architectures": ["LlamaForCausalLM"] * 370})
    assert 7500 < len(config) <= MOST_TEXT
    answer = client.get(f"/fragments/simulator?{Side(model=OWN, config=config).query}")
    assert "imported-llama" in answer.text


@pytest.mark.parametrize(
    ("side", "kinds"),
    [
        (Side(), []),
        (Side(tensor=3), ["heads", "kv-copies"]),
        (Side(tensor=16), ["kv-copies"]),
        (Side(model="deepseek-v3", tensor=8), ["latents"]),
        (Side(tensor=8, per_node=4), ["across-nodes"]),
        (Side(hardware="a100-80-sxm", weights="fp8"), ["no-rate"]),
        (Side(hardware=OWN, device=OwnDevice(memory=80, bandwidth=1, bf16=1), tensor=2),
         ["no-link"]),
    ],
)  # fmt: skip
def test_what_a_layout_does_is_said_beside_the_number(side: Side, kinds: list[str]) -> None:
    assert [item.kind for item in side_view("A", side).warnings] == kinds


def test_warnings_stand_in_the_answer(client: TestClient) -> None:
    heads = get_model("llama-3.1-8b").num_attention_heads
    answer = client.get("/fragments/simulator?tensor=3").text
    assert f"{heads} heads do not divide over 3 devices" in answer


def test_own_price_and_limit_count(client: TestClient) -> None:
    cheap = client.get("/fragments/simulator?usd=1").text
    assert "at your $1.00 a device and hour" in cheap
    less = client.get("/fragments/simulator?utilization=10").text
    assert "It does not fit: 10% of the memory may be filled" in less
