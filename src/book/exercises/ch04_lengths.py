"""Exercises of chapter 04 on longer contexts: llama3 and YaRN scaling, and dynamic NTK beside a cache."""

from math import ceil, floor, log, pi

from book.exercises.core import Exercise, Mistake


def _thetas(pairs, base):
    import torch

    return base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)


def _llama3_cases():
    return [
        (_thetas(32, 1e5), 4.0, 2048, 1.0, 4.0),
        (_thetas(64, 5e5), 16.0, 8192, 1.0, 4.0),
        (_thetas(24, 1e4), 3.0, 1000, 2.0, 9.0),
        (_thetas(40, 1e6), 8.0, 4096, 0.5, 6.0),
    ]


def _llama3(theta, factor, original, low, high):
    turns = original * theta / (2 * pi)
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return keep * theta + (1 - keep) * theta / factor


def _bands(
    of_turns=lambda keep: keep,
    blend=None,
    count=lambda original, theta: original * theta / (2 * pi),
):
    """llama3's rule with another share kept, another blend, or another count of turns."""  # fmt: skip
    blend = blend or (lambda keep, theta, factor: keep * theta + (1 - keep) * theta / factor)

    def wrong(theta, factor, original, low, high):
        keep = (count(original, theta) - low) / (high - low)
        return blend(of_turns(keep), theta, factor)

    return wrong


def _share(keep):
    return keep.clamp(0, 1)


def _wavelengths_blended(keep, theta, factor):
    return 1 / (keep / theta + (1 - keep) * factor / theta)


def _by_wavelength(theta, factor, original, low, high):
    """The share falls linearly in the wavelength instead of rising in the turns."""
    wave = 2 * pi / theta
    keep = ((original / low - wave) / (original / low - original / high)).clamp(0, 1)
    return keep * theta + (1 - keep) * theta / factor


def _by_log(theta, factor, original, low, high):
    turns = original * theta / (2 * pi)
    keep = ((turns / low).log() / log(high / low)).clamp(0, 1)
    return keep * theta + (1 - keep) * theta / factor


_HOW_MUCH = "A pair that turned twice where 1 and 4 are the limits: which share of it is kept?"
llama3 = Exercise(
    id="04.llama3",
    title="Write llama3 scaling",
    kind="implement",
    cases=_llama3_cases,
    reference=_llama3,
    tol=1e-6,  # a share counted in float32 will do
    hint="Print how often each pair turned, and the share of it that you keep.",
    mistakes=[
        Mistake(_bands(_share, lambda keep, theta, factor: (1 - keep) * theta + keep * theta / factor), "The two limits, or the two ends, are exchanged: fast pairs are divided, slow ones kept.", "Which pairs has training shown all angles?"),
        Mistake(_bands(), "The share kept is not held between 0 and 1: beyond the limits the blend goes on.", "What is the share of a pair that turned 100 times?"),
        Mistake(_bands(lambda keep: keep.clamp(min=0)), "The share kept is not held below 1: fast pairs are sped up.", "What is the share of a pair that turned 100 times?"),
        Mistake(_bands(lambda keep: keep.clamp(max=1)), "The share kept is not held above 0: slow pairs are divided by more than the factor, or turn backwards.", "What is the share of a pair that never completed a turn?"),
        Mistake(_bands(_share, _wavelengths_blended), "Wavelengths are blended; the rule blends frequencies.", "Half kept, factor 8: what is the frequency, and what is one over the mean wavelength?"),
        Mistake(_bands(_share, lambda keep, theta, factor: _wavelengths_blended(1 - keep, theta, factor)), "Wavelengths are blended, with the two shares exchanged.", "Which pairs keep their wavelength?"),
        Mistake(_bands(_share, lambda keep, theta, factor: keep * theta + (1 - keep) * theta * factor), "Slow pairs are multiplied by the factor; they must turn more slowly.", "Which angle does the slowest pair reach at factor times the old length?"),
        Mistake(_bands(_share, count=lambda original, theta: original * theta), "2 pi is missing: these are radians, not turns.", "How many radians are a turn?"),
        Mistake(_bands(_share, count=lambda original, theta: 2 * pi / theta), "That is the wavelength in tokens; the limits are in turns.", "How many turns fit in the original length?"),
        Mistake(_bands(_share, count=lambda original, theta: 2 * pi / (original * theta)), "That is one over the number of turns.", "A pair of wavelength 100 in 1,000 tokens: 10 turns or 0.1?"),
        Mistake(lambda theta, factor, original, low, high: _llama3(theta, factor, factor * original, low, high), "Turns are counted in the new length; training had the original one.", "In which length did the model meet its angles?"),
        Mistake(_bands(lambda keep: (keep > 0).double()), "Between the limits pairs are kept whole: there is no blend.", _HOW_MUCH),
        Mistake(_bands(lambda keep: (keep >= 1).double()), "Between the limits pairs are divided whole: there is no blend.", _HOW_MUCH),
        Mistake(_bands(lambda keep: (keep > 0.5).double()), "Pairs change over at the middle: there is no blend.", _HOW_MUCH),
        Mistake(_by_wavelength, "The share runs evenly over the wavelengths; it runs over the turns.", _HOW_MUCH),
        Mistake(_by_log, "The share runs evenly over the logarithm of the turns; it runs over the turns.", _HOW_MUCH),
        Mistake(lambda theta, factor, original, low, high: _share((original * theta / (2 * pi) - low) / (high - low)) * theta, "Only the kept share is there: slow pairs stand still.", "Which frequency has a pair of share 0?"),
        Mistake(lambda theta, factor, original, low, high: theta / factor, "Every pair is divided: that is linear scaling.", "Which pairs does llama3 leave alone?"),
        Mistake(lambda theta, factor, original, low, high: theta.clone(), "Nothing is scaled: every pair counts as fast.", "How often did the last pair turn in the original length?"),
        Mistake(lambda theta, factor, original, low, high: 2 * pi / _llama3(theta, factor, original, low, high), "These are wavelengths; frequencies are asked for.", "What is the first pair's frequency?"),
    ],
)  # fmt: skip


