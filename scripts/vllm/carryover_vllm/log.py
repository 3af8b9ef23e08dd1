"""The package's logger, below vLLM's own, so that vLLM's format and level apply."""

from __future__ import annotations

import logging

logger = logging.getLogger("vllm.plugins.carryover")

_told: set[str] = set()


def warn_once(message: str, *, trace: bool = False) -> None:
    """Logs a warning once in this process; trace: with the exception that is being handled."""
    if message in _told:
        return
    _told.add(message)
    logger.warning("carryover-vllm: %s", message, exc_info=trace)
