"""Similarity search: the nearest histograms, exact or approximate."""
