"""Protobuf messages, spoilt field by field by what their descriptors say, and now and then on the wire."""

import random
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.odd_values import FLOATS, odd_integer, odd_text

_Message = TypeVar("_Message", bound=Message)
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64),
}


def mutate_message(generator: random.Random, message: _Message) -> _Message:
    """A copy of `message` with one to three fields changed."""
    spoilt = type(message)()
    spoilt.CopyFrom(message)
    for _ in range(generator.choice((1, 1, 2, 3))):
        _change(generator, spoilt)
    return spoilt


def spoilt_message(generator: random.Random, message: Message, other: Message) -> bytes:
    """Wire bytes of `message`, spoilt as a message, as bytes, or as both; `other` lends parts."""
    kind = generator.randrange(10)
    data = message.SerializeToString() if kind < 3 else mutate_message(generator, message).SerializeToString()
    return mutate_bytes(generator, data, other.SerializeToString()) if kind < 4 else data


def _change(generator: random.Random, message: Message) -> None:
    if not message.DESCRIPTOR.fields:
        return
    field = generator.choice(message.DESCRIPTOR.fields)
    if generator.random() < 0.1:
        message.ClearField(field.name)
    elif field.is_repeated:
        _change_repeated(generator, getattr(message, field.name), field)
    elif field.message_type is not None:
        part = getattr(message, field.name)
        part.SetInParent()
        _change(generator, part)
    else:
        setattr(message, field.name, _value(generator, field))


def _change_repeated(generator: random.Random, values: Any, field: FieldDescriptor) -> None:
    """Values are put in, taken out, changed or multiplied."""
    kind = generator.randrange(4)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of_key, of_value = field.message_type.fields
        key = _value(generator, of_key)
        if of_value.message_type is not None:
            _change(generator, values[key])
        else:
            values[key] = _value(generator, of_value)
    elif kind == 0 and len(values):
        del values[generator.randrange(len(values))]
    elif kind == 1 and 0 < len(values) < 100:
        for _ in range(generator.choice((1, 1, 8))):
            values.extend(list(values))
            if len(values) > 20_000:
                return
    elif field.message_type is not None:
        _change(generator, generator.choice(values) if len(values) and kind == 2 else values.add())
    elif kind == 2 and len(values):
        values[generator.randrange(len(values))] = _value(generator, field)
    else:
        values.append(_value(generator, field))


def _value(generator: random.Random, field: FieldDescriptor) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return generator.randbytes(generator.choice((0, 1, 4, 8, 64)))
        return odd_text(generator).encode(errors="replace").decode()
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return generator.choice(FLOATS)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return generator.random() < 0.5
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM and generator.random() < 0.8:
        return generator.choice(field.enum_type.values).number
    smallest, beyond = _RANGES[field.cpp_type]
    number = odd_integer(generator)
    return number if smallest <= number < beyond else generator.randrange(smallest, beyond)
