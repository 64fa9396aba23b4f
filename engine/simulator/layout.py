"""How a model is divided over devices, as far as the time of a step depends on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """``tensor`` devices share every matrix, ``data`` such groups work side by side.

    With ``experts`` the groups of data parallelism share out the routed experts and keep
    everything else whole. ``stages`` devices hold the layers one after the other.
    """

    tensor: int = 1
    data: int = 1
    experts: bool = False
    stages: int = 1

    @property
    def devices(self) -> int:
        return self.tensor * self.data * self.stages


ONE_DEVICE = Layout()
