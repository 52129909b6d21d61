"""The small training runs behind chapters 07 and 09: `make experiments` makes them, `load_results` reads
what is committed.

Decided before the first run, and kept whatever came out:

training     the 2019 block and the modern block, 1.04M parameters each (equal within 1 %), the same bytes
             in the same order, peak learning rate 3e-3, three seeds
qk_norm      the modern block with and without QK-norm at learning rates that are far too large (1e-2,
             3e-2, 1e-1), three seeds, half as many steps: the largest attention logit and the entropy at
             every step
ablation     the modern block with one upgrade taken back at a time, three seeds; its baselines are the
             runs of `training`
second_rate  `training` once more at 1e-3, so that neither block is judged at one rate alone

Each run reads 4 windows of 128 bytes a step, the beginning of the training text once, in an order drawn
from its seed. A run has DIVERGED if a loss was not finite, or if it ends worse on the held-out text than
knowing only how often each byte occurs in the training text ("unigram_bits" in the results).
"""

from book.experiments.runs import EXPERIMENTS, RESULTS, load_results, quick_run, run_experiment
from book.experiments.variants import ABLATIONS, SIZES, TITLES, build, count

__all__ = [
    "ABLATIONS", "EXPERIMENTS", "RESULTS", "SIZES", "TITLES",
    "build", "count", "load_results", "quick_run", "run_experiment",
]  # fmt: skip