def _yarn_cases():
    return [
        (_thetas(32, 1e5), 4.0, 2048, 1e5, 32.0, 1.0),
        (_thetas(64, 1e6), 4.0, 32768, 1e6, 32.0, 1.0),
        (_thetas(24, 1e4), 16.0, 8192, 1e4, 20.0, 2.0),
        (_thetas(40, 5e5), 8.0, 4096, 5e5, 16.0, 1.0),
    ]


def _yarn(theta, factor, original, base, fast, slow):
    import torch

    pairs = len(theta)
    low = floor(pairs * log(original / (fast * 2 * pi)) / log(base))
    high = ceil(pairs * log(original / (slow * 2 * pi)) / log(base))
    divide = ((torch.arange(pairs, dtype=theta.dtype) - low) / (high - low)).clamp(0, 1)
    return (1 - divide) * theta + divide * theta / factor


def _ramp(at=None, share=_share, blend=None, down=floor, up=ceil, shift=0, swap=False):
    """YaRN with another pair number, rounding, ramp or blend."""
    at = at or (lambda pairs, original, base, turns: pairs * log(original / (turns * 2 * pi)) / log(base))
    blend = blend or (lambda divide, theta, factor: (1 - divide) * theta + divide * theta / factor)

    def wrong(theta, factor, original, base, fast, slow):
        import torch

        pairs = len(theta)
        fast, slow = (slow, fast) if swap else (fast, slow)
        low, high = down(at(pairs, original, base, fast)), up(at(pairs, original, base, slow))
        divide = share((torch.arange(pairs, dtype=theta.dtype) + shift - low) / (high - low))
        return blend(divide, theta, factor)

    return wrong


def _without_two_pi_of(end):
    """Pair numbers in which one of the two ends is counted in radians; every case has a slow end of at most 2 turns."""

    def at(pairs, original, base, turns):
        radians = (turns > 2) == (end is max)
        return pairs * log(original / (turns * (1 if radians else 2 * pi))) / log(base)

    return at


def _same(x):
    return x


