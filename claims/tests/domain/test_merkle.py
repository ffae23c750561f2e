"""The Merkle log against the known answers of the Certificate Transparency test vectors, and itself."""

from __future__ import annotations

import pytest

from claims.domain.merkle import (
    EMPTY_ROOT,
    Checkpoint,
    Inclusions,
    Log,
    consistency_from_edge,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    read_checkpoint,
    root_of,
    root_with,
    verify_consistency,
    verify_inclusion,
)
from claims.errors import ProofError
from claims.ledger import Proofs

#: The eight leaves of the reference implementation's tests (certificate-transparency, merkle_tree_test.cc).
LEAVES = [
    bytes.fromhex(one)
    for one in (
        "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
    )
]  # fmt: skip
HASHES = [leaf_hash(leaf) for leaf in LEAVES]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
INCLUSION = {
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (3, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (2, 5): [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
CONSISTENCY = {
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}


def test_roots_of_the_known_leaves():
    log = Log()
    assert log.root() == EMPTY_ROOT
    for size, known in enumerate(ROOTS, 1):
        log.append(HASHES[size - 1])
        assert log.root().hex() == known
        assert root_of(HASHES[:size]).hex() == known


@pytest.mark.parametrize(("which", "known"), INCLUSION.items())
def test_known_inclusion_proofs(which, known):
    leaf, size = which
    assert [one.hex() for one in inclusion_proof(HASHES[:size], leaf - 1)] == known


@pytest.mark.parametrize(("which", "known"), CONSISTENCY.items())
def test_known_consistency_proofs(which, known):
    old, new = which
    assert [one.hex() for one in consistency_proof(HASHES[:new], old)] == known


def test_every_proof_of_small_logs_holds_and_no_other_does():
    hashes = [leaf_hash(str(number).encode()) for number in range(18)]
    roots = [root_of(hashes[:size]) for size in range(19)]
    for size in range(1, 19):
        for index in range(size):
            proof = inclusion_proof(hashes[:size], index)
            verify_inclusion(hashes[index], index, size, proof, roots[size])
            for wrong in (
                (hashes[(index + 1) % 18], index, size, proof, roots[size]),
                (hashes[index], index, size, proof, roots[size - 1]),
                (hashes[index], index, size, [*proof, bytes(32)], roots[size]),
                (hashes[index], size, size, proof, roots[size]),
                *([(hashes[index], index, size, proof[:-1], roots[size])] if proof else []),
            ):
                with pytest.raises(ProofError):
                    verify_inclusion(*wrong)
        for old in range(1, size + 1):
            proof = consistency_proof(hashes[:size], old)
            verify_consistency(old, roots[old], size, roots[size], proof)
            for wrong in (
                (old, roots[old - 1], size, roots[size], proof),
                (old, roots[old], size, roots[size - 1], proof),
                (old, roots[old], size, roots[size], [*proof, bytes(32)]),
                *([(old, roots[old], size, roots[size], proof[:-1])] if proof else []),
                *([(old, roots[old], size, roots[size], [bytes(32), *proof[1:]])] if proof else []),
            ):
                with pytest.raises(ProofError):
                    verify_consistency(*wrong)


def test_an_empty_log_is_the_beginning_of_every_log():
    verify_consistency(0, EMPTY_ROOT, 8, bytes.fromhex(ROOTS[7]), [])
    with pytest.raises(ProofError):
        verify_consistency(0, bytes(32), 8, bytes.fromhex(ROOTS[7]), [])


def test_a_leaf_is_never_taken_for_a_node():
    """A leaf made of two hashes has not the hash of their parent."""
    assert leaf_hash(HASHES[0] + HASHES[1]) != node_hash(HASHES[0], HASHES[1])


def test_a_log_goes_on_from_its_edge():
    log = Log()
    for hashed in HASHES[:5]:
        log.append(hashed)
    again = Log(log.size, log.edge)
    assert [again.append(hashed) for hashed in HASHES[5:]] == [5, 6, 7]
    assert again.root().hex() == ROOTS[7]
    with pytest.raises(ProofError):
        Log(3, [bytes(32)])


def test_a_checkpoint_is_read_as_it_was_written():
    point = Checkpoint("goodput.example/alpha", 8, bytes.fromhex(ROOTS[7]))
    assert read_checkpoint(point.text()) == point
    assert read_checkpoint(point.text() + "\n— key signature\n") == point


@pytest.mark.parametrize(
    "text", ["", "a\n1\n", "a\n01\nAAAA\n", "a\n-1\nAAAA\n", "a\n٣\nAAAA\n", "a\n1\nAAAA\n", "a\n1\n???\n"]
)
def test_a_damaged_checkpoint_is_refused(text):
    with pytest.raises(ProofError):
        read_checkpoint(text)


@pytest.mark.parametrize("old", range(1, 40))
def test_a_proof_from_the_edge_is_the_one_from_all_leaves(old):
    hashes = [leaf_hash(bytes([number])) for number in range(80)]
    log = Log()
    for hashed in hashes[:old]:
        log.append(hashed)
    for new in (old, old + 1, old + 2, 2 * old, 79, 80):
        found = consistency_from_edge(old, log.edge, hashes[old:new])
        assert found == consistency_proof(hashes[:new], old)
    with pytest.raises(ProofError):
        consistency_from_edge(old, log.edge[1:], hashes[old:])


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7, 13])
def test_proofs_that_share_nodes_are_each_looked_at_whole(size: int) -> None:
    hashes = [leaf_hash(bytes([number])) for number in range(size)]
    root = root_of(hashes)
    paths = [inclusion_proof(hashes, index) for index in range(size)]

    def checked(index: int, hashed: bytes, path: list[bytes]) -> bool:
        """Whether a proof is taken after those of all other leaves, as by itself."""
        shared = Inclusions(size, root)
        for other in range(size):
            if other != index:
                shared.verify(hashes[other], other, paths[other])
        answers = []
        for check in (
            lambda: shared.verify(hashed, index, path),
            lambda: verify_inclusion(hashed, index, size, path, root),
        ):
            try:
                check()
                answers.append(True)
            except ProofError:
                answers.append(False)
        assert answers[0] is answers[1]
        return answers[0]

    for index in range(size):
        assert checked(index, hashes[index], paths[index])
        assert not checked(index, leaf_hash(b"another"), paths[index])
        assert not checked(index, hashes[index], [*paths[index], root])
        assert not checked(index, hashes[index], paths[index][:-1]) or not paths[index]
        for at in range(len(paths[index])):
            assert not checked(index, hashes[index], [*paths[index][:at], root, *paths[index][at + 1 :]])
    with pytest.raises(ProofError):
        Inclusions(size, root).verify(hashes[0], size, paths[0])


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7, 13])
def test_one_proof_for_many_leaves(size: int) -> None:
    hashes = [leaf_hash(bytes([number])) for number in range(size)]
    root = root_of(hashes)
    tree = Proofs(hashes)
    for chosen in range(1, 1 << size, 5):
        leaves = {index: hashes[index] for index in range(size) if chosen >> index & 1}
        nodes = list(tree.beside(leaves))
        assert root_with(size, leaves, nodes) == root
        index = min(leaves)
        assert root_with(size, {**leaves, index: leaf_hash(b"another")}, nodes) != root
        with pytest.raises(ProofError):
            root_with(size, leaves, [*nodes, root])
        if nodes:
            with pytest.raises(ProofError):
                root_with(size, leaves, nodes[:-1])
    for wrong in ({}, {size: root}):
        with pytest.raises(ProofError):
            root_with(size, wrong, [])
