"""antecede chat: a live group in a terminal."""

from __future__ import annotations

import asyncio
import logging

from antecede.cli.live_options import MemberOptions
from antecede.errors import require


def chat(member: MemberOptions) -> None:
    """Chat in a terminal: an answer never appears before its question.

    In one terminal: antecede chat --me ana --listen :7000 --peer bo@127.0.0.1:7001 --store ana-store

    In another: antecede chat --me bo --listen :7001 --peer ana@127.0.0.1:7000 --store bo-store
    """
    require("prompt_toolkit", "live")
    from antecede.cli.chat_terminal import run

    settings = member.settings()
    logger = logging.getLogger("antecede.live")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        asyncio.run(run(settings))
    finally:
        logger.setLevel(level)
