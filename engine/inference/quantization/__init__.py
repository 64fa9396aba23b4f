"""Weights in few bits: how they are rounded, stored and judged."""
