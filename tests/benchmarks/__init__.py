"""Tokens per second beside a peer and beside this machine's own roofline: ``make bench``."""
