"""How graphs are laid out."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random

import pytest

from tests.web.world import HTML
from vigil.web.drawing import graph as graphs
from vigil.web.drawing.graph import GraphNode, graph, layout, rising

DIAMOND = (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))


def random_graph(nodes: int, edges: int, seed: int):
    random = Random(seed)
    keys = tuple(f"n{number}" for number in range(nodes))
    pairs = random.sample(list(combinations(keys, 2)), edges)
    return keys, tuple(pairs)


def test_what_follows_stands_right_of_what_it_follows_from():
    placed = layout(("a", "b", "c", "d"), DIAMOND)

    for begin, end in DIAMOND:
        assert placed.places[begin].x < placed.places[end].x
    assert placed.places["b"].x == placed.places["c"].x


@pytest.mark.parametrize("seed", range(5))
def test_no_two_nodes_stand_in_the_same_place(seed):
    keys, edges = random_graph(60, 90, seed)

    places = layout(keys, edges).places.values()

    for one, other in combinations(places, 2):
        is_apart = abs(one.x - other.x) >= graphs.WIDE or abs(one.y - other.y) >= graphs.TALL
        assert is_apart


def test_all_of_a_graph_is_in_the_picture():
    keys, edges = random_graph(100, 150, 1)

    placed = layout(keys, edges)

    for way in placed.ways.values():
        for x, y in way:
            assert 0 <= x <= placed.wide
            assert 0 <= y <= placed.tall


def test_the_same_graph_is_drawn_the_same():
    keys, edges = random_graph(40, 60, 2)
    first = layout(keys, edges)
    layout.cache_clear()

    assert layout(keys, edges) == first


def test_edges_that_need_not_cross_do_not():
    edges = (("a", "y"), ("b", "x"), ("c", "z"))

    placed = layout(("a", "b", "c", "x", "y", "z"), edges)

    for (one, end), (other, another) in combinations(edges, 2):
        begins = placed.places[one].y < placed.places[other].y
        assert begins is (placed.places[end].y < placed.places[another].y)


def test_a_long_edge_passes_other_nodes_by():
    chain = ("a", "b", "c", "d")

    placed = layout(chain, (*pairwise(chain), ("a", "d")))

    way = placed.ways["a", "d"]
    assert len(way) == 4
    for point, node in zip(way[1:-1], ("b", "c"), strict=True):
        assert abs(point.y - placed.places[node].y) > graphs.TALL / 2


def test_a_circle_is_drawn_with_an_edge_that_goes_back():
    placed = layout(("a", "b", "c"), (("a", "b"), ("b", "c"), ("c", "a")))

    back = placed.ways["c", "a"]
    assert back[0].x > back[-1].x


def test_an_edge_to_what_is_not_there_is_left_out():
    placed = layout(("a",), (("a", "b"), ("a", "a")))

    assert placed.ways == {}


def test_a_graph_of_nothing_or_of_too_much_is_no_picture():
    many = tuple(f"n{number}" for number in range(graphs.NODES_MAX + 1))

    assert layout((), ()) is None
    assert layout(many, ()) is None


def test_a_graph_of_too_many_long_edges_is_no_picture():
    keys = tuple(f"n{number}" for number in range(graphs.NODES_MAX))
    long = tuple((keys[0], each) for each in keys[2:])

    assert layout(keys, (*pairwise(keys), *long)) is None


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([3, 1], [2, 2]),
        ([1, 5, 3, 4], [1, 4, 4, 4]),
    ],
)
def test_numbers_that_fall_are_evened_out(wanted, found):
    assert rising(wanted, [1.0] * len(wanted)) == found


def test_a_node_is_a_link_that_is_called_by_its_name_and_its_state():
    drawn = str(graph([GraphNode("k", HTML, "running", "/x")], [], "A graph"))

    assert 'href="/x"' in drawn
    assert 'aria-label="&lt;img src=x onerror=alert(1)&gt;, running"' in drawn
    assert HTML not in drawn


def test_a_name_that_is_too_long_for_its_node_is_cut_and_whole_in_its_tooltip():
    name = "web-1: disk 97% used, most of it /var/log/checkout.log"
    drawn = str(graph([GraphNode("a", name, "high", "/")], [], "causes"))

    assert ">web-1: disk 97% used,…</text>" in drawn
    assert f"<title>{name}, high</title>" in drawn
