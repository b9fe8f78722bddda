"""Only texts that the store lacks are embedded; membership is per marketplace."""

from assets.vectors.index import (
    VECTORS,
    build_server_text,
    build_texts,
    embed_contracts,
    embed_texts,
    find_norm_flaws,
)
from tests.vectors.conftest import WordEmbedder, snapshot
from warehouse.storage.lance import LanceStore, make_vector_key


def test_each_tool_and_each_server_has_one_text(listed: list[dict]) -> None:
    members = build_texts(listed)
    assert sum(member["kind"] == "tool" for member in members) == 4
    assert sum(member["kind"] == "server" for member in members) == 3
    assert {member["tool"] for member in members if member["kind"] == "server"} == {""}


def test_a_text_held_by_two_marketplaces_is_embedded_once(
    listed: list[dict], embedder: WordEmbedder, store: LanceStore
) -> None:
    rows = embed_contracts(listed, embedder, store)
    assert len(embedder.embedded) == len(set(embedder.embedded)) == 5
    assert len(VECTORS.frame(rows)) == 7
    assert find_norm_flaws(rows, store) == []


def test_a_second_run_embeds_only_what_is_new(
    listed: list[dict], embedder: WordEmbedder, store: LanceStore
) -> None:
    first = embed_contracts(listed, embedder, store)
    embedder.embedded.clear()
    assert embed_contracts(listed, embedder, store) == first
    assert embedder.embedded == []
    changed = [*listed[1:], snapshot("npm:files", "read_file", "Read a file or a folder")]
    embed_contracts(changed, embedder, store)
    assert len(embedder.embedded) == 1


def test_another_embedder_embeds_everything_again(
    listed: list[dict], embedder: WordEmbedder, store: LanceStore
) -> None:
    embed_contracts(listed, embedder, store)
    other = WordEmbedder("other")
    embed_contracts(listed, other, store)
    assert len(other.embedded) == 5


def test_a_killed_embedding_resumes_with_what_is_left(
    embedder: WordEmbedder, store: LanceStore
) -> None:
    listed = [snapshot("npm:many", f"tool_{i}", f"Does thing {i}") for i in range(300)]

    class Killed(Exception):
        pass

    class Kill:
        def update(self, *_: object, **__: object) -> None:
            raise Killed

    try:
        embed_contracts(listed, embedder, store, Kill())
    except Killed:
        pass
    done = len(embedder.embedded)
    assert 0 < done < 301
    embed_contracts(listed, embedder, store)
    assert len(embedder.embedded) == 301


def test_a_member_without_a_vector_is_a_flaw(
    listed: list[dict], embedder: WordEmbedder, store: LanceStore
) -> None:
    rows = embed_contracts(listed, embedder, store)
    lost = [{**rows[0], "embedder": "gone"}]
    assert find_norm_flaws(lost, store) == [
        f"{make_vector_key(rows[0]['text_digest'], 'gone')}: no vector"
    ]


def test_texts_come_through_the_store_in_order(embedder: WordEmbedder, store: LanceStore) -> None:
    found = embed_texts(["b c", "a", "b c"], embedder, store)
    assert (found == embedder.embed(["b c", "a", "b c"])).all()
    embedder.embedded.clear()
    embed_texts(["a"], embedder, store)
    assert embedder.embedded == []


def test_a_server_text_ignores_the_order_of_its_tools(listed: list[dict]) -> None:
    tools = [{"name": "b_tool"}, {"name": "aTool"}]
    assert build_server_text("npm:@x/y", tools) == build_server_text("npm:@x/y", tools[::-1])
    assert "a tool, b tool" in build_server_text("npm:@x/y", tools)
