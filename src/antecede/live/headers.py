"""What an application says about the body of a message: its content type, and headers of its own.

Both are small and bounded: anything larger belongs into the body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from antecede.errors import InputError

MAX_HEADERS = 64
MAX_NAME = 100
"""Characters of a header's name."""
MAX_HEADER_BYTES = 1 << 13
"""Maximum bytes of all names and values of a message together, in UTF-8."""
MAX_CONTENT_TYPE = 255
"""Characters."""
RESERVED = "antecede-"
"""Names that begin like this are the library's own."""
REQUEST = "antecede-request"
"""In a request: its number, and who is asked."""
REPLY = "antecede-reply"
"""In a reply: the number of the request, and its message."""


Headers = dict[str, str | bytes]


class About(msgspec.Struct, frozen=True):
    """The metadata that is sent with a body."""

    content_type: str = ""
    headers: Headers | None = None
    seal: Callable[[int, bytes], bytes] | None = None
    """For an addressed or encrypted message: a function that makes the body to send, which includes the other
    fields."""
    is_encrypted: bool = False
    """Whether it is for all readers of an encrypted group."""


NOTHING = About()


def describe(headers: Mapping[str, str | bytes] | None, content_type: str) -> About:
    """The metadata that an application gives, or an `InputError`.

    >>> describe({"trace": "4bf9"}, "image/png")
    About(content_type='image/png', headers={'trace': '4bf9'}, seal=None, is_encrypted=False)
    """
    if not headers and not content_type:
        return NOTHING
    _validate_content_type(content_type)
    return About(content_type, _validate(headers or {}) or None)


def with_reserved(about: About, headers: Mapping[str, str | bytes]) -> About:
    """The same metadata with the library's own headers added."""
    if not headers:
        return about
    return msgspec.structs.replace(about, headers={**(about.headers or {}), **headers})


def of_application(headers: Mapping[str, Any] | None) -> Headers:
    """The application's headers, as far as they are text or bytes."""
    found = (headers or {}).items()
    return {
        name: value
        for name, value in found
        if isinstance(value, str | bytes) and not name.startswith(RESERVED)
    }


def _validate_content_type(content_type: str) -> None:
    if type(content_type) is not str:
        raise InputError(f"content_type: a {type(content_type).__name__}, and no text")
    if len(content_type) > MAX_CONTENT_TYPE:
        raise InputError(f"content_type: {len(content_type):,} characters; it has {MAX_CONTENT_TYPE} at most")
    _validate_text(content_type, "content_type")


def _validate(headers: Mapping[str, str | bytes]) -> Headers:
    if not isinstance(headers, Mapping):
        raise InputError(f"headers: a {type(headers).__name__}, and no dict of names and values")
    if len(headers) > MAX_HEADERS:
        raise InputError(f"headers: {len(headers):,} of them; a message has {MAX_HEADERS} at most")
    size = 0
    for name, value in headers.items():
        if type(name) is not str or not name:
            raise InputError(f"headers: {name!r} is no name; a name is a text that is not empty")
        where = f"headers[{name[:MAX_NAME]!r}]"
        if len(name) > MAX_NAME:
            raise InputError(f"{where}: the name has {len(name):,} characters; it has {MAX_NAME} at most")
        if name.startswith(RESERVED):
            raise InputError(f"{where}: names that begin with {RESERVED!r} are the library's own")
        _validate_text(name, where)
        if type(value) is str:
            size += len(name.encode()) + _validate_text(value, where)
        elif type(value) is bytes:
            size += len(name.encode()) + len(value)
        else:
            raise InputError(f"{where}: a value of type {type(value).__name__}; headers are text or bytes")
    if size > MAX_HEADER_BYTES:
        raise InputError(f"headers: {size:,} bytes together; a message has {MAX_HEADER_BYTES:,} at most")
    return dict(headers)


def _validate_text(text: str, where: str) -> int:
    """The length of a text in UTF-8."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InputError(f"{where}: the text has half of a surrogate pair, which cannot be encoded") from None
