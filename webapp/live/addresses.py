"""How many connections each client's address has."""

from __future__ import annotations

import ipaddress
from collections import Counter

IPV6_PREFIX = 64
"""Bits of an IPv6 address that name a network. A single machine has all addresses of one."""


class AddressLimit:
    """Lets every network have so many connections at once."""

    def __init__(self, per_address: int) -> None:
        self._per_address = per_address
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        """Networks that have a connection."""
        return len(self._open)

    def take(self, network: str) -> bool:
        """Counts one more connection, unless there are too many."""
        if self._open[network] >= self._per_address:
            return False
        self._open[network] += 1
        return True

    def give_back(self, network: str) -> None:
        """One connection that was counted has ended."""
        self._open[network] -= 1
        if not self._open[network]:
            del self._open[network]


def client_network(host: str | None) -> str:
    """What counts as one client: an IPv4 address, or the /64 of an IPv6 address.

    What is no address (a socket of the file system has none) is a client of its own.
    """
    try:
        address = ipaddress.ip_address((host or "").partition("%")[0])
    except ValueError:
        return host or ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
