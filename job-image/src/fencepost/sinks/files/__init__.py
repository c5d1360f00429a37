"""The sink of files: Parquet or JSON lines, and one manifest per batch, through which readers find the files.

`visible_files` is for readers; docs/sinks.md describes the manifests.
"""

from __future__ import annotations

from fencepost.sinks.files.reading import visible_files

__all__ = ["visible_files"]
