"""A pointer of a champion that is broken or lost is written again from the history."""

import json
from dataclasses import asdict

import pytest

from extensions.upkeep.storage_repair import restore_pointer
from tests.support.cases import cases
from tests.training.promotions import UNSURE, consider_model
from training.releases.champion import read_champion
from warehouse.storage.files import PointerBroken

FILE = "champions/retriever.json"


@cases(
    "text",
"{half", "[]", "null", '{"role": "caller", "model": "m1"}', '{"role": "retriever"}',
         '{"role": "retriever", "model": "m1", "evidence": []}', "",
)  # fmt: skip
def test_a_broken_pointer_is_named_with_its_fix_and_repaired(tmp_path, text):
    consider_model(tmp_path, "m1")
    consider_model(tmp_path, "m2", UNSURE)
    known = read_champion(tmp_path, "retriever")
    (tmp_path / FILE).write_text(text)
    with pytest.raises(PointerBroken, match=r"retriever\.json.*toolmill doctor --fix"):
        read_champion(tmp_path, "retriever")
    assert restore_pointer(tmp_path, "retriever") == known == read_champion(tmp_path, "retriever")


def test_a_pointer_that_was_lost_is_no_untrained_role_and_an_older_one_is_read(tmp_path):
    consider_model(tmp_path, "m1")
    known = read_champion(tmp_path, "retriever")
    (tmp_path / FILE).unlink()
    with pytest.raises(PointerBroken, match=r"missing, but .* names m1"):
        read_champion(tmp_path, "retriever")
    assert restore_pointer(tmp_path, "retriever") == known
    assert restore_pointer(tmp_path, "retriever") == known  # a whole one stays
    with pytest.raises(PointerBroken, match="names no champion of caller"):
        restore_pointer(tmp_path, "caller")
    body = asdict(read_champion(tmp_path, "retriever"))
    del body["gates"]
    (tmp_path / FILE).write_text(json.dumps({**body, "added_later": 1}))
    assert read_champion(tmp_path, "retriever").model == "m1"
