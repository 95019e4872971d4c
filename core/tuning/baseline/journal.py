"""What a recording has measured so far, on disk, so that one that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any


class Journal:
    """What has been measured so far, one line each, on disk as soon as it is known."""

    def __init__(self, path: Path | None, entries: list[dict[str, Any]]) -> None:
        self._file = path.open("a", encoding="utf-8") if path is not None else None
        self.entries = entries

    def add(self, entry: Mapping[str, Any]) -> None:
        """Writes one line."""
        if self._file is not None:
            print(json.dumps(entry), file=self._file, flush=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@contextmanager
def open_journal(path: Path | None, identity: str) -> Iterator[Journal]:
    """The journal at `path`, with its entries when it is of the same run, else begun anew."""
    entries: list[dict[str, Any]] = []
    if path is not None:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        whole = []
        for line in lines:
            try:
                whole.append(json.loads(line))
            except ValueError:
                break  # the line that was being written when it stopped
        if whole and whole[0] == {"run": identity}:
            entries = whole[1:]
        path.write_text("".join(json.dumps(line) + "\n" for line in [{"run": identity}, *entries]), encoding="utf-8")
    with ExitStack() as stack:
        journal = Journal(path, entries)
        stack.callback(journal.close)
        yield journal
