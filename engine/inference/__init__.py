"""The real engine: weights, text, the torch model and its executor, in a process of their own.

Importing this package does not import torch.
"""

import os

# How long an OpenMP thread spins for its mates before it sleeps. Each operator ends in such a
# wait, and the default of some milliseconds is spent whenever a mate has lost its core to another
# program: on a busy two-core machine that makes a decode step ten times slower. Read by libgomp
# when torch is loaded, so it is set before; a value from outside is kept.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")
