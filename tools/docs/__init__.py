"""The documentation site: `python -m tools.docs`, or `make docs`.

    stage.py       copies the Markdown of the repository, and the files that it links to, into one tree
    reference.py   writes the reference from the tables that the code uses
    python_api.py  writes the Python reference from the sources
    markdown.py    tables, escaping, docstrings
    conf.py        Sphinx's settings

Warnings are errors: a link to a missing page, heading or file fails the build, and so does a page without a place in
the navigation.
"""
