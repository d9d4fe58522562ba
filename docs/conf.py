"""The documentation site: ``make docs`` builds it, warnings are errors; see CONTRIBUTING.md."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "_ext"))

import bagwise  # noqa: E402

# The quick form, for tests: all pages and cross references, but no example is run and nothing is drawn.
quick = bool(os.environ.get("BAGWISE_DOCS_QUICK"))

project = "bagwise"
author = "the bagwise developers"
copyright = "2026, the bagwise developers"
version = release = bagwise.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "public_api",
    "command_pages",
]
exclude_patterns = ["_build", "_ext", "README.md"]

# Explicit references, such as {class}`bagwise.WordMerger`, must lead somewhere. `name` in docstrings is a link where
# there is such a name, and code elsewhere: most are parameters.
nitpicky = True
default_role = "py:obj"
nitpick_ignore_regex = [("py:obj", ".*"), ("py:class", "optional|array.*|sparse.*|callable|iterable|.*[{(\\[ ].*")]

myst_enable_extensions = ["dollarmath", "deflist", "fieldlist", "attrs_inline", "colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "config.cache"]

autosummary_generate = False  # `public_api` writes the pages
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {} if quick else {"members": True, "inherited-members": True}
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = f"bagwise {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "bagwise"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}
html_sidebars = {"index": [], "gallery/index": []}
# Pages are also read from the file system, where scripts cannot fetch other pages to quote from them.
html_show_search_summary = False

_examples = ROOT / "examples" / "gallery"
for _page in (HERE / "gallery").glob("plot_*"):  # what is left of examples that are gone
    if not (_examples / _page.name.partition(".")[0]).with_suffix(".py").exists():
        _page.unlink()
sphinx_gallery_conf = {
    "examples_dirs": [str(_examples)],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "plot_gallery": not quick,
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "reference_url": {"bagwise": None},
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "thumbnail_size": (480, 320),
    "within_subsection_order": "FileNameSortKey",
    "write_computation_times": False,
}
