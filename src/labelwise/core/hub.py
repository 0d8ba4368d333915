"""Saved classifiers on a model hub: ``hf://user/name``, or ``hf://user/name@revision``. Nothing is fetched for any other address.

The package ``huggingface_hub`` does the work; it is imported only here, where it is needed. Its cache keeps what was fetched.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from labelwise.core.load import ABOUT
from labelwise.support.errors import StoreError, UnsupportedError, UsageError

PATTERNS = ["*.json", "*.safetensors", "*.onnx"]  # what a classifier may consist of, without folders
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_ADDRESS = re.compile(rf"hf:/+({_NAME}/{_NAME})(?:@(?!.*\.\.)([A-Za-z0-9._/-]{{1,200}}))?/?")
_REPOSITORY = re.compile(rf"{_NAME}/{_NAME}")
REASONS = {  # by the name of an error of the package
    "RepositoryNotFoundError": "there is no such repository, or it is private. Check the name, or log in: hf auth login",
    "GatedRepoError": "its owner must give you access first. Ask for it on the page of the repository",
    "RevisionNotFoundError": "it has no such revision. Check what follows the @",
    "LocalEntryNotFoundError": "the hub cannot be reached, and nothing is in the cache. Check the network",
    "ConnectError": "the hub cannot be reached. Check the network",
}


@dataclass(frozen=True)
class Published:
    """What was sent to the hub."""

    repository: str  # user/name
    address: str  # what ``load`` takes, with the revision
    url: str  # the page of the commit


def is_hub(path: str | Path) -> bool:
    """Return whether a path is the address of a classifier on the hub."""
    return str(path).startswith("hf:/")


def saved_folder(path: str | Path) -> Path:
    """Return the folder of a saved classifier; one on the hub is fetched first.

    >>> saved_folder("birds.lw")
    PosixPath('birds.lw')
    """
    if not is_hub(path):
        return Path(path)
    match = _ADDRESS.fullmatch(str(path))
    if match is None:
        raise UsageError(
            f'"{path}" is not the address of a classifier. Write hf://user/name or hf://user/name@revision.'
        )
    with _plain_errors(f'"hf://{match[1]}" cannot be fetched'):
        folder = _library().snapshot_download(
            match[1],
            revision=match[2],
            allow_patterns=PATTERNS,
            ignore_patterns="*/*",
            endpoint=os.environ.get("HF_ENDPOINT"),
        )
    if not (Path(folder) / ABOUT).exists():
        raise StoreError(f'"hf://{match[1]}" holds no classifier of labelwise: it has no {ABOUT}.')
    return Path(folder)


def check_repository(repository: str) -> str:
    """Return the name of a repository, or raise an error unless it is ``user/name``."""
    plain = re.sub(r"^hf:/+", "", repository)
    if not _REPOSITORY.fullmatch(plain):
        raise UsageError(f'A repository is called user/name; given "{repository}".')
    _library()
    return plain


def push_folder(folder: Path, repository: str, *, private: bool, token: str | None, message: str) -> Published:
    """Send a folder to a repository of the hub, which is made if it is missing; files of other names there stay."""
    with _plain_errors(f'"{repository}" cannot be written', token):
        api = _library().HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=token)
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message)
    return Published(repository, f"hf://{repository}@{commit.oid}", str(commit.commit_url))


def _library() -> Any:
    try:
        return import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f'The hub needs {error.name}, which is not installed: pip install "labelwise[hub]".'
        ) from None


@contextmanager
def _plain_errors(action: str, token: str | None = None) -> Iterator[None]:
    """Turn what the package raises into an error for people, in which no token is."""
    try:
        yield
    except (UnsupportedError, UsageError):
        raise
    except Exception as error:  # the package and its HTTP library have dozens of kinds
        kinds = [kind.__name__ for kind in type(error).__mro__]
        reason = next((REASONS[kind] for kind in kinds if kind in REASONS), None)
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403) and reason is None:
            reason = "the hub refuses. Log in with a token that may write: hf auth login"
        text = reason or without_token(str(error).strip().partition("\n")[0][:200], token) or kinds[0]
        raise StoreError(f"{action}: {text.rstrip('.')}.") from None


def without_token(text: str, token: str | None) -> str:
    """Replace the tokens of this user by stars."""
    secrets = {token, os.environ.get("HF_TOKEN"), os.environ.get("HUGGING_FACE_HUB_TOKEN")}
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return re.sub(r"\bhf_[A-Za-z0-9]{8,}", "***", text)
