"""Graphs, laid out here and drawn as SVG: what comes first stands left of what follows. Pure.

    ranks ──▶ long edges get a point in each rank ──▶ order in each rank ──▶ heights ──▶ drawing

The layout is the usual one of Sugiyama: the longest path to a node is its rank; in sweeps over the
ranks each node goes to the median of its neighbours, and neighbours change places where that takes
away crossings; the heights are as near to those of the neighbours as the order lets them be
(isotonic regression). The same graph is drawn the same each time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple, TypeAlias

from htpy import Element, a, defs, div, g, marker, path, rect, svg, text
from htpy import title as tip

from vigil.web.drawing.icons import icon
from vigil.web.drawing.parts import look

NODES_MAX: Final = 200
"""Most nodes that are drawn; of more, people read the list."""

POINTS_MAX: Final = 3_000
"""Most nodes and points of long edges together: more would take a second to lay out."""

SWEEPS: Final = 8
"""How often the order is gone over; more has found no better one."""

SETTLINGS: Final = 10
"""How often the heights are gone over."""

LAYOUTS_KEPT: Final = 64
"""Layouts that are remembered: a page that is watched is drawn again and again."""

WIDE: Final = 184.0
"""Width of a node; lengths are in pixels at 100 %."""

TALL: Final = 46.0
CHARS_MAX: Final = 22
"""Letters of a name that fit into a node, as they are wide on average; the rest is its tooltip."""

SMALL_CHARS_MAX: Final = 26
"""The same of what stands below it."""

GAP_ACROSS: Final = 56.0
GAP_DOWN: Final = 18.0
ROOM: Final = 10.0
"""What is left free at the edge of the picture."""

POINT_TALL: Final = 10.0
"""The room of a point of a long edge."""

POINT_WEIGHT: Final = 8.0
"""How much more two points of an edge want to be level than two nodes do."""


class GraphNode(NamedTuple):
    """A node of a graph."""

    key: str
    says: str
    """Its name."""
    state: str
    """As `pill` takes it."""
    href: str
    below: str = ""
    """A second, smaller line."""


Edge: TypeAlias = tuple[str, str]
"""The keys of two nodes: the second follows from the first."""


class Point(NamedTuple):
    """A place in the picture."""

    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class GraphLayout:
    """Where everything stands."""

    places: Mapping[str, Point]
    """Key of a node → its middle."""
    ways: Mapping[Edge, Sequence[Point]]
    """Edge → the points that it goes through, in the direction of the edge."""
    wide: float
    tall: float


_Key: TypeAlias = "str | tuple[str, str, int]"
"""A node, or the point of an edge in a rank."""


@lru_cache(maxsize=LAYOUTS_KEPT)
def layout(keys: tuple[str, ...], edges: tuple[Edge, ...]) -> GraphLayout | None:
    """Return where nodes and edges stand; None: there are too many.

    Edges between what there is not are left out. Circles are drawn, with an edge that goes back.
    """
    known = list(dict.fromkeys(keys))
    there = set(known)
    kept = [each for each in dict.fromkeys(edges) if there.issuperset(each) and each[0] != each[1]]
    if not known or len(known) > NODES_MAX:  # guard: huge-graph-is-a-list
        return None
    ahead = _ahead(known, kept)
    ranks = _ranks(known, ahead)
    points = len(known) + sum(ranks[end] - ranks[begin] - 1 for begin, end in ahead)
    if points > POINTS_MAX:
        return None
    chains = {each: _chain(each, ranks) for each in ahead}
    net = _Net(known, ranks, chains.values())
    net.order()
    heights = net.heights()
    top = min(each - _tall(key) / 2 for key, each in heights.items())
    rank_of = net.rank_of
    at = {
        key: Point(ROOM + WIDE / 2 + rank_of[key] * (WIDE + GAP_ACROSS), ROOM + heights[key] - top)
        for key in heights
    }
    ways = {}
    for begin, end in kept:
        chain = chains.get((begin, end))
        ways[begin, end] = (
            [at[each] for each in chain]
            if chain is not None
            else [at[each] for each in reversed(chains[end, begin])]
        )
    return GraphLayout(
        places={key: at[key] for key in known},
        ways=ways,
        wide=2 * ROOM + WIDE + max(rank_of.values()) * (WIDE + GAP_ACROSS),
        tall=2 * ROOM + max(at[key].y - ROOM + _tall(key) / 2 for key in at),
    )


def _ahead(keys: Sequence[str], edges: Sequence[Edge]) -> list[Edge]:
    """Return the edges, those that close a circle the other way round; none of them twice."""
    after = defaultdict[str, list[str]](list)
    for begin, end in edges:
        after[begin].append(end)
    found: dict[Edge, None] = {}
    done, open_ = set[str](), set[str]()
    for first in keys:
        if first in done:
            continue
        stack = [(first, iter(after[first]))]
        open_.add(first)
        while stack:
            key, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                open_.discard(key)
                done.add(key)
                stack.pop()
            elif following in open_:
                found.setdefault((following, key))
            else:
                found.setdefault((key, following))
                if following not in done:
                    open_.add(following)
                    stack.append((following, iter(after[following])))
    return list(found)


def _ranks(keys: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the rank of each node: the longest way to it, nearer to what follows if that helps."""
    before, after = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for begin, end in edges:
        after[begin].append(end)
        before[end].append(begin)
    left = {key: len(before[key]) for key in keys}
    order = [key for key in keys if not left[key]]
    for key in order:
        for end in after[key]:
            left[end] -= 1
            if not left[end]:
                order.append(end)
    ranks: dict[str, int] = {}
    for key in order:
        ranks[key] = max((ranks[each] + 1 for each in before[key]), default=0)
    for key in reversed(order):
        if len(after[key]) > len(before[key]):
            ranks[key] = min(ranks[each] for each in after[key]) - 1
    lowest = min(ranks.values())
    return {key: ranks[key] - lowest for key in keys}


