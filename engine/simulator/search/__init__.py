"""Many predictions at once: sweeps, searches, Pareto fronts and sensitivities."""
