"""`mypyc_attr` changes nothing at run time."""

from __future__ import annotations

from barnabas.common.extendable import mypyc_attr


def test_a_marked_class_can_be_extended() -> None:
    @mypyc_attr(allow_interpreted_subclasses=True)
    class Base:
        number = 7

    class Derived(Base):
        pass

    assert Derived().number == 7