def _chain(edge: Edge, ranks: Mapping[str, int]) -> list[_Key]:
    begin, end = edge
    between = range(ranks[begin] + 1, ranks[end])
    return [begin, *((begin, end, rank) for rank in between), end]


def _tall(key: _Key) -> float:
    return TALL if isinstance(key, str) else POINT_TALL


class _Net:
    """The nodes and points in their ranks, and what each is joined to."""

    def __init__(
        self, keys: Sequence[str], ranks: Mapping[str, int], chains: Iterable[Sequence[_Key]]
    ) -> None:
        self.rank_of: dict[_Key, int] = {key: ranks[key] for key in keys}
        self.before = defaultdict[_Key, list[_Key]](list)
        self.after = defaultdict[_Key, list[_Key]](list)
        for chain in chains:
            for one, other in pairwise(chain):
                self.after[one].append(other)
                self.before[other].append(one)
            for each in chain[1:-1]:
                if not isinstance(each, str):
                    self.rank_of[each] = each[2]
        self.rows: list[list[_Key]] = [[] for _ in range(max(ranks.values()) + 1)]
        for key in self._by_walk(keys):
            self.rows[self.rank_of[key]].append(key)
        self.place = {key: at for row in self.rows for at, key in enumerate(row)}

    def _by_walk(self, keys: Sequence[str]) -> list[_Key]:
        """Return everything, what is joined near each other."""
        found: dict[_Key, None] = {}
        for first in keys:
            stack: list[_Key] = [first]
            while stack:
                key = stack.pop()
                if key in found:
                    continue
                found[key] = None
                stack.extend(reversed([*self.after[key], *self.before[key]]))
        return list(found)

    def order(self) -> None:
        """Put the rows in the order with the fewest crossings that is found."""
        best, fewest = [list(row) for row in self.rows], self._crossings()
        for sweep in range(SWEEPS):
            if not fewest:
                break
            is_down = sweep % 2 == 0
            joined = self.before if is_down else self.after
            for row in self.rows if is_down else reversed(self.rows):
                self._sort(row, joined)
            self._swap()
            found = self._crossings()
            if found < fewest:
                best, fewest = [list(row) for row in self.rows], found
        self.rows = best
        self.place = {key: at for row in self.rows for at, key in enumerate(row)}

    def _sort(self, row: list[_Key], joined: Mapping[_Key, Sequence[_Key]]) -> None:
        def wanted(key: _Key) -> float:
            places = [self.place[each] for each in joined.get(key, ())]
            return median(places) if places else self.place[key]

        row.sort(key=wanted)
        for at, key in enumerate(row):
            self.place[key] = at

    def _swap(self) -> None:
        """Have neighbours change places while that takes away crossings."""
        for row in self.rows:
            for at in range(len(row) - 1):
                one, other = row[at], row[at + 1]
                kept = sum(
                    _crossed(self._places(one, joined), self._places(other, joined))
                    - _crossed(self._places(other, joined), self._places(one, joined))
                    for joined in (self.before, self.after)
                )
                if kept > 0:
                    row[at], row[at + 1] = other, one
                    self.place[one], self.place[other] = at + 1, at

    def _places(self, key: _Key, joined: Mapping[_Key, Sequence[_Key]]) -> list[int]:
        return sorted(self.place[each] for each in joined.get(key, ()))

    def _crossings(self) -> int:
        total = 0
        for row in self.rows:
            ends: list[int] = []
            for key in row:
                ends += self._places(key, self.after)
            total += _inversions(ends)
        return total

    def heights(self) -> dict[_Key, float]:
        """Return how far down the middle of each is."""
        found = {
            key: offset for row in self.rows for key, offset in zip(row, _offsets(row), strict=True)
        }
        for settling in range(SETTLINGS):
            is_down = settling % 2 == 0
            for row in self.rows if is_down else reversed(self.rows):
                self._settle(row, found)
        return found

    def _settle(self, row: Sequence[_Key], heights: dict[_Key, float]) -> None:
        offsets = _offsets(row)
        wanted, weights = [], []
        for key, offset in zip(row, offsets, strict=True):
            joined = [*self.before[key], *self.after[key]]
            each = [_weight(key, other) for other in joined]
            weight = sum(each)
            level = sum(heights[other] * heavy for other, heavy in zip(joined, each, strict=True))
            wanted.append((level / weight if weight else heights[key]) - offset)
            weights.append(weight or 0.1)
        for key, offset, level in zip(row, offsets, rising(wanted, weights), strict=True):
            heights[key] = offset + level


