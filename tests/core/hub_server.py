"""A small model hub: the HTTP routes that ``huggingface_hub`` uses to make a repository, write a commit, and fetch its files."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_abcdefgh12345678"


@dataclass
class Hub:
    """What the hub holds: commits by repository, each a list of its files, and large files by their SHA-256."""

    url: str = ""
    commits: dict[str, list[tuple[str, dict[str, bytes]]]] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    private: set[str] = field(default_factory=set)

    def files(self, repository: str, revision: str = "main") -> tuple[str, dict[str, bytes]] | None:
        """The id and the files of a commit."""
        commits = self.commits.get(repository, [])
        same = [one for one in commits if revision in ("main", one[0])]
        return same[-1] if same else None


class Handler(BaseHTTPRequestHandler):
    """Answers as the hub does."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, document: Any, code: int = 200, headers: dict[str, str] | None = None) -> None:
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self, kind: str, code: int = 404) -> None:
        self._send({"error": kind}, code, {"X-Error-Code": kind, "X-Error-Message": kind})

    @property
    def _may_write(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def do_POST(self) -> None:
        body, path = self._body(), self.path.partition("?")[0]
        self.hub.requests.append(("POST", path))
        if path == "/api/validate-yaml":
            self._send({"errors": [], "warnings": []})
        elif not self._may_write:
            self._send({"error": f"bad token {self.headers.get('Authorization')}"}, 401)
        elif path == "/api/repos/create":
            about = json.loads(body)
            name = f"{about.get('organization') or 'ann'}/{about['name']}"
            self.hub.commits.setdefault(name, [("0" * 40, {})])
            self.hub.private |= {name} if about.get("private") or about.get("visibility") == "private" else set()
            self._send({"url": f"{self.hub.url}/{name}"})
        elif match := re.fullmatch(r"/api/models/(.+)/preupload/main", path):
            files = json.loads(body)["files"]
            large = (".safetensors", ".onnx")
            modes = [
                {"path": one["path"], "uploadMode": "lfs" if one["path"].endswith(large) else "regular"}
                for one in files
            ]
            self._send({"files": [{**mode, "shouldIgnore": False, "oid": None} for mode in modes]})
        elif re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
            objects = json.loads(body)["objects"]
            actions = [{**one, "actions": {"upload": {"href": f"{self.hub.url}/put/{one['oid']}"}}} for one in objects]
            self._send({"transfer": "basic", "objects": actions})
        elif match := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            self._commit(match[1], [json.loads(line) for line in body.splitlines()])
        else:
            self._send({"error": path}, 404)

    def _commit(self, repository: str, lines: list[dict[str, Any]]) -> None:
        files = dict(self.hub.commits[repository][-1][1])
        for line in lines:
            about = line["value"]
            if line["key"] == "file":
                files[about["path"]] = base64.b64decode(about["content"])
            elif line["key"] == "lfsFile":
                files[about["path"]] = self.hub.large[about["oid"]]
        id = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.hub.commits[repository].append((id, files))
        self._send({"success": True, "commitOid": id, "commitUrl": f"{self.hub.url}/{repository}/commit/{id}"})

    def do_PUT(self) -> None:
        content = self._body()
        self.hub.requests.append(("PUT", self.path))
        assert hashlib.sha256(content).hexdigest() == self.path.rpartition("/")[2]
        self.hub.large[self.path.rpartition("/")[2]] = content
        self._send(b"")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.hub.requests.append((self.command, path))
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path):
            self._about(*match.groups())
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(*match.groups())
        elif path == "/api/whoami-v2":
            self._send({"name": "ann", "type": "user", "orgs": []})
        else:
            self._refuse("EntryNotFound")

    def _about(self, repository: str, kind: str | None, revision: str | None) -> None:
        commit = self.hub.files(repository, revision or "main")
        if repository not in self.hub.commits or (repository in self.hub.private and not self._may_write):
            self._refuse("RepoNotFound")
        elif commit is None:
            self._refuse("RevisionNotFound")
        elif kind == "tree":
            self._send(
                [
                    {"type": "file", "path": name, "size": len(content), "oid": "x"}
                    for name, content in commit[1].items()
                ]
            )
        else:
            names = [{"rfilename": name} for name in commit[1]]
            self._send({"id": repository, "modelId": repository, "sha": commit[0], "siblings": names, "private": False})

    def _file(self, repository: str, revision: str, name: str) -> None:
        commit = self.hub.files(repository, revision)
        if commit is None or name not in commit[1]:
            self._refuse("EntryNotFound")
            return
        content = commit[1][name]
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": commit[0]}
        self._send(content, headers=headers)


@contextmanager
def serving() -> Iterator[Hub]:
    """Run a hub on this machine."""
    hub = Hub()
    handler = type("Own", (Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield hub
        finally:
            server.shutdown()
