"""Intervals for medians and ratios of times, in plain Python.

The median's interval is the distribution-free one between two order statistics (David and Nagaraja, "Order
Statistics", 3rd ed., section 7.1): it holds for skewed and heavy-tailed times, so no sample has to be dropped. Means of
few values, such as the medians of a handful of passes, are compared by Welch's t interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Steps towards a quantile at most; five or six are usual.
_QUANTILE_STEPS = 60


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the interval that holds it.

    Attributes:
        value: the estimate.
        low, high: ends of the interval.
        confidence: how often an interval made this way holds the true value; with few samples less than was asked for.
    """

    value: float
    low: float
    high: float
    confidence: float


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], fraction: float) -> float:
    """The value below which `fraction` of the others lie, interpolated linearly."""
    ordered = sorted(values)
    place = fraction * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval:
    """The median and the narrowest symmetric pair of order statistics that holds it with at least `confidence`.

    Below six samples no pair reaches 95%: then the ends are the smallest and the largest sample, and the result's
    `confidence` is what they reach. Assumes independent samples of one distribution, whatever its shape.
    """
    ordered = sorted(samples)
    count = len(ordered)
    if count == 1:
        return Interval(ordered[0], ordered[0], ordered[0], 0.0)
    # The true median lies below the k-th smallest of n samples as often as a fair coin falls heads fewer than k times.
    outside, total = 1, 2**count
    rank, attained = 1, 1 - 2 * outside / total
    term = 1
    while rank < count // 2:
        term = term * (count - rank + 1) // rank
        reached = 1 - 2 * (outside + term) / total
        if reached < confidence:
            break
        rank, attained, outside = rank + 1, reached, outside + term
    return Interval(median(ordered), ordered[rank - 1], ordered[count - rank], attained)


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float], confidence: float = 0.95) -> Interval:
    """The median of the ratios of samples taken in pairs, one after the other, and its interval.

    What drifts (clocks, temperature, another process) is the same within a pair and cancels.
    """
    return median_interval([a / b for a, b in zip(numerators, denominators, strict=True)], confidence)


# -------------------------------------------------------------------------------------------------- Student and Welch


def t_probability(t: float, freedom: float) -> float:
    """The probability that Student's t with `freedom` degrees of freedom is at most `t`."""
    if math.isinf(t):
        return 0.0 if t < 0 else 1.0
    tail = 0.5 * _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    return 1 - tail if t > 0 else tail


def t_upper_tail(t: float, freedom: float) -> float:
    """The probability that Student's t is above `t`; exact for large `t`, where one minus the rest is not."""
    return t_probability(-t, freedom)


def t_quantile(upper_tail: float, freedom: float) -> float:
    """The value that Student's t exceeds with probability `upper_tail`, which lies between 0 and 0.5."""
    low, high = 0.0, 1.0
    while t_upper_tail(high, freedom) > upper_tail:
        low, high = high, high * 2
    value = high
    for _ in range(_QUANTILE_STEPS):  # Newton's method on the tail's logarithm, bisection where that leaves the bracket
        tail = t_upper_tail(value, freedom)
        low, high = (value, high) if tail > upper_tail else (low, value)
        step = math.log(tail / upper_tail) * tail / _t_density(value, freedom)
        following = value + step if low <= value + step <= high else (low + high) / 2
        if abs(following - value) <= 1e-12 * following:
            return following
        value = following
    return value


def _t_density(t: float, freedom: float) -> float:
    constant = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    return math.exp(constant - (freedom + 1) / 2 * math.log1p(t * t / freedom))


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two means, as Welch's t test sees it.

    Attributes:
        value: mean of the second less mean of the first.
        error: its standard error.
        freedom: degrees of freedom (Welch and Satterthwaite).
    """

    value: float
    error: float
    freedom: float

    def upper_tail(self, margin: float) -> float:
        """How often a difference this large or larger is seen when the true one is `margin`: the p-value."""
        if self.error == 0:
            return 0.0 if self.value > margin else 1.0
        return t_upper_tail((self.value - margin) / self.error, self.freedom)

    def half_width(self, upper_tail: float) -> float:
        """Half the width of the interval that leaves `upper_tail` on each side."""
        return t_quantile(upper_tail, self.freedom) * self.error if self.error else 0.0


def welch(first: Sequence[float], second: Sequence[float], least_deviation: float = 0.0) -> Difference:
    """The difference of two means of independent values with variances of their own.

    Args:
        first, second: at least two values each.
        least_deviation: standard deviation of one value that is known to be there whatever the values say (rounding,
            the clock's resolution).
    """
    shares = [max(_variance(values), least_deviation**2) / len(values) for values in (first, second)]
    total = sum(shares)
    weights = zip(shares, (first, second), strict=True)
    spread = sum(share**2 / (len(values) - 1) for share, values in weights)
    freedom = total**2 / spread if spread else float(len(first) + len(second) - 2)
    return Difference(_mean(second) - _mean(first), math.sqrt(total), freedom)


def paired(first: Sequence[float], second: Sequence[float], least_deviation: float = 0.0) -> Difference:
    """The mean difference of values taken in pairs, whatever the two of a pair have in common.

    Args:
        first, second: equally many values, two pairs at least.
        least_deviation: as for :func:`welch`, of one value.
    """
    differences = [other - one for one, other in zip(first, second, strict=True)]
    variance = max(_variance(differences), 2 * least_deviation**2)
    return Difference(_mean(differences), math.sqrt(variance / len(differences)), float(len(differences) - 1))


def holm(probabilities: Sequence[float]) -> list[float]:
    """P-values adjusted so that the chance of even one false alarm among them stays below the level (Holm, 1979)."""
    adjusted = [0.0] * len(probabilities)
    largest = 0.0
    order = sorted(range(len(probabilities)), key=lambda index: probabilities[index])
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * probabilities[index]))
        adjusted[index] = largest
    return adjusted


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    middle = _mean(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22, modified Lentz)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # where the fraction for the complement converges quickly
        return 1 - _incomplete_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    result = d
    for step in range(1, 500):
        for factor in (
            step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step)),
            -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1)),
        ):
            d = 1 / _away_from_zero(1 + factor * d, tiny)
            c = _away_from_zero(1 + factor / c, tiny)
            result *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(log_front) * result / a


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
