"""`python -m fencepost.local.parquet LINES PARQUET`: write the records of a file of JSON lines to a Parquet file."""

from __future__ import annotations

import sys
from pathlib import Path

from fencepost.local.record_files import copy_to_parquet

if __name__ == "__main__":
    copy_to_parquet(Path(sys.argv[1]), Path(sys.argv[2]))
