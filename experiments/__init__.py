"""The papers' tables on the papers' data: ``python -m experiments NAME --data DIR``."""
