"""The operators of a layer, one module a kind of attention, recurrence or feed-forward block."""
