"""Class of ``tf.train.Example`` for protobuf's own library, and records in TensorFlow's framing."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from dlio_torch.formats.tfrecord.framing import frame


@functools.cache
def example_class(packed: bool) -> Any:
    """Class of tf.train.Example, made of what feature.proto and example.proto say."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"example{packed}.proto", package="t", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, int, str], into: Any = None) -> Any:
        made = (into.nested_type if into is not None else file.message_type).add(name=name)
        for field, number, label, kind, target in fields:
            one = made.field.add(name=field, number=number, label=label, type=kind)
            if target:
                one.type_name = f".t.{target}"
            elif label == 3 and kind != kinds.TYPE_BYTES:
                one.options.packed = packed
        return made

    message("BytesList", ("value", 1, 3, kinds.TYPE_BYTES, ""))
    message("FloatList", ("value", 1, 3, kinds.TYPE_FLOAT, ""))
    message("Int64List", ("value", 1, 3, kinds.TYPE_INT64, ""))
    lists = enumerate([("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")], 1)
    feature = message("Feature", *((name, i, 1, kinds.TYPE_MESSAGE, target) for i, (name, target) in lists))
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message("Features", ("feature", 1, 3, kinds.TYPE_MESSAGE, "Features.FeatureEntry"))
    entry = message(
        "FeatureEntry",
        ("key", 1, 1, kinds.TYPE_STRING, ""),
        ("value", 2, 1, kinds.TYPE_MESSAGE, "Feature"),
        into=features,
    )
    entry.options.map_entry = True
    message("Example", ("features", 1, 1, kinds.TYPE_MESSAGE, "Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


def example_record(features: Mapping[str, Sequence[Any]]) -> bytes:
    """A framed record of an Example that protobuf serialized; values are bytes, floats or integers."""
    example = example_class(True)()
    for name, values in features.items():
        kind = {bytes: "bytes_list", float: "float_list", int: "int64_list"}[type(values[0])]
        getattr(example.features.feature[name], kind).value.extend(values)
    return framed(example.SerializeToString())


def framed(data: bytes) -> bytes:
    """A record with these data."""
    return b"".join(bytes(memoryview(piece)) for piece in frame([data]))
