"""Exercises of chapter 11: the kernels. The cases are tiny: Triton's interpreter runs them."""

from book.exercises.core import Exercise, Mistake


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


def _block(x, weight, eps):
    return _norm(x, weight, eps, width=1 << (x.shape[-1] - 1).bit_length())


rms = Exercise(
    id="11.rms_norm",
    title="RMSNorm as a Triton kernel",
    kind="implement",
    cases=_norm_cases,
    reference=_norm,
    mistakes=[
        Mistake(_block, "The mean divides by the block, not by the row: the padding counts as numbers.", "How many numbers of the block are inside the row?"),
        Mistake(lambda x, weight, eps: _norm(x, weight, eps, inside=False), "eps is added after the root.", "Where does eps stand in the formula of chapter 01?"),
        Mistake(lambda x, weight, eps: _norm(x, weight, eps, gain=False), "The gain is not used.", "What does your kernel return when every gain is 0?"),
        Mistake(lambda x, weight, eps: _norm(x, weight, 0.0), "eps is not used.", "What happens to a row of zeros?"),
        Mistake(lambda x, weight, eps: _norm(x[:1].expand_as(x), weight, eps), "Every program works on the first row.", "Which number tells a program which row is its own?"),
    ],
)  # fmt: skip


def _online_cases():
    import torch

    g = torch.Generator().manual_seed(12)

    def draw(S, d, scale=1.0):
        return scale * torch.randn(S, generator=g), torch.randn(S, d, generator=g), 16

    rising = torch.linspace(-3, 3, 40), torch.randn(40, 4, generator=g), 16
    return [draw(16, 4), draw(37, 8), rising, draw(33, 4, 3.0)]


def _online(scores, values, block, rescale_sum=True, rescale_out=True, every=True):
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
    return out / total


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
    reference=_online,
    mistakes=[
        Mistake(lambda scores, values, block: _online(scores, values, block, rescale_out=False), "The accumulator is not rescaled when the maximum moves.", "Which maximum were the values of the first block weighted with?"),
        Mistake(lambda scores, values, block: _online(scores, values, block, rescale_sum=False), "The sum is not rescaled when the maximum moves.", "Which of the three numbers of a part depend on its maximum?"),
        Mistake(lambda scores, values, block: _online(scores, values, block, False, False), "Nothing is rescaled: each block counts with its own maximum.", "What would two blocks with equal scores, but 3 higher, weigh?"),
        Mistake(_padded, "Padding takes part: a masked score was loaded as 0, and exp(0) is 1.", "Which score makes exp() give 0?"),
        Mistake(lambda scores, values, block: _online(scores, values, block, every=False), "Only the first block is read.", "Where does the loop end?"),
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
        Mistake(4 * 8192 * (576 + 512) * 2, "The value was read apart from the key.", "Which numbers of the key are the value?"),
        Mistake(4 * 8192 * 512 * 2, "The rope key is forgotten.", "What else is in a row of the latent cache?"),
        Mistake(4 * 8192 * 576, "Those are numbers, not bytes.", "How wide is bfloat16?"),
    ],
)  # fmt: skip
