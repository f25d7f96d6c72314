"""A hash of each row, equal to Spark's: it breaks ties between rows that nothing else orders.

Spark's xxhash64 is XXH64 with seed 42 over the columns, each value's hash being the seed of the next; nulls
are skipped. Here it runs over Arrow columns, so that the local engine puts rows in the order that Spark does.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.causal_order.columns import Roles
from antecede.causal_order.interpreted import is_small
from antecede.causal_order.request import NeedsSparkError

_SEED = 42
_LONG_DIGITS = 18
_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)


def digest_rows(table: pa.Table, roles: Roles) -> pa.Array:
    """The digest of each row, equal to the one that `columns_on_spark` makes Spark compute."""
    state = np.full(table.num_rows, _SEED, np.uint64)
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # The column of a table without rows.
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        if pa.types.is_nested(column.type) and name not in (roles["deps"], roles["clock"]):
            kind = column.type
            column = pa.array(
                [_to_json(name, _with_objects(kind, value)) for value in column.to_pylist()], pa.string()
            )
        state = hash_column(hash_column(state, column.is_null()), column)
    return pa.array(state.view(np.int64))


def hash_column(state: np.ndarray, column: pa.Array) -> np.ndarray:
    """Continue each row's hash with its value of this column; a null leaves it as it is."""
    kind = column.type
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        return _hash_lists(state, column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _hash_lists(state, column)
    if pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            state = hash_column(state, pc.struct_field(column, at))
        return state
    if pa.types.is_decimal(kind):
        hashed = _hash_decimals(state, column)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        hashed = _hash_texts(state, column.cast(pa.large_string()))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        hashed = _hash_texts(state, column.cast(pa.large_binary()))
    elif _is_unknown_to_spark(kind):
        # Spark has no hash to agree with here.
        texts = pa.array([str(value) for value in column], pa.large_string())
        hashed = _hash_texts(state, texts)
    else:
        hashed = _hash_words(state, column)
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), hashed, state)


def _hash_lists(state: np.ndarray, column: pa.Array) -> np.ndarray:
    """The first elements of all lists, then the second ones, and so on."""
    state = state.copy()
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    begins = np.cumsum(lengths) - lengths
    values = column.flatten()
    for place in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > place)
        state[rows] = hash_column(state[rows], values.take(pa.array(begins[rows] + place)))
    return state


def _hash_words(state: np.ndarray, column: pa.Array) -> np.ndarray:
    """Values of four or eight bytes."""
    kind = column.type
    if pa.types.is_floating(kind):
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 becomes 0.0
        numbers = np.where(np.isnan(numbers), np.nan, numbers)  # all NaN alike
        words = numbers.astype(kind.to_pandas_dtype()).view(f"u{kind.bit_width // 8}")
        width = kind.bit_width // 8
    elif pa.types.is_boolean(kind):
        words, width = column.fill_null(False).to_numpy(zero_copy_only=False), 4
    elif pa.types.is_integer(kind):
        # Spark reads unsigned integers as the next larger type.
        width = 8 if kind.bit_width == 64 or kind == pa.uint32() else 4
        words = column.fill_null(0).to_numpy(zero_copy_only=False).astype(f"i{width}").view(f"u{width}")
    elif pa.types.is_date32(kind):
        words, width = column.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False).view("u4"), 4
    elif pa.types.is_timestamp(kind):
        micros = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).fill_null(0)
        words, width = micros.to_numpy(zero_copy_only=False).view("u8"), 8
    else:
        raise NeedsSparkError(f"values of type {kind}")
    return _hash_four(state, words) if width == 4 else _hash_eight(state, words)


def _rotate(value: np.ndarray, bits: int) -> np.ndarray:
    rotated: np.ndarray = (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))
    return rotated


def _avalanche(value: np.ndarray) -> np.ndarray:
    value = (value ^ (value >> np.uint64(33))) * _PRIME_2
    value = (value ^ (value >> np.uint64(29))) * _PRIME_3
    mixed: np.ndarray = value ^ (value >> np.uint64(32))
    return mixed


def _hash_four(state: np.ndarray, words: np.ndarray) -> np.ndarray:
    value = (state + _PRIME_5 + np.uint64(4)) ^ (words.astype(np.uint64) * _PRIME_1)
    return _avalanche(_rotate(value, 23) * _PRIME_2 + _PRIME_3)


def _hash_eight(state: np.ndarray, words: np.ndarray) -> np.ndarray:
    value = state + _PRIME_5 + np.uint64(8)
    value = value ^ (_rotate(words.astype(np.uint64) * _PRIME_2, 31) * _PRIME_1)
    return _avalanche(_rotate(value, 27) * _PRIME_1 + _PRIME_4)


def _is_unknown_to_spark(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_time(kind)
        or pa.types.is_duration(kind)
        or kind in (pa.float16(), pa.uint64(), pa.date64(), pa.null())
        or (pa.types.is_timestamp(kind) and kind.unit == "ns")
    )


def _hash_decimals(state: np.ndarray, column: pa.Array) -> np.ndarray:
    """The unscaled value as a 64-bit integer if its type allows, otherwise as bytes."""
    width, data = column.type.byte_width, column.buffers()[1].to_pybytes()
    begins = range(column.offset * width, (column.offset + len(column)) * width, width)
    digits = [int.from_bytes(data[begin : begin + width], "little", signed=True) for begin in begins]
    if column.type.precision <= _LONG_DIGITS:
        return _hash_eight(state, np.array(digits, np.int64).view("u8"))
    octets = [_shortest(number) for number in digits]
    return _hash_texts(state, pa.array(octets, pa.large_binary()))


def _shortest(number: int) -> bytes:
    """A number as Java's BigInteger encodes it: two's complement, without redundant bytes."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _hash_texts(state: np.ndarray, large: pa.Array) -> np.ndarray:
    _, offsets, data = large.buffers()
    begins = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1]
    octets = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    if is_small(len(large)):
        from antecede.causal_order.interpreted import hash_texts
    else:
        from antecede.causal_order.text_hash import hash_texts
    return np.asarray(hash_texts(octets, begins, state))


def _with_objects(kind: pa.DataType, value: Any) -> Any:
    """A value with its maps as dictionaries; Arrow has them as lists of pairs."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        if not (pa.types.is_string(kind.key_type) or pa.types.is_integer(kind.key_type)):
            raise NeedsSparkError(f"a map with keys of type {kind.key_type}")
        return {str(key): _with_objects(kind.item_type, one) for key, one in value}
    if pa.types.is_struct(kind):
        return {field.name: _with_objects(field.type, value[field.name]) for field in kind}
    return [_with_objects(kind.value_type, one) for one in value]


def _to_json(name: str, value: Any) -> str:
    """A nested value as Spark's to_json writes it, with null fields."""
    return f"{{{_json_text(name)}:{_json_value(value)}}}"


def _json_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _json_text(value)
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, list):
        return f"[{','.join(map(_json_value, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_json_text(key)}:{_json_value(one)}' for key, one in value.items())}}}"
    raise NeedsSparkError(f"nested values of type {type(value).__name__}")


_JSON_ESCAPES = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord(char): f"\\{escape}" for char, escape in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)
}


def _json_text(text: str) -> str:
    return f'"{text.translate(_JSON_ESCAPES)}"'
