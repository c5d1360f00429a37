"""Protobuf: each record is read with the message of the columns, by the numbers of its fields.

The payload begins with the place of its message in the writer's file. What the columns do not have is ignored, what the
record does not have is null, or the field's default where its presence is not recorded. The registry gives a file as
its descriptor (`format=serialized`), so nothing here compiles .proto text.
"""

from __future__ import annotations

import base64
import importlib
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from fencepost.formats import wire
from fencepost.formats.schema import Part, Schema, unsupported

_SCALARS: Final = {
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FIXED32: pa.int64(),
    FieldDescriptor.TYPE_FIXED64: pa.decimal128(20),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_UINT64: pa.decimal128(20),
}
"""Spark has no unsigned integers: the next larger type stands for them."""
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_GOOGLES: Final = frozenset(
    f"google/protobuf/{name}.proto"
    for name in ("any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "type", "wrappers")
)
"""Files that the library has, and no registry."""
_ROOT: Final = "fencepost-root.proto"


class ProtobufReader:
    """Reads records as one message, '' for the first one of the file. Raises BadSpec where it has no columns."""

    def __init__(self, schema: Schema, message: str = "") -> None:
        found = _descriptor(schema, message)
        self._name = found.full_name
        self._class = message_factory.GetMessageClass(found)
        part = _message(found, "", ())
        self.type, self._convert = part.type, part.convert

    def decoder(self, writer: Schema) -> Callable[[bytes], object]:
        """Return what decodes a payload of the writer's schema."""
        file, name = _file(writer.text), self._name
        parse, convert = self._class.FromString, self._convert
        known: dict[tuple[int, ...], str] = {}

        def decode(payload: bytes) -> object:
            place, start = wire.message_place(payload)
            if place not in known:
                known[place] = _name_at(file, place)
            if known[place] != name:
                raise ValueError(f"it is a message {known[place]}, and not {name}")
            found = parse(payload[start:])
            return convert(found) if convert is not None else found

        return decode


def _file(text: str) -> FileDescriptorProto:
    return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))


def _name_at(file: FileDescriptorProto, place: tuple[int, ...]) -> str:
    """Return the full name of the message at a place. Raises IndexError."""
    messages, names = file.message_type, [file.package] if file.package else []
    for index in place:
        message = messages[index]
        names.append(message.name)
        messages = message.nested_type
    return ".".join(names)


def _descriptor(schema: Schema, message: str) -> Descriptor:
    """Return the message in a pool of its own. Raises BadSpec."""
    pool = descriptor_pool.DescriptorPool()
    try:
        files = [(name, _file(text)) for name, text in (*schema.references, (_ROOT, schema.text))]
    except Exception as error:
        raise unsupported(
            "",
            f"the registry gives no descriptor of it ({type(error).__name__}: {error})",
            "Use a registry that has `format=serialized` for Protobuf, as Confluent's and Karapace have.",
        ) from error
    root = files[-1][1]
    try:
        _add_googles(pool, [file for _, file in files], {name for name, _ in files})
        for name, file in files:
            file.name = name
            pool.Add(file)
        return pool.FindMessageTypeByName(message or next(_names(root.message_type, root.package)))
    except (KeyError, StopIteration, TypeError) as error:
        known = ", ".join(_names(root.message_type, root.package)) or "none"
        raise unsupported(
            "",
            f"has no message {message!r} that can be read ({error}); it has {known}",
            "Set `message` to one of them.",
        ) from error


def _add_googles(pool: descriptor_pool.DescriptorPool, files: list[FileDescriptorProto], given: set[str]) -> None:
    """Add the files of Google's that others import, and those that they import themselves."""
    for file in files:
        for name in file.dependency:
            if name not in given and name in _GOOGLES:
                given.add(name)
                stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
                found = FileDescriptorProto()
                importlib.import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(found)
                _add_googles(pool, [found], given)
                pool.Add(found)


def _names(messages: Any, around: str) -> Iterator[str]:  # noqa: ANN401 - a repeated field
    """Yield the full names of messages, each before those in it."""
    message: DescriptorProto
    for message in messages:
        name = f"{around}.{message.name}" if around else message.name
        yield name
        yield from (each for each in _names(message.nested_type, name) if not message.options.map_entry)


def _message(message: Descriptor, place: str, within: tuple[str, ...]) -> Part:
    if message.full_name == _TIMESTAMP:
        return Part(
            pa.timestamp("us", tz="UTC"),
            lambda found: found.seconds * 1_000_000 + found.nanos // 1000,  # type: ignore[attr-defined]
        )
    if message.full_name in _WRAPPERS:
        kind = _SCALARS[message.fields_by_name["value"].type]
        return Part(kind, attrgetter("value"))
    if message.full_name in within:
        raise unsupported(
            place,
            f"message {message.full_name} contains itself",
            "Columns have a fixed depth: read a message without the recursion, or leave the value undecoded.",
        )
    inner = (*within, message.full_name)
    taken = [
        (field.name, *_field(field, f"{place}.{field.name}" if place else field.name, inner))
        for field in message.fields
    ]
    if not taken:
        raise unsupported(place, f"message {message.full_name} has no fields", "Read a message that has some.")
    takes = [(name, take) for name, _, take in taken]
    return Part(
        pa.struct([(name, kind) for name, kind, _ in taken]),
        lambda found: {name: take(found) for name, take in takes},
    )


def _field(field: FieldDescriptor, place: str, within: tuple[str, ...]) -> tuple[pa.DataType, Callable[[Any], object]]:
    """Return the type of a field, and what takes its value from a message."""
    get = attrgetter(field.name)
    if _is_map(field):
        entry = field.message_type
        part = _single(entry.fields_by_name["value"], place, within).mapped(_SCALARS[entry.fields_by_name["key"].type])
    elif field.is_repeated:
        part = _single(field, f"{place}[]", within).listed()
        if part.convert is None:
            return part.type, lambda message: list(get(message))
    else:
        part = _single(field, place, within)
    convert = part.convert
    value = get if convert is None else lambda message: convert(get(message))
    if not field.has_presence:
        return part.type, value
    name = field.name
    return part.type, lambda message: value(message) if message.HasField(name) else None


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _single(field: FieldDescriptor, place: str, within: tuple[str, ...]) -> Part:
    """Return the type of one value of a field."""
    if field.message_type is not None:
        return _message(field.message_type, place, within)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        # A number that a later version of the enum has: enums are open.
        return Part(pa.string(), lambda number: names.get(number) or str(number))
    return Part(_SCALARS[field.type])
