"""Names of headers as text: bytes of a name that are not UTF-8 are read as U+FFFD.

Kafka requires UTF-8 and no broker checks it.  confluent_kafka decodes the names strictly, raises SystemError in
`Message.headers`, and keeps a list of which some names are null pointers, so nothing can be read after that.  It has no
option for this; the decoder's error handler is the only place to change it.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Decoding(threading.local):
    is_lenient = False


_decoding = _Decoding()


def _strict(error: UnicodeError) -> tuple[str | bytes, int]:
    """Be Python's handler `strict`, except in a thread that is inside `replaced`."""
    return codecs.replace_errors(error) if _decoding.is_lenient else codecs.strict_errors(error)


@contextmanager
def replaced() -> Iterator[None]:
    """Decode with replacement in this thread what is decoded strictly otherwise. Wrap the first `Message.headers`."""
    codecs.register_error("strict", _strict)  # again each time: it is the process's, and a library may set its own
    _decoding.is_lenient = True
    try:
        yield
    finally:
        _decoding.is_lenient = False
