"""A mark for the compiler: a class of a compiled module from which interpreted ones may derive.

Nothing needs it at run time, so it does nothing where mypy's extensions are not installed.
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
