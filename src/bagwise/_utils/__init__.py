"""Checks, memory, threads, progress, hashing and wording that all packages share."""
