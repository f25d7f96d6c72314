"""Real keys and certificates for simulated members, made once: they are what encryption is about."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from antecede.live.changing.core import ChangingCore
from antecede.live.changing.encryption import Encryption
from antecede.live.security import keys
from antecede.live.security.identity import Security
from antecede.live.settings import Settings

_NAMES = [f"m{rank}" for rank in range(10)] + [f"p{rank}" for rank in range(8)]


def encryption(core: ChangingCore, is_on: bool) -> Encryption:
    """Of a simulated process, whose core is new."""
    if not is_on:
        return Encryption(core, Settings.create(group="g", me=core.name), _insecure())
    return Encryption(core, *_security_of(core.name))


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="antecede-vopr-")
    keys.make_keys(Path(folder.name), "g", _NAMES, [], 30, {}, [])
    return folder


@functools.cache
def _security_of(name: str) -> tuple[Settings, Security]:
    settings = Settings.create(group="g", me=name, encrypt=True, keys=Path(_folder().name) / name)
    return settings, Security(settings)


@functools.cache
def _insecure() -> Security:
    return Security(Settings.create(group="g", me="m"))
