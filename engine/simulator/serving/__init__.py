"""A service under load: requests come, wait, run together and leave, on a virtual clock."""
