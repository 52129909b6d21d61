"""Exercise 07.clip: QK-Clip for MLA."""

from book.exercises.core import Exercise, Mistake


def _clip_cases():
    import torch

    g = torch.Generator().manual_seed(10)
    draw = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)
    cases = []
    for largest, threshold in (
        ([40.0, 300.0, 99.0], 100.0),
        ([8.0, 3.0], 5.0),
        ([7.0, 6.0, 90.0, 30.0], 20.0),
        ([2.0, 1.0], 4.0),
    ):
        h = len(largest)
        w = draw(h, 3, 5), draw(h, 3, 7), draw(h, 2, 5), draw(2, 6)
        cases.append((*w, torch.tensor(largest, dtype=torch.float64), threshold))
    return cases


def _gamma(largest, threshold):
    return (threshold / largest.clamp(min=threshold))[:, None, None]  # 1 where the head is quiet


def _clip(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    shrink = _gamma(largest, threshold)
    return w_qc * shrink.sqrt(), w_kc * shrink.sqrt(), w_qr * shrink, w_kr


def _clip_with(powers, gamma=_gamma):
    """The clip with other powers of gamma on q^C, k^C, q^R, and its smallest one on the shared key."""

    def clip(w_qc, w_kc, w_qr, w_kr, largest, threshold):
        shrink = gamma(largest, threshold)
        qc, kc, qr, kr = powers
        return w_qc * shrink**qc, w_kc * shrink**kc, w_qr * shrink**qr, w_kr * shrink.min() ** kr

    return clip


def _swapped(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    qc, kc, qr, kr = _clip(w_qc, w_kc, w_qr, w_kr, largest, threshold)
    return kc, qc, qr, kr


def _rows(mistakes):
    return [Mistake(function, said, asked) for function, said, asked in mistakes]


clip = Exercise(
    id="07.clip",
    title="QK-Clip for MLA",
    kind="implement",
    cases=_clip_cases,
    reference=_clip,
    mistakes=_rows([
        (_clip_with((0.5, 0.5, 0.5, 0)), "q^R gets the root, and its partner k^R stays: that part of the loud head's logit falls by the root alone.", "By which factor does q^R k^R fall when only q^R is scaled?"),
        (_clip_with((0.5, 0.5, 0.5, 0.5)), "The shared key k^R is scaled too: the logits of every quiet head change with it.", "Which heads use w_kr?"),
        (_clip_with((0.5, 0.5, 0, 1)), "k^R takes the factor instead of q^R: all heads share it.", "Which of the two belongs to the loud head alone?"),
        (_clip_with((1, 1, 1, 0)), "q^C and k^C get the whole factor each: their product falls by its square.", "What is gamma times gamma?"),
        (_clip_with((1, 1, 1, 1)), "Every matrix gets the whole factor: products fall by its square, and other heads' too.", "What is gamma times gamma, and who shares w_kr?"),
        (_clip_with((1, 0, 1, 0)), "The logits are right, but all of it is taken from q; asked for is half from q^C and half from k^C.", "By how much should k^C of the loud head shrink?"),
        (_clip_with((0, 1, 1, 0)), "The logits are right, but all of it is taken from k^C; asked for is half from q^C and half from k^C.", "By how much should q^C of the loud head shrink?"),
        (_clip_with((0.5, 0.5, 0, 0)), "The rotary part is left as it was.", "Of which two products is an MLA logit the sum?"),
        (_clip_with((0, 0, 1, 0)), "The content part is left as it was.", "Of which two products is an MLA logit the sum?"),
        (_clip_with((0.5, 0, 1, 0)), "k^C is left as it was: the content part falls by the root alone.", "By which factor does q^C k^C fall?"),
        (_clip_with((0, 0.5, 1, 0)), "q^C is left as it was: the content part falls by the root alone.", "By which factor does q^C k^C fall?"),
        (_clip_with((1, 1, 0.5, 0)), "The two powers are swapped: q^C and k^C share a factor, q^R has no partner that shrinks with it.", "By which factor does q^C k^C fall here?"),
        (_clip_with((0.5, 0.5, 2, 0)), "q^R gets the square of the factor.", "By which factor must q^R k^R fall, and which of the two may change?"),
        (_clip_with((0, 0, 0, 0)), "Nothing is changed, and the loud heads stay loud.", "Which head passed the threshold?"),
        (_swapped, "w_qc and w_kc come back in each other's place.", "In which order do they come in?"),
        (_clip_with((0.5, 0.5, 1, 0), lambda largest, tau: (tau / largest.clamp(max=tau))[:, None, None]), "The clamp points the wrong way: loud heads stay as they are and quiet ones are scaled up.", "What is your factor where `largest` lies above the threshold?"),
        (_clip_with((0.25, 0.25, 0.5, 0)), "Logits are products: with these factors they fall by the root of gamma only.", "A logit of 400 under a threshold of 100: what is it after your clip?"),
        (_clip_with((0.5, 0.5, 1, 0), lambda largest, tau: (tau / largest)[:, None, None]), "Quiet heads are scaled up to the threshold; they are to stay as they were.", "What is your factor where `largest` lies below the threshold?"),
        (_clip_with((0.5, 0.5, 1, 0), lambda largest, tau: (largest.clamp(min=tau) / tau)[:, None, None]), "The factor is upside down: loud heads grow louder.", "Is your gamma below 1 for a loud head?"),
        (_clip_with((0.5, 0.5, 1, 0), lambda largest, tau: _gamma(largest, tau).min().expand(len(largest), 1, 1)), "All heads are scaled by the loudest head's factor; each head has its own.", "Which head passed the threshold?"),
        (_clip_with((0.5, 0.5, 1, 0), lambda largest, tau: tau / largest.max().clamp(min=tau) * (largest[:, None, None] > tau) + 1.0 * (largest[:, None, None] <= tau)), "Every loud head gets the loudest one's factor; each has its own.", "What is the factor of a head with twice the threshold?"),
    ]),
)  # fmt: skip
