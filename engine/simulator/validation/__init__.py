"""Checks the simulator's predictions against published measurements."""
