"""Kernels that are learned from labels, and scores to learn them on."""