def _weight(one: _Key, other: _Key) -> float:
    return POINT_WEIGHT if not isinstance(one, str) and not isinstance(other, str) else 1.0


def _offsets(row: Sequence[_Key]) -> list[float]:
    """Return how far down each of a row is at least, below the first."""
    found = [0.0]
    for one, other in pairwise(row):
        found.append(found[-1] + (_tall(one) + _tall(other)) / 2 + GAP_DOWN)
    return found


def rising(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the numbers nearest to those wanted of which none is less than the one before it.

    The squares of the differences count, each with its weight.
    """
    blocks: list[tuple[float, float, int]] = []
    for number, weight in zip(wanted, weights, strict=True):
        mean, heavy, size = number, weight, 1
        while blocks and blocks[-1][0] > mean:
            mean_before, heavy_before, size_before = blocks.pop()
            mean = (mean * heavy + mean_before * heavy_before) / (heavy + heavy_before)
            heavy, size = heavy + heavy_before, size + size_before
        blocks.append((mean, heavy, size))
    return [mean for mean, _, size in blocks for _ in range(size)]


def _crossed(upper: Sequence[int], lower: Sequence[int]) -> int:
    """Return how often edges to sorted `upper` and `lower` places cross."""
    total = at = 0
    for each in upper:
        while at < len(lower) and lower[at] < each:
            at += 1
        total += at
    return total


def _inversions(numbers: Sequence[int]) -> int:
    """Return how many pairs of `numbers` are the wrong way round, as merging counts them."""
    half = len(numbers) // 2
    if not half:
        return 0
    left, right = numbers[:half], numbers[half:]
    return _inversions(left) + _inversions(right) + _crossed(sorted(left), sorted(right))


def graph(
    nodes: Sequence[GraphNode], edges: Iterable[Edge], label: str, *, is_whole: bool = False
) -> Element | None:
    """Return a graph; None: it has no nodes, or too many for a picture.

    Args:
        is_whole: at 100 %, to be moved under its frame; otherwise as small as the page needs it.
    """
    placed = layout(tuple(each.key for each in nodes), tuple(edges))
    if placed is None:
        return None
    by_key = {each.key: each for each in nodes}
    return div(
        class_=["graph", "wide", {"fit": not is_whole}],
        tabindex="0",
        role="group",
        aria_label=label,
    )[
        svg(
            viewBox=f"0 0 {placed.wide:.0f} {placed.tall:.0f}",
            width=f"{placed.wide:.0f}",
            height=f"{placed.tall:.0f}",
        )[
            defs[
                marker(
                    id="arrow",
                    viewBox="0 0 8 8",
                    refX="7",
                    refY="4",
                    markerWidth="7",
                    markerHeight="7",
                    orient="auto",
                )[path(d="M0 0 8 4 0 8Z")]
            ],
            (
                path(
                    class_=["e", {"hot": by_key[end].state == "running"}],
                    d=_drawn(way),
                    marker_end="url(#arrow)",
                )
                for (_, end), way in placed.ways.items()
            ),
            (_box(each, placed.places[each.key]) for each in nodes),
        ]
    ]


def _box(node: GraphNode, middle: Point) -> Element:
    left, top = middle.x - WIDE / 2, middle.y - TALL / 2
    hue, drawn = look(node.state)
    state = node.state.replace("_", " ")
    inner = WIDE - 40
    return a(href=node.href, aria_label=f"{node.says}, {state}", data_key=node.key)[
        g(class_=["n", hue])[
            tip[f"{node.says}, {state}"],
            rect(
                x=f"{left:.1f}", y=f"{top:.1f}", width=f"{WIDE:.0f}", height=f"{TALL:.0f}", rx="7"
            ),
            rect(".s", x=f"{left:.1f}", y=f"{top:.1f}", width="4", height=f"{TALL:.0f}", rx="2"),
            svg(x=f"{left + 11:.1f}", y=f"{middle.y - 7:.1f}", width="14", height="14")[
                icon(drawn)
            ],
            # An svg of its own cuts off a name whose letters are wide.
            svg(x=f"{left + 32:.1f}", y=f"{top:.1f}", width=f"{inner:.0f}", height=f"{TALL:.0f}")[
                text(x="0", y="20")[_fitting(node.says, CHARS_MAX)],
                text(".sub", x="0", y="36")[_fitting(node.below or state, SMALL_CHARS_MAX)],
            ],
        ]
    ]


def _fitting(says: str, most: int) -> str:
    return says if len(says) <= most else f"{says[: most - 1].rstrip()}…"


def _drawn(way: Sequence[Point]) -> str:
    """Return an edge as SVG has it: level where it leaves, passes and arrives."""
    half_wide = WIDE / 2 if way[0].x < way[-1].x else -WIDE / 2
    last = Point(way[0].x + half_wide, way[0].y)
    said = [f"M{last.x:.1f} {last.y:.1f}"]
    for each in [*way[1:-1], Point(way[-1].x - half_wide, way[-1].y)]:
        half = (last.x + each.x) / 2
        said.append(f"C{half:.1f} {last.y:.1f} {half:.1f} {each.y:.1f} {each.x:.1f} {each.y:.1f}")
        last = each
    return "".join(said)
