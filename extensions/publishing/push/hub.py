"""Uploading to the hub, by its own client: what is there already is not sent again, and what
somebody else put there stays."""

import glob
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from extensions.publishing.push.stage import MANIFEST, Upload, read_manifest


class PushFailed(RuntimeError):
    """The hub took an upload not or not wholly; the same command goes on where it stopped."""


def send_uploads(
    uploads: Sequence[Upload], token: str, endpoint: str | None = None, *, private: bool = True
) -> list[dict[str, Any]]:
    """Makes each repository where it is missing and commits what differs; returns {repo, commit,
    changed}. Files whose content the hub has are not sent. Raises PushFailed, without the token."""
    from huggingface_hub import HfApi

    api, made = HfApi(endpoint=endpoint, token=token), list[dict[str, Any]]()
    for one in uploads:
        try:
            made.append(_send_upload(api, one, private))
        except Exception as error:  # of the hub, of HTTP and of names it refuses, all unlike
            # Cut last: what is left of a token that was cut would not be found.
            reason = " ".join(str(error).split()).replace(token, "…")[:300]
            done = ", ".join(one["repo"] for one in made) or "none"
            raise PushFailed(
                f"{one.repo}: {reason or type(error).__name__}; pushed before it: {done}. Run the"
                " same command again: what is there is not sent again"
            ) from None
    return made


def _send_upload(api: Any, one: Upload, private: bool) -> dict[str, Any]:
    api.create_repo(one.repo, repo_type=one.kind, private=private, exist_ok=True)
    before = _find_commit(api, one)
    held = set(api.list_repo_files(one.repo, repo_type=one.kind))
    ours = _find_pushed(api, one) & held if MANIFEST in held else set[str]()
    new = {name for name, _ in one.list_files()}
    commit = api.upload_folder(
        repo_id=one.repo,
        repo_type=one.kind,
        folder_path=str(one.folder),
        commit_message="Push by Toolmill",
        delete_patterns=[glob.escape(name) for name in sorted(ours - new)] or None,
    )
    kept = sorted(held - ours - new - {".gitattributes"})  # that one is the hub's own
    done = {"repo": one.repo, "commit": commit.oid, "changed": commit.oid != before}
    return {**done, "kept": kept} if kept else done


def _find_commit(api: Any, one: Upload) -> str | None:
    return api.repo_info(one.repo, repo_type=one.kind).sha


def _find_pushed(api: Any, one: Upload) -> set[str]:
    """The files that the push before wrote, as its manifest in the repository says."""
    with tempfile.TemporaryDirectory(prefix="toolmill-manifest-") as folder:
        path = api.hf_hub_download(one.repo, MANIFEST, repo_type=one.kind, cache_dir=folder)
        return read_manifest(Path(path).read_bytes())
