"""`Gathers`: `ctx.gather`, whose type has the result of each branch."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, overload

from engine.functions.run import StrategyRun

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")
J = TypeVar("J")
K = TypeVar("K")
M = TypeVar("M")
N = TypeVar("N")
P = TypeVar("P")
Q = TypeVar("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")

Work: TypeAlias = Awaitable[T]
Pending: TypeAlias = Coroutine[Any, Any, T]  # guard: unawaited-call-typed
"""What a method of `ctx` returns: type checkers report one that is not awaited."""


class Gathers:
    """What has `gather`."""

    NAME: Final = "ctx"

    _run: StrategyRun

    @overload
    def gather(self, a: Work[A], /) -> Pending[tuple[A]]: ...
    @overload
    def gather(self, a: Work[A], b: Work[B], /) -> Pending[tuple[A, B]]: ...
    @overload
    def gather(self, a: Work[A], b: Work[B], c: Work[C], /) -> Pending[tuple[A, B, C]]: ...
    @overload
    def gather(
        self, a: Work[A], b: Work[B], c: Work[C], d: Work[D], /
    ) -> Pending[tuple[A, B, C, D]]: ...
    @overload
    def gather(
        self, a: Work[A], b: Work[B], c: Work[C], d: Work[D], e: Work[E], /
    ) -> Pending[tuple[A, B, C, D, E]]: ...
    @overload
    def gather(
        self, a: Work[A], b: Work[B], c: Work[C], d: Work[D], e: Work[E], f: Work[F], /
    ) -> Pending[tuple[A, B, C, D, E, F]]: ...
    @overload
    def gather(
        self, a: Work[A], b: Work[B], c: Work[C], d: Work[D], e: Work[E], f: Work[F], g: Work[G], /
    ) -> Pending[tuple[A, B, C, D, E, F, G]]: ...
    @overload
    def gather(
        self,
        a: Work[A],
        b: Work[B],
        c: Work[C],
        d: Work[D],
        e: Work[E],
        f: Work[F],
        g: Work[G],
        h: Work[H],
        /,
    ) -> Pending[tuple[A, B, C, D, E, F, G, H]]: ...
    @overload
    def gather(
        self,
        a: Work[A],
        b: Work[B],
        c: Work[C],
        d: Work[D],
        e: Work[E],
        f: Work[F],
        g: Work[G],
        h: Work[H],
        j: Work[J],
        /,
    ) -> Pending[tuple[A, B, C, D, E, F, G, H, J]]: ...
    @overload
    def gather(
        self,
        a: Work[A],
        b: Work[B],
        c: Work[C],
        d: Work[D],
        e: Work[E],
        f: Work[F],
        g: Work[G],
        h: Work[H],
        j: Work[J],
        k: Work[K],
        /,
    ) -> Pending[tuple[A, B, C, D, E, F, G, H, J, K]]: ...
    @overload
    def gather(
        self,
        a: Work[A],
        b: Work[B],
        c: Work[C],
        d: Work[D],
        e: Work[E],
        f: Work[F],
        g: Work[G],
        h: Work[H],
        j: Work[J],
        k: Work[K],
        m: Work[M],
        /,
    ) -> Pending[tuple[A, B, C, D, E, F, G, H, J, K, M]]: ...
    @overload
    def gather(
        self,
        a: Work[A],
        b: Work[B],
        c: Work[C],
        d: Work[D],
        e: Work[E],
        f: Work[F],
        g: Work[G],
        h: Work[H],
        j: Work[J],
        k: Work[K],
        m: Work[M],
        n: Work[N],
        /,
    ) -> Pending[tuple[A, B, C, D, E, F, G, H, J, K, M, N]]: ...
    @overload
    def gather(
        self,
        a: Work[A],
        b: Work[B],
        c: Work[C],
        d: Work[D],
        e: Work[E],
        f: Work[F],
        g: Work[G],
        h: Work[H],
        j: Work[J],
        k: Work[K],
        m: Work[M],
        n: Work[N],
        p: Work[P],
        /,
    ) -> Pending[tuple[A, B, C, D, E, F, G, H, J, K, M, N, P]]: ...
    @overload
    def gather(
        self,
        a: Work[A],
        b: Work[B],
        c: Work[C],
        d: Work[D],
        e: Work[E],
        f: Work[F],
        g: Work[G],
        h: Work[H],
        j: Work[J],
        k: Work[K],
        m: Work[M],
        n: Work[N],
        p: Work[P],
        q: Work[Q],
        /,
    ) -> Pending[tuple[A, B, C, D, E, F, G, H, J, K, M, N, P, Q]]: ...
    @overload
    def gather(
        self,
        a: Work[A],
        b: Work[B],
        c: Work[C],
        d: Work[D],
        e: Work[E],
        f: Work[F],
        g: Work[G],
        h: Work[H],
        j: Work[J],
        k: Work[K],
        m: Work[M],
        n: Work[N],
        p: Work[P],
        q: Work[Q],
        r: Work[R],
        /,
    ) -> Pending[tuple[A, B, C, D, E, F, G, H, J, K, M, N, P, Q, R]]: ...
    @overload
    def gather(
        self,
        a: Work[A],
        b: Work[B],
        c: Work[C],
        d: Work[D],
        e: Work[E],
        f: Work[F],
        g: Work[G],
        h: Work[H],
        j: Work[J],
        k: Work[K],
        m: Work[M],
        n: Work[N],
        p: Work[P],
        q: Work[Q],
        r: Work[R],
        s: Work[S],
        /,
    ) -> Pending[tuple[A, B, C, D, E, F, G, H, J, K, M, N, P, Q, R, S]]: ...
    @overload
    def gather(self, *works: Work[A]) -> Pending[tuple[A, ...]]: ...
    def gather(self, *works: Awaitable[Any]) -> Pending[tuple[Any, ...]]:
        """Return the results of up to 16 `works`, which run at the same time.

        Calls of `ctx.episode` only wait, and do not count: there may be up to 1,000 of them.

        A work is a call such as `ctx.call(…)`, or a coroutine of yours that makes calls. All of
        them end before this returns; if some raise, the first of them in order raises here.
        """
        made = self._run.pending(f"{self.NAME}.gather", partial(self._run.gather, *works))
        self._run.hand_over(works)
        return made
