"""Training in another place without a shared disk: what it reads and writes goes through a bucket.

Below the setting's prefix each folder has its path in the home: `jobs/<name>`, the model and the
base to go on from, then `checkpoints/<name>` and `models/<name>`."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assets.vectors.encoders.hub import SENTENCE, split_reference
from extensions.scale.bucket_folder import fetch_folder, publish_folder, read_current, send_folder
from extensions.scale.bucket_store import Bucket, BucketUnavailable, PointerMoved, open_bucket
from training.adapter_table import make_adapter_row, make_adapter_table
from training.runtime.checkpoints import SEAL, get_checkpoint_root
from training.runtime.model_store import (
    CARD,
    TrainingFailed,
    TrainingJob,
    find_unreadable_weights,
    get_model_folder,
    read_job,
    read_model_card,
    save_model,
)
from warehouse.errors import UnusableInput

_CONFIG = "adapter_config.json"
# The files of a trained model, and the bytes that each may have.
MODEL_FILES = {CARD: 16 << 20, _CONFIG: 1 << 20, "adapter_model.safetensors": 8 << 30}
# Bytes of all checkpoints: two are kept, each an adapter and an optimizer's two figures a weight.
MOST_CHECKPOINTS = 6 * MODEL_FILES["adapter_model.safetensors"]
EVERY_S = 60.0  # between two looks for a new checkpoint
_BUCKET_ERRORS = (BucketUnavailable, UnusableInput, OSError)
Card = dict[str, Any]


def train_over_bucket(prefix: str, path: Path, run: Callable[[Sequence[str]], object]) -> Card:
    """Trains the job at `path` elsewhere unless the bucket has its model, and fetches that into the
    home; its card. run: runs the script behind the words it is given. Raises TrainingFailed."""
    job, url = read_job(path), prefix.rstrip("/")
    for field in ("role", "name", "training_set", "base", "start"):
        if type(found := getattr(job, field)) is not str:
            fix = "remove that file and train again"
            raise TrainingFailed(f"{path}: {field}: found {found!r:.60}, expected text; {fix}")
    if card := read_model_card(job.home, job.name):
        return card
    try:
        model = open_bucket(f"{url}/models/{job.name}")
        if read_current(model) is None:
            parts = _publish_parts(url, job, path)
            run(["-m", "extensions.scale.bucket_training", url, *parts, "--"])
        card = Card()
        save_model(job.home, job.name, card, lambda to: card.update(_fetch_model(model, job, to)))
        return card
    except _BUCKET_ERRORS as error:
        raise TrainingFailed(f"training.place.bucket: {error}") from error


def _publish_parts(url: str, job: TrainingJob, path: Path) -> list[str]:
    """Publishes what a job needs of the home: `<path in the home>=<version>` of each folder."""
    parts = [(f"jobs/{job.name}", path.parent, {path.name})]
    if job.start and (start := get_model_folder(job.home, job.start)).is_dir():
        parts.append((f"models/{job.start}", start, {*MODEL_FILES}))
    base = split_reference(job.base.removeprefix(SENTENCE))[0].replace("smollm2:", "smollm2-")
    folder = job.home / "bases" / base  # or the path that the base is
    if folder.is_relative_to(job.home) and (folder / "config.json").is_file():
        parts.append((folder.relative_to(job.home).as_posix(), folder, set()))
    return [
        f"{part}={send_folder(open_bucket(f'{url}/{part}'), folder, names).version}"
        for part, folder, names in parts
    ]


def _fetch_model(bucket: Bucket, job: TrainingJob, folder: Path) -> Card:
    """The card of a model that is fetched into an empty folder. Raises BucketUnavailable."""
    fetch_folder(bucket, folder, most=MODEL_FILES)
    try:
        card = json.loads((folder / CARD).read_bytes())
        json.dumps(card, ensure_ascii=False).encode()  # raises ValueError for half a character
        for name in ("role", "name", "training_set", "base"):
            if card[name] != getattr(job, name) or card.get("base_name", job.base) != job.base:
                raise ValueError(f"{name}: {card[name]!r:.60}, expected {getattr(job, name)!r}")
        make_adapter_table(job.role).frame([make_adapter_row(card)])
        numbers = [card["loss_first"], card["loss_last"], *(losses := card["losses"])]
        if type(losses) is not list or not losses or {*map(type, numbers)} - {int, float}:
            raise ValueError("loss_first, loss_last, losses: expected numbers")
        sum(map(float, numbers))
        if min(card["pairs"], card["steps"]) < 0:
            raise ValueError("pairs, steps: expected 0 or more")
        if type(json.loads((folder / _CONFIG).read_bytes())) is not dict:
            raise ValueError(f"{_CONFIG}: expected an object")
        if flaw := find_unreadable_weights(folder):
            raise ValueError(flaw)
    except (ValueError, KeyError, TypeError, OSError, RecursionError, OverflowError) as error:
        raise BucketUnavailable(
            f"{bucket.url}: is not the model of this training ({str(error)[:300]}); nothing of it"
            " was taken: remove that prefix from the bucket and train again"
        ) from None
    return card


def main(arguments: Sequence[str]) -> int:
    """`URL PART=VERSION… -- COMMAND… JOB`: in the other place, runs the command in a home of its
    own, which holds these parts, and publishes the model. Returns the exit code."""
    at = arguments.index("--")
    (url, *parts), command = arguments[:at], arguments[at + 1 : -1]
    name = parts[0].partition("=")[0].removeprefix("jobs/")
    with TemporaryDirectory(prefix="toolmill-") as scratch:
        home = Path(scratch)
        try:
            for part in parts:
                folder, _, version = part.partition("=")
                fetch_folder(open_bucket(f"{url}/{folder}"), home / folder, version=version)
            path = home / "jobs" / f"{name}.json"
            body = json.loads((home / "jobs" / name / path.name).read_bytes())
            there, base = body["home"], body["base"].replace(f"{body['home']}/", f"{home}/")
            path.write_text(json.dumps({**body, "home": str(home), "base": base}))
            code = _run_command([*command, str(path)], url, get_checkpoint_root(home, name))
            if code == 0:
                model = get_model_folder(home, name)
                for path in (model / CARD, model / _CONFIG):  # a base by where it is in that home
                    old, new = (json.dumps(str(place))[1:-1] for place in (home, there))
                    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
                with suppress(PointerMoved):  # the same training, elsewhere, has just published it
                    publish_folder(open_bucket(f"{url}/models/{name}"), model, names=MODEL_FILES)
        except _BUCKET_ERRORS as error:
            sys.stderr.write(f"training.place.bucket: {error}; then run it again\n")
            return 1
    return code if code >= 0 else 128 - code


def _run_command(command: Sequence[str], url: str, root: Path) -> int:
    """Runs a training from its last published checkpoint, without the keys of the bucket."""
    bucket = open_bucket(f"{url}/checkpoints/{root.name}")
    try:
        fetch_folder(bucket, root, most_bytes=MOST_CHECKPOINTS)
    except _BUCKET_ERRORS as error:
        sys.stderr.write(f"{error}; the training starts from the beginning\n")
    env = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    child = subprocess.Popen(command, env=env)
    try:
        while child.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                child.wait(EVERY_S)
            _publish_checkpoints(bucket, root)
    finally:
        child.kill()
        child.wait()
        _publish_checkpoints(bucket, root)
    return child.returncode


def _publish_checkpoints(bucket: Bucket, root: Path) -> None:
    """Publishes what is sealed: nothing of a training that ended well, which removes it."""
    try:
        sealed = [path.parent for path in root.glob(f"**/step-*/{SEAL}")]
        names = {path.relative_to(root).as_posix() for each in sealed for path in each.rglob("*")}
        if names:
            publish_folder(bucket, root, names=names)
    except _BUCKET_ERRORS as error:  # or it was pruned meanwhile
        sys.stderr.write(f"a checkpoint was not published: {error}\n")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if sys.platform == "linux":  # a killed run must not leave its training behind
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    sys.exit(main(sys.argv[1:]))
