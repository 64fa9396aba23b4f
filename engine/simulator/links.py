"""Which link the bytes of a layout travel over: the devices' own within a node, or a network."""

from __future__ import annotations

from engine.catalog.device import HardwareSpec, Interconnect
from engine.simulator.layout import Layout, Route

DEFAULT_NETWORK = Interconnect("InfiniBand NDR, 400 Gb/s a device", 50e9)
"""Between nodes where nothing else is said: NVIDIA's DGX H100 has one such port a device
("NVIDIA DGX H100 datasheet": 8 single-port ConnectX-7, up to 400 Gb/s each)."""


def link_of(
    route: Route, layout: Layout, hardware: HardwareSpec, network: Interconnect
) -> Interconnect | None:
    """The slowest link on the way; None where nothing is known of the devices' own."""
    return network if layout.leaves_node(route) else hardware.interconnect
