"""Exercises of chapter 11: the kernels. The cases are tiny: Triton's interpreter runs them."""

from book.exercises.core import Exercise, Mistake


def _launches(function, case):
    """What is missing if no Triton kernel is launched while the function runs: interpreted or compiled, whatever this process does."""
    import copy

    try:
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction
    except ImportError:
        return "the values are right, and no Triton kernel ran: Triton is not installed here.\n  Question: what computed them?"
    launched, before = [], {kind: kind.run for kind in (InterpretedFunction, JITFunction)}

    def counted(run):
        def launch(self, *args, **kwargs):
            if not kwargs.get("warmup"):
                launched.append(self)
            return run(self, *args, **kwargs)

        return launch

    try:
        for kind, run in before.items():
            kind.run = counted(run)
        function(*copy.deepcopy(case))
    finally:
        for kind, run in before.items():
            kind.run = run
    if launched:
        return None
    return "the values are right, and no Triton kernel ran: they come from PyTorch.\n  Question: where is the launch, kernel[grid](..)?"


def _norm_cases():
    import torch

    g = torch.Generator().manual_seed(11)
    return [
        (5 + torch.randn(3, d, generator=g), torch.randn(d, generator=g), eps)
        for d, eps in ((5, 0.5), (12, 0.1), (8, 2.0))
    ]


def _norm(x, weight, eps, width=None, inside=True, gain=True):
    squares = (x * x).sum(-1, keepdim=True) / (width or x.shape[-1])
    root = (squares + eps).sqrt() if inside else squares.sqrt() + eps
    return x / root * (weight if gain else 1)


def _rms(x, weight, eps):
    return _norm(x, weight, eps)


def _block(x, weight, eps):
    return _norm(x, weight, eps, width=1 << (x.shape[-1] - 1).bit_length())


def _ones(x, weight, eps):
    from torch.nn.functional import pad

    d = x.shape[-1]
    return _norm(pad(x, (0, (1 << (d - 1).bit_length()) - d), value=1.0), 1, eps, width=d)[:, :d] * weight


rms = Exercise(
    id="11.rms_norm",
    title="RMSNorm as a Triton kernel",
    kind="implement",
    cases=_norm_cases,
    reference=_rms,
    work=_launches,
    mistakes=[
        Mistake(_block, "The mean divides by the block, not by the row: the padding counts as numbers.", "How many numbers of the block are inside the row?"),
        Mistake(lambda x, weight, eps: _norm(x, weight, eps, inside=False), "eps is added after the root.", "Where is eps in the formula of chapter 01?"),
        Mistake(lambda x, weight, eps: _norm(x, weight, eps, gain=False), "The gain is not used.", "What does your kernel return when every gain is 0?"),
        Mistake(lambda x, weight, eps: _norm(x, weight, 0.0), "eps is not used.", "What happens to a row of zeros?"),
        Mistake(_ones, "The masked places are loaded as 1 and take part in the sum of squares.", "Which `other` adds nothing to the sum?"),
        Mistake(lambda x, weight, eps: _norm(x, weight, eps, width=1), "The squares are added, but the sum is not divided.", "Is it the root of the sum, or of the mean?"),
        Mistake(lambda x, weight, eps: _norm(x, weight, eps) * _norm(x, 1, eps) / x, "It is divided by the mean square, not by its root.", "What does a row of twos become where every gain is 1?"),
        Mistake(lambda x, weight, eps: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + eps).sqrt() * weight, "The mean is subtracted: that is LayerNorm.", "Which of its two steps does RMSNorm leave out?"),
        Mistake(lambda x, weight, eps: _norm(x[:1].expand_as(x), weight, eps), "Every program works on the first row.", "Which number tells a program which row is its own?"),
    ],
)  # fmt: skip


def _online_cases():
    import torch

    g = torch.Generator().manual_seed(12)

    def draw(S, d, scale=1.0):
        return scale * torch.randn(S, generator=g), torch.randn(S, d, generator=g), 16

    rising = torch.linspace(-3, 3, 40), torch.randn(40, 4, generator=g), 16
    steep = -150 - 7.0 * torch.arange(37), torch.randn(37, 2, generator=g), 16  # far below 0, and falling
    return [draw(16, 4), draw(37, 8), rising, draw(33, 4, 3.0), steep]


def _softmax(scores, values, block):
    return _online(scores, values, block)


def _online(scores, values, block, rescale_sum=True, rescale_out=True, every=True, divide=True):
    import torch

    best, total, out = torch.tensor(float("-inf")), torch.zeros(()), torch.zeros(values.shape[1])
    for start in range(0, len(scores), block):
        s, v = scores[start : start + block], values[start : start + block]
        new = torch.maximum(best, s.max())
        p, keep = (s - new).exp(), (best - new).exp()
        total = total * (keep if rescale_sum else 1) + p.sum()
        out = out * (keep if rescale_out else 1) + p @ v
        best = new
        if not every:
            break
    return out / total if divide else out


def _whole_blocks(scores, values, block):
    n = len(scores) // block * block
    return scores[:n].softmax(0) @ values[:n]


def _last_block(scores, values, block):
    start = (len(scores) - 1) // block * block
    return scores[start:].softmax(0) @ values[start:]


def _averaged(scores, values, block):
    import torch

    starts = range(0, len(scores), block)
    each = [scores[i : i + block].softmax(0) @ values[i : i + block] for i in starts]
    return torch.stack(each).mean(0)


def _no_maximum(scores, values, block):
    p = scores.exp()
    return p @ values / p.sum()


