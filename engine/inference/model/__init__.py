"""The decoder-only transformer and the numbers that describe it."""
