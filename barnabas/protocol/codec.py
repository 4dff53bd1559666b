"""Compiles rows into code: for (message class, version), one straight-line decoder and one encoder.

Nested structures are inlined; neighbouring fixed-width fields, and the length that follows them, are one
`struct.Struct` call; a one-byte varint is read and written without a call.

A decoder is `decode(buffer, pos) -> (message, position behind it)`. In its source `o`, `e1`, `e2` ... are the objects
that it fills, `n` is the current length or count, `end` the end of the buffer. An encoder is
`encode(o) -> (pieces, marks)`: byte strings to join, and the indexes of those that are `records` values.

Invariants of the generated decoders (see `primitives` for the rules)
1. The end of a slice is compared with `end` before it is taken, so a slice is never short.
2. A count is compared with the remaining bytes before anything is allocated: memory stays proportional to the input.
3. `left` is the number of elements that the arrays of the message may still have together (`limits`); unknown tagged
   fields count too.

`decoder_source` and `encoder_source` return the code, for readers and for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct as Layout
from struct import pack, unpack_from
from typing import Any

from barnabas.protocol import primitives
from barnabas.protocol.fields import FRESH, Field
from barnabas.protocol.limits import elements_max

# Wire kind -> struct code to read, code to write, size. A boolean is written as a byte, so that None is refused.
FIXED: dict[str, tuple[str, str, int]] = {
    "bool": ("?", "B", 1),
    "int8": ("b", "b", 1),
    "int16": ("h", "h", 2),
    "uint16": ("H", "H", 2),
    "int32": ("i", "i", 4),
    "int64": ("q", "q", 8),
    "float64": ("d", "d", 8),
    "uuid": ("16s", "16s", 16),
}

# The struct code of a kind's length in versions that are not flexible.
LENGTH_CODE = {"string": "h", "bytes": "i", "records": "i", "array": "i"}

SCOPE: dict[str, Any] = {
    "pack": pack,
    "unpack_from": unpack_from,
    "new": object.__new__,
    "ONE_BYTE": primitives.ONE_BYTE,
    "ZERO_UUID": primitives.ZERO_UUID,
    **{
        name: getattr(primitives, name)
        for name in (
            "read_uvarint",
            "read_string_length",
            "read_tag_spans",
            "read_text",
            "read_unknown_tags",
            "null_error",
            "end_error",
            "count_error",
            "size_error",
            "encode_uvarint",
            "string_length",
            "tag_section",
            "records_size",
            "uuid_error",
            "version_error",
        )
    },
}


def compile_decoder(cls: Any, version: int, flexible: bool) -> Callable[[Any, int], tuple[Any, int]]:
    """Compile the decoder of a version."""
    writer = _DecoderWriter(version, flexible)
    source = writer.write(cls)
    decode: Callable[[Any, int], tuple[Any, int]]
    decode = _compiled(source, writer.scope, "decode", f"<decoder of {cls.__name__} v{version}>")
    return decode


def compile_encoder(cls: Any, version: int, flexible: bool) -> Callable[[Any], tuple[list[Any], list[int]]]:
    """Compile the encoder of a version."""
    writer = _EncoderWriter(version, flexible)
    source = writer.write(cls)
    encode: Callable[[Any], tuple[list[Any], list[int]]]
    encode = _compiled(source, writer.scope, "encode", f"<encoder of {cls.__name__} v{version}>")
    return encode


def decoder_source(cls: Any, version: int) -> str:
    """Return the code that decodes this version."""
    return _DecoderWriter(version, version >= cls.FLEXIBLE_FROM).write(cls)


def encoder_source(cls: Any, version: int) -> str:
    """Return the code that encodes this version."""
    return _EncoderWriter(version, version >= cls.FLEXIBLE_FROM).write(cls)


def _compiled(source: str, scope: dict[str, Any], name: str, title: str) -> Any:
    exec(compile(source, title, "exec"), scope)
    return scope[name]


class _CodeWriter:
    """Collects indented lines of code, the objects that they refer to, and fixed-width values not yet written."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.scope = dict(SCOPE)
        self.pending: list[tuple[str, str]] = []  # (struct code, target or expression)
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0

    def line(self, text: str) -> None:
        """Append a line at the current depth."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head` and indent what is written inside."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh_name(self, prefix: str) -> str:
        """Return a name that the code does not use yet."""
        self._count += 1
        return f"{prefix}{self._count}"

    def known(self, prefix: str, value: Any) -> str:
        """Return the name of an object in the scope of the code; the object is added if it is not there."""
        name = f"{prefix}_{getattr(value, '__name__', len(self.scope))}"
        while self.scope.setdefault(name, value) is not value:
            name += "_"
        return name

    def layout(self, codes: str, method: str) -> str:
        """Return the name of a precompiled struct's method."""
        name = f"{method}_{codes}".replace("?", "o")
        if name not in self.scope:
            self.scope[name] = getattr(Layout(f">{codes}"), method)
        return name

    def source(self, head: str) -> str:
        """Return the function: its head and the lines."""
        return "\n".join([head, *self._lines, ""])


