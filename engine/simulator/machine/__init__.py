"""This machine: what the real engine costs here, ideal and typical, from its calibration."""
