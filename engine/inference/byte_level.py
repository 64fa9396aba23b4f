"""GPT-2's alphabet: each byte as one printable character, so that a vocabulary is text."""

from __future__ import annotations


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's character → byte: printable Latin-1 stands for itself, the rest for 256, 257, …"""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {
        chr(256 + number): byte for number, byte in enumerate(others)
    }


BYTE_LEVEL_ALPHABET = _byte_level_alphabet()