def _has_records(cls: Any) -> bool:
    """Return whether a structure has a `records` field at any depth."""
    return any(
        field.kind == "records" or (isinstance(field.element, type) and _has_records(field.element))
        for field in cls.FIELDS
    )


class _DecoderWriter(_CodeWriter):
    """Writes a decoder.

    A message without `records` fields is copied to `bytes` first: slices of bytes are cheaper than slices of views. A
    message with them is read in place, and `view` is a memoryview of it.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self._copies = False

    def write(self, cls: Any) -> str:
        self._copies = not _has_records(cls)
        if self._copies:
            with self.block("if type(buf) is not bytes:"):
                self.line("buf = bytes(buf)")
        else:
            self.line("view = buf if type(buf) is memoryview else memoryview(buf)")
        self.line("end = len(buf)")
        self.line(f"left = {elements_max(cls)}")
        self.line(f"o = new({self.known('struct', cls)})")
        self._struct(cls, "o")
        self.line("return o, pos")
        return self.source("def decode(buf, pos):")

    def _struct(self, cls: Any, target: str) -> None:
        """Fill `target`, an instance of `cls`."""
        for field in cls.FIELDS:
            place = f"{target}.{field.name}"
            if field.is_present(self.version) and not field.is_tagged(self.version):
                self._field(field, place)
            else:
                self.line(f"{place} = {self._default(field)}")
        if self.flexible:
            self._tags(cls, target)
        else:
            self._flush()
            self.line(f"{target}.unknown_tagged_fields = ()")

    def _default(self, field: Field) -> str:
        if field.default is FRESH:
            return "[]" if field.kind == "array" else f"{self.known('struct', field.element)}()"
        return repr(field.default) if field.kind != "uuid" else "ZERO_UUID"

    def _field(self, field: Field, place: str) -> None:
        if field.kind in FIXED:
            self.pending.append((FIXED[field.kind][0], place))
        elif field.kind == "struct":
            self._struct_field(field, place)
        else:
            self._length(field.kind)
            self._variable(field, place)

    def _flush(self, *tail: tuple[str, str]) -> None:
        """Read the fixed-width values that are pending, and `tail` with them."""
        values = [*self.pending, *tail]
        self.pending = []
        if not values:
            return
        codes = "".join(code for code, _ in values)
        targets = ", ".join(target for _, target in values)
        if codes == "B":
            self.line(f"{targets} = buf[pos]")
        else:
            comma = "," if len(values) == 1 else ""
            self.line(f"{targets}{comma} = {self.layout(codes, 'unpack_from')}(buf, pos)")
        self.line(f"pos += {Layout('>' + codes).size}")

    def _length(self, kind: str) -> None:
        """Read a length into `n`: below 0 means null."""
        if not self.flexible:
            self._flush((LENGTH_CODE[kind], "n"))
            return
        self._flush(("B", "n"))
        with self.block("if n > 127:"):
            reader = "read_string_length" if kind == "string" else "read_uvarint"
            self.line(f"n, pos = {reader}(buf, pos - 1)")
        self.line("n -= 1")

    def _variable(self, field: Field, place: str) -> None:
        """Read a value whose length is in `n`."""
        with self.block("if n < 0:"):
            if field.is_nullable(self.version):
                self.line(f"{place} = None")
            else:
                self.line(f"raise null_error({field.name!r})")
        with self.block("else:"):
            if field.kind == "array":
                self._array(field, place)
            else:
                self._slice(field.kind, field.name, place)

    def _slice(self, kind: str, name: str, place: str) -> None:
        """Read `n` bytes (inv. 1)."""
        self.line("stop = pos + n")
        with self.block("if stop > end:"):
            self.line(f"raise end_error({name!r})")
        if kind == "string":
            value = "read_text(buf[pos:stop])"
        elif kind == "records":
            value = "view[pos:stop]"
        else:
            value = "buf[pos:stop]" if self._copies else "bytes(buf[pos:stop])"
        self.line(f"{place} = {value}")
        self.line("pos = stop")

    def _array(self, field: Field, place: str) -> None:
        """Read `n` elements (inv. 2)."""
        element = field.element
        with self.block("if n > end - pos:"):
            self.line(f"raise end_error({field.name!r})")
        self._spend("n")
        if element in FIXED:
            self._fixed_array(element, field.name, place)
            return
        items, add = self.fresh_name("items"), self.fresh_name("add")
        self.line(f"{items} = []")
        self.line(f"{add} = {items}.append")
        with self.block("for _ in range(n):"):
            if isinstance(element, str):
                self._length(element)
                with self.block("if n < 0:"):
                    self.line(f"raise null_error({field.name!r})")
                self._slice(element, field.name, "value")
                self.line(f"{add}(value)")
            else:
                target = self.fresh_name("e")
                self.line(f"{target} = new({self.known('struct', element)})")
                self._struct(element, target)
                self.line(f"{add}({target})")
        self.line(f"{place} = {items}")

    def _spend(self, count: str) -> None:
        """Count elements (inv. 3)."""
        self.line(f"left -= {count}")
        with self.block("if left < 0:"):
            self.line("raise count_error()")

    def _fixed_array(self, kind: str, name: str, place: str) -> None:
        code, _, size = FIXED[kind]
        self.line(f"stop = pos + n * {size}")
        with self.block("if stop > end:"):
            self.line(f"raise end_error({name!r})")
        if kind == "uuid":
            piece = "buf[at:at + 16]" if self._copies else "bytes(buf[at:at + 16])"
            self.line(f"{place} = [{piece} for at in range(pos, stop, 16)]")
        else:
            self.line(f"{place} = list(unpack_from(f'>{{n}}{code}', buf, pos))")
        self.line("pos = stop")

    def _struct_field(self, field: Field, place: str) -> None:
        if not field.is_nullable(self.version):
            self._struct_value(field.element, place)
            return
        self._flush(("b", "n"))
        self._maybe_struct("n < 0", field.element, place)

    def _maybe_struct(self, is_null: str, cls: Any, place: str) -> None:
        with self.block(f"if {is_null}:"):
            self.line(f"{place} = None")
        with self.block("else:"):
            self._struct_value(cls, place)

    def _struct_value(self, cls: Any, place: str) -> None:
        target = self.fresh_name("e")
        self.line(f"{place} = {target} = new({self.known('struct', cls)})")
        self._struct(cls, target)

    def _tags(self, cls: Any, target: str) -> None:
        """Read the tagged section, which is nearly always empty."""
        tagged = [field for field in cls.FIELDS if field.is_present(self.version) and field.is_tagged(self.version)]
        self._flush(("B", "n"))
        if not tagged:
            with self.block("if n:"):
                self.line(f"{target}.unknown_tagged_fields, pos = read_unknown_tags(buf, pos, n, end)")
                self._spend(f"len({target}.unknown_tagged_fields)")
            with self.block("else:"):
                self.line(f"{target}.unknown_tagged_fields = ()")
            return
        spans, after, unknown = self.fresh_name("spans"), self.fresh_name("after"), self.fresh_name("unknown")
        with self.block("if n:"):
            self.line(f"{spans}, {after} = read_tag_spans(buf, pos, n, end)")
            self.line(f"{unknown} = []")
            tag, stop = self.fresh_name("tag"), self.fresh_name("stop")
            with self.block(f"for {tag}, pos, {stop} in {spans}:"):
                for position, field in enumerate(tagged):
                    with self.block(f"{'elif' if position else 'if'} {tag} == {field.tag}:"):
                        self._tagged_field(field, f"{target}.{field.name}")
                        with self.block(f"if pos != {stop}:"):
                            self.line(f"raise size_error({field.name!r})")
                with self.block("else:"):
                    self.line(f"{unknown}.append(({tag}, bytes(buf[pos:{stop}])))")
            self._spend(f"len({unknown})")
            self.line(f"{target}.unknown_tagged_fields = tuple({unknown})")
            self.line(f"pos = {after}")
        with self.block("else:"):
            self.line(f"{target}.unknown_tagged_fields = ()")

    def _tagged_field(self, field: Field, place: str) -> None:
        if field.kind == "struct" and field.is_nullable(self.version):
            # A nullable structure starts with a varint: 0 for null, 1 for a value.
            self.line("n, pos = read_uvarint(buf, pos)")
            self._maybe_struct("n == 0", field.element, place)
            return
        self._field(field, place)
        self._flush()


class _EncoderWriter(_CodeWriter):
    """Writes an encoder; `w` appends a piece."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self._append = "w"

    def write(self, cls: Any) -> str:
        self.line("pieces = []")
        self.line("marks = []")
        self.line("w = pieces.append")
        self._struct(cls, "o")
        self.line("return pieces, marks")
        return self.source("def encode(o):")

    def _struct(self, cls: Any, target: str) -> None:
        self._refuse_absent(cls, target)
        for field in cls.FIELDS:
            if field.is_present(self.version) and not field.is_tagged(self.version):
                self._field(field, f"{target}.{field.name}")
        if self.flexible:
            self._tags(cls, target)
            return
        self._flush()
        with self.block(f"if {target}.unknown_tagged_fields:"):
            self.line(f"raise version_error('unknown_tagged_fields', {cls.__name__!r}, {self.version})")

    def _refuse_absent(self, cls: Any, target: str) -> None:
        """Refuse fields that are set, that the version lacks and that must not be dropped."""
        for field in cls.FIELDS:
            if not field.ignorable and not field.is_present(self.version):
                with self.block(f"if {self._is_set(field, f'{target}.{field.name}')}:"):
                    self.line(f"raise version_error({field.name!r}, {cls.__name__!r}, {self.version})")

    def _is_set(self, field: Field, place: str) -> str:
        """Return the condition that a field differs from its default."""
        if field.default is None:
            return f"{place} is not None"
        if field.default is FRESH:
            if field.kind == "struct":
                inner = [self._is_set(each, f"{place}.{each.name}") for each in field.element.FIELDS]
                null = [f"{place} is None"] if field.nullable else []
                return " or ".join([*null, *inner, f"{place}.unknown_tagged_fields"])
            return f"{place} is None or {place}" if field.nullable else place
        if field.kind == "uuid":
            return f"{place} != ZERO_UUID"
        return f"{place} != {field.default!r}"

    def _field(self, field: Field, place: str) -> None:
        if field.kind in FIXED:
            self._fixed(field.kind, field.name, place)
        elif field.kind == "struct":
            self._struct_field(field, place)
        elif field.is_nullable(self.version):
            value = self.fresh_name("v")
            self.line(f"{value} = {place}")
            before = list(self.pending)
            with self.block(f"if {value} is None:"):
                self._null(field.kind)
            self.pending = before
            with self.block("else:"):
                self._value(field, value)
        else:
            self._value(field, place)

    def _fixed(self, kind: str, name: str, place: str) -> None:
        if kind == "uuid":
            with self.block(f"if len({place}) != 16:"):
                self.line(f"raise uuid_error({name!r}, {place})")
        self.pending.append((FIXED[kind][1], place))

    def _flush(self, *tail: tuple[str, str]) -> None:
        """Write the fixed-width values that are pending, and `tail` with them. An expression "" is a zero byte."""
        values = [*self.pending, *tail]
        self.pending = []
        if not values:
            return
        codes = "".join(code for code, _ in values)
        if codes == "x":
            self.line(f"{self._append}(b'\\0')")
            return
        arguments = ", ".join(expression for _, expression in values if expression)
        self.line(f"{self._append}({self.layout(codes, 'pack')}({arguments}))")

    def _null(self, kind: str) -> None:
        self._flush(("x", "") if self.flexible else (LENGTH_CODE[kind], "-1"))

    def _length(self, kind: str, length: str) -> None:
        """Write a length; `length` is an expression."""
        if not self.flexible:
            self._flush((LENGTH_CODE[kind], length))
            return
        long_form = "string_length" if kind == "string" else "encode_uvarint"
        self.line(f"n = {length} + 1")
        if not self.pending:
            self.line(f"{self._append}(ONE_BYTE[n] if n < 128 else {long_form}(n))")
            return
        before = list(self.pending)
        with self.block("if n < 128:"):
            self._flush(("B", "n"))
        self.pending = before
        with self.block("else:"):
            self._flush()
            self.line(f"{self._append}({long_form}(n))")

    def _value(self, field: Field, value: str) -> None:
        """Write what has a length and is not null."""
        if field.kind == "array":
            self._array(field, value)
        elif field.kind == "records":
            self._records(value)
        else:
            self._slice(field.kind, value)

    def _slice(self, kind: str, value: str) -> None:
        if kind == "string":
            self.line(f"b = {value}.encode()")
            value = "b"
        self._length(kind, f"len({value})")
        self.line(f"{self._append}({value})")

    def _records(self, value: str) -> None:
        self.line(f"size = records_size({value})")
        self._length("records", "size")
        with self.block("if size:"):
            self.line("marks.append(len(pieces))")
            self.line(f"{self._append}({value})")

    def _array(self, field: Field, value: str) -> None:
        element = field.element
        self._length("array", f"len({value})")
        if element == "uuid":
            with self.block(f"for u in {value}:"):
                with self.block("if len(u) != 16:"):
                    self.line(f"raise uuid_error({field.name!r}, u)")
                self.line(f"{self._append}(u)")
        elif element in FIXED:
            code = FIXED[element][1]
            self.line(f"{self._append}(pack(f'>{{len({value})}}{code}', *{value}))")
        else:
            item = self.fresh_name("e")
            with self.block(f"for {item} in {value}:"):
                if isinstance(element, str):
                    self._slice(element, item)
                else:
                    self._struct(element, item)

    def _struct_field(self, field: Field, place: str) -> None:
        target = self.fresh_name("e")
        self.line(f"{target} = {place}")
        if not field.is_nullable(self.version):
            self._struct(field.element, target)
            return
        before = list(self.pending)
        with self.block(f"if {target} is None:"):
            self._flush(("b", "-1"))
        self.pending = before
        with self.block("else:"):
            self.pending.append(("b", "1"))
            self._struct(field.element, target)

    def _tags(self, cls: Any, target: str) -> None:
        """Write the tagged section: known fields that differ from their defaults, and the unknown ones."""
        tagged = [field for field in cls.FIELDS if field.is_present(self.version) and field.is_tagged(self.version)]
        known = "()"
        unknown = f"{target}.unknown_tagged_fields"
        condition = unknown
        if tagged:
            before, self.pending = self.pending, []
            known = self.fresh_name("known")
            self.line(f"{known} = []")
            for field in sorted(tagged, key=lambda field: field.tag or 0):
                with self.block(f"if {self._is_set(field, f'{target}.{field.name}')}:"):
                    self._tagged_field(field, f"{target}.{field.name}", known)
            self.pending = before
            condition = f"{known} or {unknown}"
        before = list(self.pending)
        with self.block(f"if {condition}:"):
            self._flush()
            self.line(f"{self._append}(tag_section({known}, {unknown}))")
        self.pending = before
        with self.block("else:"):
            self._flush(("x", ""))

    def _tagged_field(self, field: Field, place: str, known: str) -> None:
        """Write a field into pieces of its own and put them, joined, into the list `known`."""
        outer = self._append
        inner, self._append = self.fresh_name("p"), self.fresh_name("w")
        self.line(f"{inner} = []")
        self.line(f"{self._append} = {inner}.append")
        if field.kind == "struct" and field.is_nullable(self.version):
            target = self.fresh_name("e")
            self.line(f"{target} = {place}")
            with self.block(f"if {target} is None:"):
                self.line(f"{self._append}(b'\\0')")
            with self.block("else:"):
                self.line(f"{self._append}(b'\\1')")
                self._struct(field.element, target)
                self._flush()
        else:
            self._field(field, place)
            self._flush()
        self.line(f"{known}.append(({field.tag}, b''.join({inner})))")
        self._append = outer
