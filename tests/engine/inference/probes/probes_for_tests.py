"""A tiny model to probe, and the same weights in transformers."""

from __future__ import annotations

from functools import cache

import torch
from transformers import LlamaForCausalLM

from engine.inference.probes.ablations import parse_ablation
from engine.inference.probes.model import ProbeModel
from engine.inference.probes.session import ProbeSession
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.llama_for_tests import llama_config, llama_name
from tests.engine.inference.runs_for_tests import random_ids

IDS = random_ids(23, seed=1)


@cache
def probe_model() -> ProbeModel:
    return ProbeModel(tiny_random_checkpoint())


def session(*ablations: str) -> ProbeSession:
    return ProbeSession(probe_model(), IDS, [parse_ablation(name) for name in ablations])


def llama() -> LlamaForCausalLM:
    """A new transformers model with the weights of ``probe_model``."""
    checkpoint = tiny_random_checkpoint()
    model = LlamaForCausalLM(llama_config(checkpoint.config)).eval()
    state = {llama_name(n): torch.from_numpy(checkpoint.tensor(n)) for n in checkpoint.names}
    model.load_state_dict(state)
    model.set_attn_implementation("eager")  # the others give no attention weights
    return model


def part(model: LlamaForCausalLM, name: str) -> torch.nn.Module:
    """A module of it, by its dotted name."""
    return model.get_submodule(name)
