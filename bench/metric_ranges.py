"""How the metrics of finished runs begin and end: means over the runs of their first and last tenth of steps.

  python -m bench.metric_ranges RUN...

docs/metrics.md has them of the demo's config, of the ten runs of studies/adversary.toml's recipe in the blind world.
"""

import sys

import numpy as np

from codea1.evaluation.statistics import tenths
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics


def main() -> None:
    ends: dict[str, list[tuple[float, float]]] = {}
    for path in sys.argv[1:]:
        rows = read_metrics(RunFolder.existing(path).metrics)
        for name in dict.fromkeys(name for row in rows for name in row if name != "step"):
            values = np.array([row[name] for row in rows if row.get(name) is not None])
            parts = tenths(values) if len(values) >= 20 else values  # validations are few
            ends.setdefault(name, []).append((parts[0], parts[-1]))
    for name, pairs in sorted(ends.items()):
        firsts, lasts = map(np.array, zip(*pairs, strict=True))
        spans = " ".join(f"[{side.min():.3g}, {side.max():.3g}]" for side in (firsts, lasts))
        print(f"{name}\t{firsts.mean():.3g} → {lasts.mean():.3g}\t{spans}")


if __name__ == "__main__":
    main()
