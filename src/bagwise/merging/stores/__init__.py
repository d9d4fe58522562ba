"""Where the matrices A and B of a trace ratio criterion are kept while words are merged."""