_WHICH = "V3: 64 rotary dimensions, base 10,000, 4,096 tokens. Which pair turned once, and which 32 times?"
yarn = Exercise(
    id="04.yarn",
    title="Write YaRN's frequencies",
    kind="implement",
    cases=_yarn_cases,
    reference=_yarn,
    tol=1e-6,
    hint="Print the two ends of the ramp, and the share of each pair that is divided.",
    mistakes=[
        Mistake(_ramp(blend=lambda divide, theta, factor: divide * theta + (1 - divide) * theta / factor), "The ramp is upside down: fast pairs are divided, slow ones kept.", "Which pairs has training shown all angles?"),
        Mistake(_ramp(share=_same), "The ramp goes on beyond its ends: it is not held between 0 and 1.", "Which share of pair 0 is divided?"),
        Mistake(_ramp(down=_same, up=_same), "The ends of the ramp are not rounded. (gpt-oss asks for that, with truncate: false; the text does not.)", "From which whole pair is everything divided?"),
        Mistake(_ramp(down=ceil, up=floor), "The ends are rounded inwards: the ramp becomes shorter.", "Is a pair that turned a little less than 32 times still kept whole?"),
        Mistake(_ramp(down=round, up=round), "The ends are rounded to the nearest pair; down at the one end, up at the other.", "Is the ramp longer or shorter for the rounding of the text?"),
        Mistake(_ramp(down=floor, up=floor), "Both ends are rounded down; the far end is rounded up.", "Is the ramp longer or shorter for the rounding of the text?"),
        Mistake(_ramp(lambda pairs, original, base, turns: 2 * pairs * log(original / (turns * 2 * pi)) / log(base)), "A factor of 2: that is the number of the dimension, not of the pair.", _WHICH),
        Mistake(_ramp(lambda pairs, original, base, turns: pairs * log(original / (turns * 2 * pi)) / (2 * log(base))), "A factor of 2 is missing: d_h is twice the number of pairs.", _WHICH),
        Mistake(_ramp(lambda pairs, original, base, turns: pairs * log(original / turns) / log(base)), "2 pi is missing: these are radians, not turns.", _WHICH),
        Mistake(_ramp(_without_two_pi_of(max)), "2 pi is missing at the fast end.", _WHICH),
        Mistake(_ramp(_without_two_pi_of(min)), "2 pi is missing at the slow end.", _WHICH),
        Mistake(_ramp(lambda pairs, original, base, turns: pairs * log(original / (turns * 2 * pi)) / log(1e4)), "The base is fixed at 10,000.", "Which argument have you not used?"),
        Mistake(lambda theta, factor, original, base, fast, slow: _llama3(theta / factor, 1 / factor, factor * original, slow, fast), "The share divided rises with the number of turns: fast pairs are divided; and it should run over the number of the pair.", "Which pairs has training shown all angles?"),
        Mistake(_ramp(lambda pairs, original, base, turns: pairs * log(original * turns / (2 * pi)) / log(base)), "The number of turns is on the wrong side of the fraction.", "Does a pair that turned more often have a larger or a smaller number?"),
        Mistake(lambda theta, factor, original, base, fast, slow: _ramp()(theta, factor, factor * original, base, fast, slow), "Turns are counted in the new length; training had the original one.", "In which length did the model meet its angles?"),
        Mistake(lambda theta, factor, original, base, fast, slow: _llama3(theta, factor, original, slow, fast), "The share runs over the number of turns: that is llama3's rule. YaRN's runs over the number of the pair.", "Half-way between the two ends of the ramp: which share is divided?"),
        Mistake(_ramp(blend=lambda divide, theta, factor: (1 - divide) * theta + divide * theta * factor), "Slow pairs are multiplied by the factor; they must turn more slowly.", "Which angle does the slowest pair reach at factor times the old length?"),
        Mistake(_ramp(blend=lambda divide, theta, factor: 1 / ((1 - divide) / theta + divide * factor / theta)), "Wavelengths are blended; the rule blends frequencies.", "Half kept, factor 8: what is the frequency, and what is one over the mean wavelength?"),
        Mistake(_ramp(blend=lambda divide, theta, factor: theta / factor**divide), "The exponent of the factor is blended; the rule blends frequencies.", "Half kept, factor 4: is the frequency divided by 2, or by 1.6?"),
        Mistake(_ramp(share=lambda divide: (divide > 0).double()), "There is no ramp: beyond its first end everything is divided.", "Which share of the pair in the middle of the ramp is divided?"),
        Mistake(_ramp(share=lambda divide: (divide >= 1).double()), "There is no ramp: up to its far end everything is kept.", "Which share of the pair in the middle of the ramp is divided?"),
        Mistake(_ramp(share=lambda divide: (divide > 0.5).double()), "There is no ramp: pairs change over at its middle.", "Which share of the pair in the middle of the ramp is divided?"),
        Mistake(_ramp(shift=1), "Pairs are counted from 1; they are counted from 0.", "Which number has the fastest pair?"),
        Mistake(_ramp(swap=True), "fast and slow are exchanged.", "Which pair has the smaller number: one that turned 32 times, or once?"),
        Mistake(_ramp(blend=lambda divide, theta, factor: (1 - divide) * theta), "Only the kept share is there: slow pairs stand still.", "Which frequency has the last pair?"),
        Mistake(_ramp(blend=lambda divide, theta, factor: ((1 - divide) * theta + divide * theta / factor) * (0.1 * log(factor) + 1)), "The temperature is multiplied into the frequencies; it belongs to the scores.", "Which frequency has the first pair?"),
        Mistake(lambda theta, factor, original, base, fast, slow: theta / factor, "Every pair is divided: that is linear scaling.", "Which pairs does YaRN leave alone?"),
        Mistake(lambda theta, factor, original, base, fast, slow: theta.clone(), "Nothing is scaled.", "Which pairs have not completed a turn?"),
    ],
)  # fmt: skip


