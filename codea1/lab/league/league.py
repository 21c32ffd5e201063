"""Who beats whom: ratings of Code LLMs and Test LLMs from their games, and what no ratings can explain.

In a game the program of a Code LLM meets the suite of a Test LLM: it survives, or a right test kills it. All intervals
are over questions, which every pair of players shares: what happens on one question is not independent.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from codea1.evaluation.statistics import CONFIDENCE, Interval

RESAMPLES = 2_000
BOUNDS = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))  # percentiles of an interval
PSEUDO_COUNT = 0.5  # games added to each outcome of each pair, so that one that is always lost has a finite rating

Map = Callable[[np.ndarray], np.ndarray]  # linear, of payoffs [..., codes, tests]


@dataclass(frozen=True)
class Standings:
    """What a league comes to; see `standings`."""

    codes: Sequence[Interval]  # ratings, in log odds
    tests: Sequence[Interval]
    interaction: float  # share of the variance of payoffs, from 0 to 1; NaN with one Code LLM or one Test LLM
    reversals: Sequence[tuple[int, int, int, int]]  # a, b, j, k: a survives j more often than b, and b survives k
    cyclic: float  # share of what runs have over each other, from 0 to 1; NaN with fewer than three


def standings(kills: np.ndarray, pairs: Sequence[tuple[int, int]]) -> Standings:
    """Returns the ratings of all players, and how much they leave unexplained.

    Ratings are a Bradley-Terry model between two sides: Code LLM i survives Test LLM j with probability
    sigmoid(c_i - t_j), where the mean of t is 0; see `bradley_terry`. Their intervals are 95 % percentile bootstraps
    over questions.

    With L_ij = log((survived + 1/2) / (killed + 1/2)), ratings explain what is additive in L. `interaction` is
    ||R||^2 / ||L - mean(L)||^2 with R_ij = L_ij - L_i. - L_.j + L.., the interaction of a two-way analysis of variance.
    `cyclic` is about runs that bring both players: A_ab = L(code of a, test of b) - L(code of b, test of a) is how far
    a is ahead of b, and A = grad(r) + rot with r_a the mean of row a and grad(r)_ab = r_a - r_b its Hodge decomposition
    on the complete graph (Jiang et al. 2011, Math. Program. 127:203; Balduzzi et al. 2018, arXiv 1806.02643): the share
    is ||rot||^2 / ||A||^2, 1 for rock, paper, scissors. Both are of squares from which the expected squares of noise
    are subtracted; see `unexplained`.

    A reversal is a pair of Code LLMs whose order depends on the Test LLM: their differences before two Test LLMs have
    opposite signs and 95 % intervals that leave out 0, not corrected for their number. Each pair is counted once.

    Args:
      kills: share of programs killed [codes, tests, questions]; NaN where there was no game.
      pairs: the Code LLM and the Test LLM of each run that brings both, as places in `kills`.
    """
    killed, survived = np.nan_to_num(kills), np.nan_to_num(1 - kills)
    questions = kills.shape[-1]
    drawn = np.random.default_rng(0).multinomial(questions, np.full(questions, 1 / questions), RESAMPLES).T
    observed = bradley_terry(survived.sum(-1), killed.sum(-1))
    resampled = bradley_terry(*(np.moveaxis(games @ drawn, -1, 0) for games in (survived, killed)))
    ratings = []
    for estimates, samples in zip(observed, resampled, strict=True):
        bounds = np.percentile(samples, BOUNDS, axis=0)
        ratings.append([Interval(*map(float, each)) for each in zip(estimates, *bounds, strict=True)])
    interaction, cyclic = np.nan, np.nan
    if min(kills.shape[:2]) > 1:
        interaction = unexplained(kills, _double_centred, lambda x: x - x.mean((-2, -1), keepdims=True))
    if len(pairs) > 2:
        codes, tests = zip(*pairs, strict=True)
        cyclic = unexplained(kills[np.ix_(codes, tests)], lambda x: _rotation(_lead(x)), _lead)
    of_codes, of_tests = ratings
    return Standings(of_codes, of_tests, interaction, _reversals(kills, drawn), cyclic)


def bradley_terry(survived: np.ndarray, killed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ratings of Code LLMs [..., codes] and Test LLMs [..., tests] of greatest likelihood.

    The model (Bradley and Terry 1952; Hunter 2004 on its likelihood, which is concave) is a logistic regression, here
    by Newton's method with bounded steps. PSEUDO_COUNT games are added to each outcome of each pair.

    Args:
      survived, killed: games [..., codes, tests].
    """
    codes, tests = survived.shape[-2:]
    design = np.hstack([np.repeat(np.eye(codes), tests, axis=0), -np.tile(np.eye(tests), (codes, 1))])
    wins, losses = (games.reshape(*games.shape[:-2], -1) + PSEUDO_COUNT for games in (survived, killed))
    ratings, step = np.zeros((*wins.shape[:-1], codes + tests)), np.inf
    while np.abs(step).max() > 1e-9:
        chances = expit(ratings @ design.T)
        gradient = (wins - (wins + losses) * chances) @ design
        weights = (wins + losses) * chances * (1 - chances)
        # A constant may be added to all ratings: the ones make the Hessian invertible, and leave the step as it is.
        hessian = (design.T * weights[..., None, :]) @ design + 1
        step = np.clip(np.linalg.solve(hessian, gradient[..., None])[..., 0], -1, 1)
        ratings = ratings + step
    ratings -= ratings[..., codes:].mean(-1, keepdims=True)
    return ratings[..., :codes], ratings[..., codes:]


