"""``python -m bagwise`` is the command ``bagwise``."""

from bagwise.app.cli import main

if __name__ == "__main__":
    main()