def _dynamic_cases():
    import torch

    g = torch.Generator().manual_seed(12)
    sizes = ((9, 4, 2.0, 4, 1e4), (12, 8, 4.0, 5, 1e4), (6, 6, 3.0, 8, 1e4), (15, 10, 2.0, 6, 5e5))
    return [
        (*torch.randn(2, T, d_h, generator=g, dtype=torch.float64), factor, trained, base)
        for T, d_h, factor, trained, base in sizes
    ]


def _given(q, k, factor, trained, base):
    cached, d_h = [], k.shape[-1]
    for t in range(len(k)):
        stretch = max(1.0, 1 + factor * ((t + 1) / trained - 1))
        theta = torch.tensor(inv_freq(d_h, base * stretch ** (d_h / (d_h - 2))), dtype=q.dtype)  # noqa: F821
        cached.append(turn(k[t], t, theta))  # noqa: F821  the notebook's names
    return torch.stack(cached) @ turn(q[-1], t, theta)  # noqa: F821


def _turned(x, position, theta):
    import torch

    a, b = x.chunk(2)
    cos, sin = (position * theta).cos(), (position * theta).sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos])


def _dynamic_theta(length, d_h, factor, trained, base, exponent=None):
    stretch = max(1.0, 1 + factor * (length / trained - 1))
    exponent = d_h / (d_h - 2) if exponent is None else exponent
    return _thetas(d_h // 2, base * stretch**exponent)


def _scores(q, k, factor, trained, base):
    import torch

    T, d_h = k.shape
    theta = _dynamic_theta(T, d_h, factor, trained, base)
    keys = torch.stack([_turned(k[t], t, theta) for t in range(T)])
    return keys @ _turned(q[-1], T - 1, theta)


def _decoded(key_theta=None, query_theta=None, key_at=lambda t: t, query_at=lambda T: T - 1, query=-1):
    """Scores of the last query where keys and query have bases or positions of their own; both get theta(length)."""

    def wrong(q, k, factor, trained, base):
        import torch

        T, d_h = k.shape

        def right(length):
            return _dynamic_theta(length, d_h, factor, trained, base)

        of_key = key_theta or (lambda t, theta: theta(T))
        of_query = query_theta or (lambda theta: theta(T))
        keys = torch.stack([_turned(k[t], key_at(t), of_key(t, right)) for t in range(T)])
        return keys @ _turned(q[query], query_at(T), of_query(right))

    return wrong


def _one_base(make):
    """All keys and the query at the base make(T, d_h, factor, trained, base)."""

    def wrong(q, k, factor, trained, base):
        import torch

        T, d_h = k.shape
        theta = _thetas(d_h // 2, make(T, d_h, factor, trained, base))
        return torch.stack([_turned(k[t], t, theta) for t in range(T)]) @ _turned(q[-1], T - 1, theta)

    return wrong


def _stretched(stretch):
    return _one_base(lambda T, d_h, factor, trained, base: base * stretch(T, factor, trained) ** (d_h / (d_h - 2)))  # fmt: skip


_ONE_BASE = "With which base was each key in the cache turned, and with which is the query?"
dynamic = Exercise(
    id="04.dynamic",
    title="Find the fault: dynamic NTK with a cache",
    kind="find the fault",
    cases=_dynamic_cases,
    reference=lambda q, k, factor, trained, base: _scores(q, k, factor, trained, base),
    given=_given,
    mistakes=[
        Mistake(_decoded(key_theta=lambda t, theta: theta(t + 1)), "Each key keeps the base of the moment when it was cached; the query has today's.", _ONE_BASE),
        Mistake(_decoded(key_theta=lambda t, theta: theta(0), query_theta=lambda theta: theta(0)), "The base never moves: beyond the trained length nothing is stretched.", "Which pairs meet new angles on the longest text?"),
        Mistake(_decoded(key_theta=lambda t, theta: theta(0)), "The keys have the trained base; the query has the stretched one.", _ONE_BASE),
        Mistake(_decoded(query_theta=lambda theta: theta(0)), "The query has the trained base; the keys have the stretched one.", _ONE_BASE),
        Mistake(_decoded(key_theta=lambda t, theta: theta(t + 1), query_theta=lambda theta: theta(0)), "The query has the trained base, and each key that of its own moment.", _ONE_BASE),
        Mistake(_stretched(lambda T, factor, trained: 1 + factor * (T / trained - 1)), "A text shorter than the trained length is squeezed: the stretch falls below 1.", "Which base must a text of up to the trained length have?"),
        Mistake(_stretched(lambda T, factor, trained: max(1.0, factor * T / trained)), "The stretch jumps to the factor at the trained length; there it must be 1.", "What is the stretch of a text that is one token too long?"),
        Mistake(_stretched(lambda T, factor, trained: max(1.0, T / trained)), "The factor is not used.", "By how much must the stretch rise for each further trained length?"),
        Mistake(_stretched(lambda T, factor, trained: factor), "The stretch is the factor at every length: that is static NTK, and short texts pay.", "Which base must a text of up to the trained length have?"),
        Mistake(_one_base(lambda T, d_h, factor, trained, base: base * max(1.0, 1 + factor * (T / trained - 1))), "The exponent d_h / (d_h - 2) is gone: the slowest pair is divided by less than the stretch.", "Which power of the base is the slowest frequency?"),
        Mistake(_one_base(lambda T, d_h, factor, trained, base: base * max(1.0, 1 + factor * ((T - 1) / trained - 1)) ** (d_h / (d_h - 2))), "The length is one too small: T tokens make a text of T.", "How long is the text when its first token has come?"),
        Mistake(_decoded(query_at=lambda T: T), "The query's position is one too large.", "At which position is the last of T tokens?"),
        Mistake(_decoded(query_at=lambda T: 0), "The query is not turned.", "At which position is the last of T tokens?"),
        Mistake(_decoded(key_at=lambda t: 0), "The keys are not turned at all.", "Which positions do the keys have?"),
        Mistake(_decoded(key_at=lambda t: t + 1), "The keys' positions begin at 1, and the query's do not.", "How far is the last query from its own key?"),
        Mistake(_decoded(key_at=lambda t: 2 * t), "The keys are turned twice: once when cached and once when read.", "Which angle has key 3 in your scores?"),
        Mistake(_decoded(query=0), "The first query is scored, not the last.", "Whose scores are asked for?"),
        Mistake(lambda q, k, factor, trained, base: k @ q[-1], "Nothing is turned.", "Which positions do the keys have?"),
        Mistake(lambda q, k, factor, trained, base: _scores(q, k, factor, trained, base).softmax(0), "These are weights; scores are asked for.", "Do your numbers add up to 1?"),
        Mistake(lambda q, k, factor, trained, base: _scores(q, k, factor, trained, base) / k.shape[-1] ** 0.5, "The scores are divided by the root of d_h; the function that you were given does not.", "Is that part of the fault?"),
    ],
)  # fmt: skip
