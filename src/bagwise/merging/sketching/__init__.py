"""Merging very many features in one pass: sketches of streams, and groups found from them."""
