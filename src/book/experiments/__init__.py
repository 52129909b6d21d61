"""The small training runs behind chapters 06, 07 and 09: `make experiments` makes them, `load_results` reads what is
committed, `effect` and `total_effect` say what a few seeds can tell, `table_bits` what byte counts alone would do.

All models have the parameters of the 2019 model (1.04M) within 1 %; a step reads 512 bytes.

scan        512 steps, rates 1e-3, 3e-3, 1e-2 (and on, where the end of the list wins), one seed: the rate of each arm. A tie
            (0.025 bit) goes to the higher rate: the blocks without RoPE are still on a plateau then, and how low they lie
            on it says little about when they leave it
epoch       one whole epoch, 2,009 steps, 4 seeds, each at its scanned rate: 2019, 2019 + RoPE, modern, modern - RoPE;
            held-out bits along the run, how many bytes back it reads, loss by position, the attention's logits
low_rate    the four once more at 1e-3, one seed; the two modern ones, whose better rate that is, with 3, and at 3e-4 with one
rates       the modern block with and without QK-norm at six rates from 3e-4 to 1e-1, 256 steps, 3 seeds: final loss, the
            ranges of the attention's rows, entropies
spike       two of these runs (3e-2) measured at every step
cache_scan  as `scan`, for one GQA and one MLA variant of 8 heads
cache       one epoch, 3 seeds: 8, 4, 2 and 1 KV heads and MLA with latents that cache as much as 4, 2 and 1 of them
upgrades    768 steps, 3 seeds: each upgrade added to 2019 + RoPE and taken back from modern, and both ends. 2019 itself
            would need a whole epoch to leave its plateau; with RoPE the slower of the two ends is past it

A run has DIVERGED if a loss was not finite, or if it ends worse on the held-out text than knowing only how often each byte
occurs in the text that was read ("unigram_bits" in the results).
"""

from book.experiments.live import kicked, quick_run
from book.experiments.runs import (
    EXPERIMENTS,
    RESULTS,
    load_results,
    run_experiment,
    scanned_rate,
    table_curves,
)
from book.experiments.stats import Interval, by_seed, effect, interval, total_effect
from book.experiments.tables import table_bits
from book.experiments.training import KEPT, STATE
from book.experiments.variants import ABLATIONS, ADDED, CACHES, SIZES, TITLES, UPGRADES, build, count

__all__ = [
    "ABLATIONS", "ADDED", "CACHES", "EXPERIMENTS", "KEPT", "RESULTS", "SIZES", "STATE", "TITLES", "UPGRADES",
    "Interval", "build", "by_seed", "count", "effect", "interval", "kicked", "load_results", "quick_run", "run_experiment",
    "scanned_rate", "table_bits", "table_curves", "total_effect",
]  # fmt: skip
