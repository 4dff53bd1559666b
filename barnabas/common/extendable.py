"""`mypyc_attr`: lets an interpreted class derive from a compiled one.

It matters to the compiler only, so it does nothing where mypy's extensions are not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    try:
        from mypy_extensions import mypyc_attr
    except ImportError:

        def mypyc_attr(**_about):
            return lambda cls: cls
