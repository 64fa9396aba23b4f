"""One model over several devices: ideal tensor parallelism.

Every matrix, and with it the heads, is divided evenly; norms, the embedding look-up, the routers
of experts, indexers and the projections down to latents are done on each device. A key-value head
is never split: with more devices than heads it is replicated. A latent serves all heads, so that
each device keeps it whole; recurrent states are divided as the heads are. After the attention and
after the MLP of each layer the devices add up their results.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.catalog.model_spec import ModelSpec
from engine.catalog.precision import Number


@dataclass(frozen=True, slots=True)
class TensorParallel:
    """A group of ``devices`` equal devices."""

    devices: int = 1

    def share(self, count: int) -> Number:
        """One device's part of ``count``; a fraction where they do not divide evenly."""
        return count // self.devices if count % self.devices == 0 else count / self.devices

    def kv_heads(self, num_kv_heads: int) -> int:
        """Key-value heads that each device keeps: rounded up, one at least."""
        return -(-num_kv_heads // self.devices)

    def cache_copies(self, model: ModelSpec) -> float:
        """How often the group keeps the model's KV cache: once, if heads divide over it."""
        if model.mla is not None:
            return self.devices
        return self.devices * self.kv_heads(model.num_kv_heads) / model.num_kv_heads

    @property
    def all_reduce_factor(self) -> float:
        """Bytes over a device's link for each byte added up: 2(n-1)/n, as a ring does it."""
        return 2 * (self.devices - 1) / self.devices

    @property
    def gather_factor(self) -> float:
        """Bytes over a device's link for each byte of a gathered whole: (n-1)/n."""
        return (self.devices - 1) / self.devices
