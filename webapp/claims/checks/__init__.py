"""The checks, one module for each lesson that the claims belong to."""
