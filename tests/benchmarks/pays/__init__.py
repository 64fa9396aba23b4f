"""Which mechanisms pay, measured on the engine itself: ``python -m tests.benchmarks.pays``."""