def unexplained(kills: np.ndarray, part: Map, whole: Map) -> float:
    """Returns ||part(L)||^2 / ||whole(L)||^2, both less what noise is expected to add; NaN where only noise is left.

    L is made of independent terms, a question's deviations in all cells and each cell's pseudo-count, divided by the
    slope of the logit: e_ij = (k_ij - p_ij) / ((N_ij + 1) p_ij (1 - p_ij)). So E||M(noise)||^2 is the sum of ||M(e)||^2
    for a linear M. A cell's variance is 1 / ((N + 1) p (1 - p)) where kills are 0 or 1; were cells independent and
    alike, double centring would keep (m - 1)(n - 1) / (mn) of it. A question that is hard for all adds nothing.

    Args:
      kills: [codes, tests, questions]; NaN where there was no game.
    """
    games = (~np.isnan(kills)).sum(-1) + 2 * PSEUDO_COUNT
    rates = (np.nansum(kills, axis=-1) + PSEUDO_COUNT) / games
    slope = games * rates * (1 - rates)
    of_questions = np.nan_to_num((kills - rates[..., None]) / slope[..., None])
    of_pseudo_counts = np.sqrt(PSEUDO_COUNT * (rates**2 + (1 - rates) ** 2)) / slope
    cells = np.eye(rates.size).reshape(-1, *rates.shape)
    errors = np.concatenate([np.moveaxis(of_questions, -1, 0), cells * of_pseudo_counts])
    squares = [
        (each(np.log(1 - rates) - np.log(rates)) ** 2).sum() - (each(errors) ** 2).sum() for each in (part, whole)
    ]
    return float(np.clip(squares[0] / squares[1], 0, 1)) if squares[1] > 0 else np.nan


def _double_centred(payoffs: np.ndarray) -> np.ndarray:
    rows = payoffs - payoffs.mean(-1, keepdims=True)
    return rows - rows.mean(-2, keepdims=True)


def _lead(payoffs: np.ndarray) -> np.ndarray:
    """Returns how far each run is ahead of each other, from payoffs [..., runs, runs] of codes against tests."""
    return payoffs - payoffs.swapaxes(-2, -1)


def _rotation(lead: np.ndarray) -> np.ndarray:
    """Returns what no potential explains of an antisymmetric flow on the complete graph."""
    potential = lead.mean(-1)
    return lead - (potential[..., :, None] - potential[..., None, :])


def _reversals(kills: np.ndarray, drawn: np.ndarray) -> list[tuple[int, int, int, int]]:
    found = []
    for a, b in itertools.combinations(range(len(kills)), 2):
        leads = kills[b] - kills[a]  # [tests, questions]; NaN where either had no game
        with np.errstate(invalid="ignore"):
            samples = (np.nan_to_num(leads) @ drawn) / (~np.isnan(leads) @ drawn)
        low, high = np.nanpercentile(samples, BOUNDS, axis=1)
        ahead, behind = np.flatnonzero(low > 0), np.flatnonzero(high < 0)
        if len(ahead) and len(behind):
            found.append((a, b, int(ahead[0]), int(behind[0])))
    return found
