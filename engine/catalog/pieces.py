"""What to show for the bytes of one token alone."""

from __future__ import annotations

import unicodedata


def visible_piece(content: bytes) -> str:
    """The text of some bytes, with those that are no whole character and control characters as
    ``<E4>``. Spaces, tabs and line ends stay."""
    return "".join(map(_visible, content.decode("utf-8", "surrogateescape")))


def _visible(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that surrogateescape could not decode
        return f"<{code - 0xDC00:02X}>"
    if unicodedata.category(character) == "Cc" and character not in "\n\t":
        return "".join(f"<{byte:02X}>" for byte in character.encode("utf-8"))
    return character
