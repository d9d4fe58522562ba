"""From a source to a model: learn it, evaluate it, compare criteria, and tell what was found."""
