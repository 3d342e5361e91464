"""One root over all chunks: what a proof shows, and what it cannot be made to show."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bruit.node.relay.keccak import keccak256
from bruit.node.relay.merkle import merkle_depth, merkle_proof, merkle_root, merkle_tree
from tests.relay import vectors

VECTORS: dict[str, Any] = json.loads(vectors.FILE.read_text(encoding="utf-8"))


def hashes(count: int) -> list[bytes]:
    return [keccak256(bytes([number])) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "depth"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (48, 6), (64, 6), (65_535, 16)]
)
def test_a_proof_has_a_hash_for_each_doubling(count: int, depth: int) -> None:
    assert merkle_depth(count) == depth


@pytest.mark.parametrize("count", [*range(1, 18), 48])
def test_every_chunk_has_a_proof_that_leads_to_the_root_of_the_slow_path(count: int) -> None:
    tree = merkle_tree(hashes(count))
    leaves = vectors.leaves_of(hashes(count))
    [root] = tree[-1]
    assert root == vectors.node(leaves)
    for index, each in enumerate(hashes(count)):
        proof = merkle_proof(tree, index)
        assert list(proof) == vectors.proof_of(leaves, index)
        assert len(proof) == merkle_depth(count)
        assert merkle_root(index, each, proof) == root


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_a_chunk_has_no_proof_at_another_index(count: int) -> None:
    tree = merkle_tree(hashes(count))
    [root] = tree[-1]
    proofs = [merkle_proof(tree, index) for index in range(1 << merkle_depth(count))]
    for own, each in enumerate(hashes(count)):
        for index in range(len(proofs)):
            for proof in proofs:
                fits = merkle_root(index, each, proof) == root
                assert fits == (index == own and proof == proofs[own])


@given(st.integers(2, 20), st.data())
def test_a_wrong_sibling_leads_elsewhere(count: int, data: st.DataObject) -> None:
    tree = merkle_tree(hashes(count))
    index = data.draw(st.integers(0, count - 1))
    proof = [bytearray(each) for each in merkle_proof(tree, index)]
    sibling = data.draw(st.sampled_from(proof))
    sibling[data.draw(st.integers(0, 31))] ^= data.draw(st.integers(1, 255))
    assert merkle_root(index, hashes(count)[index], [bytes(each) for each in proof]) != tree[-1][0]


def test_a_proof_cut_short_or_drawn_out_leads_elsewhere() -> None:
    tree = merkle_tree(hashes(5))
    [root] = tree[-1]
    proof = merkle_proof(tree, 2)
    for wrong in (proof[:-1], proof[1:], (), (*proof, bytes(32)), (*proof, root)):
        assert merkle_root(2, hashes(5)[2], wrong) != root


def test_an_inner_node_cannot_pass_for_a_chunk() -> None:
    tree = merkle_tree(hashes(4))
    [root] = tree[-1]
    for index, inner in enumerate(tree[1]):
        assert merkle_root(index, inner, merkle_proof(tree, 2 * index)[1:]) != root
    assert merkle_root(0, root, ()) != root


def test_a_leaf_that_fills_the_tree_is_no_chunk() -> None:
    tree = merkle_tree(hashes(3))
    [root] = tree[-1]
    proof = merkle_proof(tree, 3)
    assert merkle_root(3, bytes(32), proof) == root  # a hash that no chunk can be found for
    assert all(merkle_root(3, each, proof) != root for each in hashes(3))


def test_the_number_of_chunks_changes_the_root() -> None:
    roots = [merkle_tree(hashes(count))[-1][0] for count in range(1, 33)]
    assert len(dict.fromkeys(roots)) == 32


@pytest.mark.parametrize("vector", VECTORS["merkle"], ids=lambda vector: len(vector["chunks"]))
def test_vectors_of_trees(vector: dict[str, Any]) -> None:
    tree = merkle_tree([keccak256(bytes.fromhex(chunk)) for chunk in vector["chunks"]])
    assert tree[-1][0].hex() == vector["root"]
    last = len(vector["chunks"]) - 1
    assert [each.hex() for each in merkle_proof(tree, last)] == vector["proof_of_last"]
