"""Uploading to the hub, by its own client: what is there already is not sent again."""

from collections.abc import Sequence
from typing import Any

from training.releases.push.stage import Upload


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
    commit = api.upload_folder(
        repo_id=one.repo,
        repo_type=one.kind,
        folder_path=str(one.folder),
        commit_message="Push by Toolmill",
        delete_patterns=["*"],  # a repository holds what was pushed last, nothing else
    )
    return {"repo": one.repo, "commit": commit.oid, "changed": commit.oid != before}


def _find_commit(api: Any, one: Upload) -> str | None:
    return api.repo_info(one.repo, repo_type=one.kind).sha
