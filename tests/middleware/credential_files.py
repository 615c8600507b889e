"""Credential files as an administrator would issue them."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any


def content(name: str = "storage.reader", days: float = 90, **changes: Any) -> dict[str, Any]:
    """What a file holds; ``days`` from now to its end."""
    now = datetime.now(UTC)
    told = {
        "credential": name,
        "issued_at": (now - timedelta(days=1)).isoformat(),
        "expires_at": (now + timedelta(days=days)).isoformat(),
        "values": {"key": "hunter2"},
    }
    return told | changes


def issue(path: Path, name: str = "storage.reader", days: float = 90, *, mode: int = 0o400, **changes: Any) -> Path:
    """Put a file in place, whole or not at all, as a replacement would come."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content(name, days, **changes)))
    fresh.chmod(mode)
    os.replace(fresh, path)
    return path
