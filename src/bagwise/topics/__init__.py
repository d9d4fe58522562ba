"""Topic models on counts, and what is made of them: tables, scores of documents, a classifier."""
