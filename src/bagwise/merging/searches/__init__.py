"""Searches for the best pair of words, level by level. All searches of a family find the same pairs."""