def _padded(scores, values, block):
    import torch

    extra = -len(scores) % block
    zeros = torch.zeros(extra)
    return torch.cat([scores, zeros]).softmax(0) @ torch.cat([values, torch.zeros(extra, values.shape[1])])


online = Exercise(
    id="11.online",
    title="The online softmax as a Triton kernel",
    kind="implement",
    cases=_online_cases,
    reference=_softmax,
    work=_launches,
    mistakes=[
        Mistake(lambda scores, values, block: _online(scores, values, block, rescale_out=False), "The accumulator is not rescaled when the maximum moves.", "Which maximum were the values of the first block weighted with?"),
        Mistake(lambda scores, values, block: _online(scores, values, block, rescale_sum=False), "The sum is not rescaled when the maximum moves.", "Which of the three numbers of a part depend on its maximum?"),
        Mistake(lambda scores, values, block: _online(scores, values, block, False, False), "Nothing is rescaled: each block counts with its own maximum.", "What would two blocks with equal scores, but 3 higher, weigh?"),
        Mistake(_padded, "Padding takes part: a masked score was loaded as 0, and exp(0) is 1.", "Which score makes exp() give 0?"),
        Mistake(lambda scores, values, block: _online(scores, values, block, every=False), "Only the first block is read.", "Where does the loop end?"),
        Mistake(_last_block, "Only the last block counts: the maximum so far is not kept, so everything before it is scaled to 0.", "What is `best` when the second block comes?"),
        Mistake(_whole_blocks, "The last block is left out when it is not full.", "Where does a loop over 37 scores in blocks of 16 end?"),
        Mistake(_averaged, "Each block has a softmax of its own, and the results are averaged.", "Does a block with tiny scores deserve the same vote?"),
        Mistake(lambda scores, values, block: _online(scores, values, block, divide=False), "The weighted values are not divided by the sum.", "What do the weights of a softmax add up to?"),
        Mistake(_no_maximum, "What is subtracted is not the maximum of all scores so far (none, one that starts at 0, or the block's own): exp() leaves float32.", "What are exp(-150) and exp(100) in float32?"),
    ],
)  # fmt: skip


def _parts_cases():
    import torch

    g = torch.Generator().manual_seed(13)
    return [(2 * torch.randn(p, generator=g), 1 + torch.rand(p, generator=g), torch.randn(p, d, generator=g)) for p, d in ((3, 5), (2, 4), (7, 3))]  # fmt: skip


def _join(best, total, part):
    share = (best - best.max()).exp()
    return (share[:, None] * part).sum(0) / (share * total).sum()


def my_join(best, total, part):
    share = (best - best.max()).exp()
    return (share[:, None] * part).sum(0) / total.sum()


join = Exercise(
    id="11.join",
    title="The second pass of a decode kernel",
    kind="find the fault",
    cases=_parts_cases,
    reference=_join,
    given=my_join,
    mistakes=[
        Mistake(my_join, "The sums of the parts are added without their maxima.", "Which maximum is each part's sum of exponentials relative to?"),
        Mistake(lambda best, total, part: (part / total[:, None]).mean(0), "Each part is normalised and the results are averaged.", "Does a part with tiny scores deserve the same vote?"),
        Mistake(lambda best, total, part: part.sum(0) / total.sum(), "The maxima are not used at all.", "When would this be right?"),
        Mistake(lambda best, total, part: (best.softmax(0)[:, None] * part / total[:, None]).sum(0), "The parts are weighted with a softmax of their maxima.", "How much does a part weigh in which many scores are near its maximum?"),
        Mistake(lambda best, total, part: _join(best, total, total[:, None] * part), "The weighted values are multiplied by their sums once more.", "Has `part` been divided by its `total` yet?"),
        Mistake(lambda best, total, part: _join(best, total, part / total[:, None]), "Each part is divided by its own sum, and then all by the common one.", "How often is a softmax divided?"),
        Mistake(lambda best, total, part: _join(-best, total, part), "The factor is upside down: the part with the smallest maximum weighs most.", "Is the factor of a part with a small maximum above 1 or below?"),
        Mistake(lambda best, total, part: ((best - best.max()).exp()[:, None] * part).sum(0) / (best - best.max()).exp().sum(), "It is divided by the factors: the sums of the parts are not used.", "What is a part's share of the softmax's denominator?"),
        Mistake(lambda best, total, part: ((best - best.max()).exp()[:, None] * part).sum(0), "Nothing is divided.", "What do the weights of a softmax add up to?"),
    ],
)  # fmt: skip


asked = Exercise(
    id="11.latent_bytes",
    title="Bytes of latents that 32 heads per program ask for",
    kind="predict",
    reference=lambda: 4 * 8192 * (512 + 64) * 2,
    mistakes=[
        Mistake(8192 * 576 * 2, "That is one read; each block of heads reads the latents for itself.", "How many blocks of 32 are 128 heads?"),
        Mistake(128 * 8192 * 576 * 2, "That is one read per head.", "What does one program keep while it reads?"),
        Mistake(32 * 8192 * 576 * 2, "32 is the heads per program, not the programs.", "How many blocks of 32 are 128 heads?"),
        Mistake(4 * 8192 * 576 * 4, "That is float32.", "How wide is bfloat16?"),
        Mistake(4 * 8192 * (576 + 512) * 2, "The value was read apart from the key.", "Which numbers of the key are the value?"),
        Mistake(4 * 8192 * 512 * 2, "The rope key is forgotten.", "What else is in a row of the latent cache?"),
        Mistake(4 * 8192 * 576, "Those are numbers, not bytes.", "How wide is bfloat16?"),
    ],
)  # fmt: skip
