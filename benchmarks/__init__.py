"""Measurements of the hot paths, printed as ratios to calibrators of the same run. No test asserts a time."""
