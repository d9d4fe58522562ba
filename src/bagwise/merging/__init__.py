"""Merging words: criteria, searches, the hierarchy they find, and the estimators over them."""
