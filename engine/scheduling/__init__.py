"""What runs next: requests, KV blocks, plans, events and the loop. Integers only, no tensors.

The same code drives a torch executor on a wall clock and a roofline executor on a virtual one.
"""
