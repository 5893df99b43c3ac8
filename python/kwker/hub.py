"""Where a model is: a folder, or a name on the Hub that the local cache holds or the network brings."""

from __future__ import annotations

import re
from pathlib import Path

from kwker import _core

__all__ = ["find_model"]

_FILES = ["*.json", "*.safetensors", "*.jinja"]
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def find_model(name: str) -> Path:
    """The folder of the model `name`. Raises kwker.Error, in one sentence, where there is none."""
    if Path(name).exists():
        return Path(name)
    if not _HUB_NAME.fullmatch(name):
        raise _core.Error(f"{name} is neither a folder nor the name of a model on the Hub (owner/name)")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=_FILES, local_files_only=True))
    except LocalEntryNotFoundError:
        pass
    try:
        return Path(snapshot_download(name, allow_patterns=_FILES))
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise _core.Error(f"{name} is not in the local cache and cannot be downloaded: {reason}") from error
