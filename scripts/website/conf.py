"""Sphinx's configuration of the documentation site.

The pages are those that `scripts/website/staging.py` lays out, not those of `docs/` themselves.
Nothing is fetched, when the site is built or when it is read: fonts are the reader's, scripts and
the index of the search are files of the site, so that it opens from a folder too.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

project = "streamnb"
author = "The streamnb authors"
project_copyright = author  # no year: the same sources give the same site

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# ---- Markdown: as it is shown where the code is kept ---------------------------------------------

myst_heading_anchors = 4  # the anchors that links between the guides use

# ---- docstrings ----------------------------------------------------------------------------------

autodoc_class_signature = "mixed"
autodoc_member_order = "groupwise"
autodoc_mock_imports = ["pyspark"]  # an extra of its own, which the tests set up when they need it
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # numpydoc says the types, in words
default_role = "py:obj"  # what stands between single backticks is a link where it is documented
napoleon_google_docstring = False
napoleon_preprocess_types = True
napoleon_use_ivar = True
napoleon_use_rtype = False
suppress_warnings = ["ref.python"]  # in "shape (n,)" n is no attribute, though some are called so
python_maximum_signature_line_length = 88
toc_object_entries = False

# ---- how it looks --------------------------------------------------------------------------------

html_theme = "furo"
html_title = "streamnb"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
smartquotes_action = "D"  # dashes alone: quotes stay as they are written
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "default"  # its colours can be read on its ground
pygments_dark_style = "github-dark"

# ---- docstrings are plain text -------------------------------------------------------------------

_QUOTED = re.compile(r"(`[^`]*`)")
_MARK = re.compile(r"(?<=\w)_(?!\w)|\|(?=\S)|(?<=\S)\|")  # N_·c, |x|


def escape_marks(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Keep reStructuredText from reading the letters of formulas as marks."""
    del app, what, name, thing, options
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = _QUOTED.split(line)
            parts[::2] = [_MARK.sub(r"\\\g<0>", part) for part in parts[::2]]
            lines[number] = "".join(parts)


def setup(app: Sphinx) -> None:
    """Read docstrings before napoleon does."""
    app.connect("autodoc-process-docstring", escape_marks, priority=100)
