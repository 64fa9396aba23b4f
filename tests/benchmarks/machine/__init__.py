"""Predictions for this machine beside what the real engine takes, cell by cell."""
