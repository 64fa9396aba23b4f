"""REST: thin handlers over the engine and the simulator."""
