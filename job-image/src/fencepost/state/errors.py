"""Errors of the checkpoint directory; those of the database are the fence's (`fencepost.fence.errors`).

CheckpointError
├── PathInvalid      a path that a checkpoint cannot have, or an operation that the path does not allow
├── PathMissing      no file or directory is at the path
├── PathTaken        a file or directory is at the path
├── UploadUnknown    the file is not being uploaded: it was completed, abandoned, or never created
├── CheckpointFull   a bound is exceeded: files of a checkpoint, or bytes of a file
│   └── LogTooLong       or bytes of a log file, which names all partitions
├── CheckpointDamaged  a chunk that is reached is of the wrong length, or a value is unreadable
│   └── ChunkMissing     or it is not there
├── NameServiceUnavailable  the driver did not answer a data service: it is busy, or has ended
└── EpochOver        the epoch has ended for this process, and nothing may be changed any more
"""

from __future__ import annotations


class CheckpointError(Exception):
    """Base of the checkpoint's errors."""


class PathInvalid(CheckpointError):
    """A path that a checkpoint cannot have, or an operation that the path does not allow."""


class PathMissing(CheckpointError):
    """No file or directory is at the path."""


class PathTaken(CheckpointError):
    """A file or directory is at the path."""


class UploadUnknown(CheckpointError):
    """The file is not being uploaded: it was completed, abandoned, or never created."""


class CheckpointFull(CheckpointError):
    """A bound is exceeded: files of a checkpoint, or bytes of a file."""


class LogTooLong(CheckpointFull):
    """A log file has more bytes than are kept: it names all partitions of the topics, or of the state."""


class CheckpointDamaged(CheckpointError):
    """What the fence row reaches is not in the database as it was written."""


class ChunkMissing(CheckpointDamaged):
    """A chunk that the fence row or a snapshot reaches is not in the database."""


class NameServiceUnavailable(CheckpointError):
    """The driver did not answer a data service: it is busy, or has ended."""


class EpochOver(CheckpointError):
    """The epoch has ended for this process: nothing may be changed any more."""
