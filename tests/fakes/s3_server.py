"""An S3-compatible store in memory, behind HTTP: one bucket, and the requests of Arrow's client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class S3Server:
    """`objects` are by 'bucket/key'. While it `refuses`, each request is forbidden."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.objects = dict[str, bytes]()
        self.uploads = dict[str, dict[int, bytes]]()
        self.refuses = False
        self.endpoint = ""

    @classmethod
    @contextmanager
    def running(cls, bucket: str) -> Iterator[S3Server]:
        """Serve in a thread."""
        store = cls(bucket)
        handler = type("Handler", (_Handler,), {"store": store})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        store.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    store: S3Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/")

    def _query(self) -> dict[str, str]:
        return {key: found[0] for key, found in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}

    def _answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(self._chunks())
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" not in (self.headers.get("Content-Encoding") or ""):
            return body
        content = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            length = int(size.partition(b";")[0] or b"0", 16)
            if not length:
                break
            content, body = content + body[:length], body[length + 2 :]
        return content

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _is_refused(self) -> bool:
        body_is_read = self.command in {"GET", "HEAD", "DELETE"}
        if not self.store.refuses:
            return False
        if not body_is_read:
            self._body()
        self._error(403, "AccessDenied")
        return True

    def do_GET(self) -> None:
        if self._is_refused():
            return
        name = self._name()
        if not name.partition("/")[2]:
            self._list(name.rstrip("/"))
        elif name not in self.store.objects:
            self._error(404, "NoSuchKey")
        else:
            content = self.store.objects[name]
            start, _, end = (self.headers.get("Range") or "").removeprefix("bytes=").partition("-")
            part = content[int(start or 0) : int(end) + 1 if end else None]
            self._answer(206 if start else 200, part, ETag='"e"')

    def do_HEAD(self) -> None:
        if self._is_refused():
            return
        name = self._name()
        if name.rstrip("/") == self.store.bucket:
            self._answer(200)
        elif name in self.store.objects:
            self._answer(200, Content_Length=str(len(self.store.objects[name])), ETag='"e"')
        else:
            self._answer(404)

    def do_PUT(self) -> None:
        if self._is_refused():
            return
        query, body = self._query(), self._body()
        if "uploadId" in query:
            self.store.uploads[query["uploadId"]][int(query["partNumber"])] = body
        else:
            self.store.objects[self._name()] = body
        self._answer(200, ETag='"e"')

    def do_POST(self) -> None:
        if self._is_refused():
            return
        query, name = self._query(), self._name()
        self._body()
        if "uploads" in query:
            upload = f"u{len(self.store.uploads)}"
            self.store.uploads[upload] = {}
            text = f"<UploadId>{upload}</UploadId>"
            self._answer(200, f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>".encode())
        else:
            parts = self.store.uploads.pop(query["uploadId"])
            self.store.objects[name] = b"".join(parts[number] for number in sorted(parts))
            self._answer(200, b'<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>')

    def do_DELETE(self) -> None:
        if self._is_refused():
            return
        self.store.objects.pop(self._name(), None)
        self._answer(204)

    def _list(self, bucket: str) -> None:
        if bucket != self.store.bucket:
            self._error(404, "NoSuchBucket")
            return
        prefix = self._query().get("prefix", "")
        names = sorted(name.partition("/")[2] for name in self.store.objects)
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.store.objects[f'{bucket}/{key}'])}</Size></Contents>"
            for key in names
            if key.startswith(prefix)
        )
        self._answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode())
