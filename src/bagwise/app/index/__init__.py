"""Items of a collection with answers, features, map and clusters: one file that search and the explorer read."""
