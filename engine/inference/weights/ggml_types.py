"""How weights are laid out in files: block sizes and bytes of the element types we know.

Numbers and layouts are those of ggml (``ggml.h``, ``ggml-quants.h``). A block is the smallest unit
of a quantised row: ``block_elements`` weights stored in ``block_bytes`` bytes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StorageType:
    """One element type. ``native``: dequantised by our own code, not by the ``gguf`` package."""

    name: str
    ggml_id: int
    block_elements: int
    block_bytes: int
    native: bool

    @property
    def bits_per_element(self) -> float:
        """Stored bits per weight, scales included."""
        return 8 * self.block_bytes / self.block_elements

    def row_bytes(self, columns: int) -> int:
        """Bytes of one row of ``columns`` weights, which must be whole blocks."""
        return columns // self.block_elements * self.block_bytes


F32 = StorageType("F32", 0, 1, 4, native=True)
F16 = StorageType("F16", 1, 1, 2, native=True)
BF16 = StorageType("BF16", 30, 1, 2, native=True)
Q4_0 = StorageType("Q4_0", 2, 32, 2 + 16, native=True)
Q4_1 = StorageType("Q4_1", 3, 32, 2 + 2 + 16, native=True)
Q8_0 = StorageType("Q8_0", 8, 32, 2 + 32, native=True)
Q4_K = StorageType("Q4_K", 12, 256, 2 + 2 + 12 + 128, native=True)
Q6_K = StorageType("Q6_K", 14, 256, 128 + 64 + 16 + 2, native=True)

_BY_PACKAGE = (
    StorageType("Q5_0", 6, 32, 2 + 4 + 16, native=False),
    StorageType("Q5_1", 7, 32, 2 + 2 + 4 + 16, native=False),
    StorageType("Q2_K", 10, 256, 2 + 2 + 16 + 64, native=False),
    StorageType("Q3_K", 11, 256, 2 + 64 + 32 + 12, native=False),
    StorageType("Q5_K", 13, 256, 2 + 2 + 128 + 32 + 12, native=False),
)

BY_GGML_ID: dict[int, StorageType] = {
    storage.ggml_id: storage
    for storage in (F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K, Q6_K, *_BY_PACKAGE)
}
BY_NAME: dict[str, StorageType] = {storage.name: storage for storage in BY_GGML_ID.values()}
