"""pass@k: the chance that at least one of k solutions drawn for a question is right."""

from math import comb


def pass_at_k(n: int, c: int, k: int) -> float:
    """Returns the unbiased estimate of pass@k from `n` sampled solutions of which `c` are right.

    1 - C(n - c, k) / C(n, k): the chance that k of the n drawn without replacement hold a right one (Chen et al. 2021,
    arXiv 2107.03374, equation 1). Integer arithmetic, so exact up to the last division. pass@1 is c / n, which
    averaged over questions is the avg@n of the Code-A1 paper.

    Raises:
      ValueError: unless 1 <= k <= n and 0 <= c <= n.
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@k needs 1 <= k <= n and 0 <= c <= n, not n={n}, c={c}, k={k}")
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)
