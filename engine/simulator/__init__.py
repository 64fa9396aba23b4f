"""Predicts how long a step takes, and a whole run: any model of the catalogue on any device."""
