"""Decode steps in C++, where a compiler is at hand; torch does the same everywhere else."""
