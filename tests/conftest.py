import os

from hypothesis import settings

# Compiling makes first calls slow, so there is no deadline; CI runs the same examples every time.
settings.register_profile("people", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "people")
