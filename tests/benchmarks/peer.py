"""The peer: transformers' own Llama on the same weights, driven as lightly as it can be.

Not ``generate()``, whose bookkeeping would count against it: a bare loop of forward calls with the
library's default cache and attention, and an argmax.
"""

from __future__ import annotations

import time

import torch
import transformers

from engine.inference.model.config import ModelConfig
from engine.inference.weights.checkpoint import Checkpoint
from tests.benchmarks.workload import FirstToken, Prompt, Timing, Workload
from tests.engine.inference.llama_for_tests import llama_config, llama_name


class TransformersPeer:
    """``LlamaForCausalLM`` with the dequantised weights of a checkpoint."""

    name = f"transformers {transformers.__version__}"

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> None:
        self._device = device
        self._vocab_size = checkpoint.config.vocab_size
        self._config = _config(checkpoint.config)
        model = transformers.LlamaForCausalLM(self._config)
        state = {
            llama_name(name): torch.from_numpy(checkpoint.tensor(name)) for name in checkpoint.names
        }
        missing, unexpected = model.load_state_dict(state, strict=False)
        if unexpected or set(missing) - {"lm_head.weight"}:
            raise RuntimeError(f"weights do not fit: missing {missing}, unexpected {unexpected}")
        model.tie_weights()
        self._model: torch.nn.Module = model.eval()
        torch.nn.Module.to(self._model, device=device, dtype=dtype)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights; a tied table counts once."""
        return sum(parameter.nbytes for parameter in self._model.parameters())

    @torch.inference_mode()
    def run(self, workload: Workload) -> Timing:
        """Run one workload; a decode's prefill is not timed."""
        ids_bs = torch.tensor(workload.prompts(self._vocab_size), device=self._device)
        cache = transformers.DynamicCache(config=self._config)
        self._synchronize()
        started = time.perf_counter()
        ids_b1 = self._next(ids_bs, cache)
        if not workload.new_tokens:
            self._synchronize()
            return Timing(time.perf_counter() - started, tuple(map(tuple, ids_b1.tolist())))
        steps: list[torch.Tensor] = []
        self._synchronize()
        started = time.perf_counter()
        for _ in range(workload.new_tokens):
            ids_b1 = self._next(ids_b1, cache)
            steps.append(ids_b1)
        self._synchronize()
        seconds = time.perf_counter() - started
        return Timing(seconds, tuple(map(tuple, torch.cat(steps, dim=1).tolist())))

    @torch.inference_mode()
    def first_token(self, prompt: Prompt) -> FirstToken:
        """From the ids to the likeliest next one; turning text into ids is not in it."""
        ids_1s = torch.tensor([prompt.token_ids], device=self._device)
        self._synchronize()
        started = time.perf_counter()
        cache = transformers.DynamicCache(config=self._config)
        token_id = int(self._next(ids_1s, cache))
        return FirstToken(time.perf_counter() - started, token_id)

    def _next(self, ids_bs: torch.Tensor, cache: transformers.DynamicCache) -> torch.Tensor:
        """The likeliest next token of each sequence, [batch, 1]."""
        output = self._model(ids_bs, cache=cache, use_cache=True, logits_to_keep=1)
        return output.logits.argmax(-1)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _config(config: ModelConfig) -> transformers.LlamaConfig:
    return llama_config(
        config,
        bos_token_id=config.bos_token_id,
        eos_token_id=list(config.eos_token_ids) or None,
    )
