"""Sphinx's settings. Nothing is loaded from the network, when the site is built or when it is read."""

from __future__ import annotations

project = "Barnabas"
copyright = "the Barnabas authors. Apache License 2.0"
extensions = ["myst_parser"]
root_doc = "index"
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = "Barnabas"
html_static_path = ["static"]
html_css_files = ["barnabas.css"]
html_show_sourcelink = False
html_copy_source = False
# Search works in the browser, from an index in the site.
html_use_index = False
myst_heading_anchors = 4
# Options of commands keep their two dashes.
smartquotes = False
# A code block may have "…" or shell prompts that its language does not know.
suppress_warnings = ["misc.highlighting_failure"]
