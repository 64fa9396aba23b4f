"""Understands a pasted Hugging Face ``config.json``: exactly, or refused with the key at fault."""
