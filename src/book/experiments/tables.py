"""Count tables: what knowing only the last few bytes is worth. No network, no torch."""

import numpy as np

ORDERS = (0, 1, 2, 3, 4, 5)


def _codes(data, order):
    """The `order` + 1 bytes that end at byte `order`, `order` + 1, .. of the first axis as one number each."""
    codes = np.zeros((len(data) - order, *data.shape[1:]), dtype=np.int64)
    for i in range(order + 1):
        codes = codes * 256 + data[i : len(data) - order + i]
    return codes


def table_bits(text, windows, read, orders=ORDERS):
    """P_n(c | h) = (count(hc) + kinds(h) P_{n-1}(c | h')) / (count(h) + kinds(h)), in bits per byte.

    h is the last n bytes, h' the last n - 1, kinds(h) how many different bytes followed h; P_{-1} = 1/256; an unseen h leaves
    P_{n-1}. A window's first bytes have fewer than n before them and use what is there, as a model does.

    text: bytes. windows: uint8 [W, T + 1], as the model is judged on. read: bool [points, len(text)], which bytes were read by
    then; a string is counted where all of its bytes were. -> float64 [points, len(orders)]
    Source: Witten & Bell 1991, "The zero-frequency problem", method C, interpolated.
    """
    data, windows = np.frombuffer(bytes(text), np.uint8).astype(np.int64), np.asarray(windows, dtype=np.int64)
    read = np.atleast_2d(np.asarray(read, dtype=bool))
    W, T = windows.shape[0], windows.shape[1] - 1
    p = np.full((len(read), W, T), 1 / 256)
    bits = np.empty((len(read), len(orders)))
    whole = read.copy()  # whole[i]: the string that ends at byte i was read
    for order in range(max(orders) + 1):
        if order:
            whole = whole[:, 1:] & read[:, : len(data) - order]
        # [text's strings; the windows' strings] numbered alike
        strings, of = np.unique(
            np.concatenate([_codes(data, order), _codes(windows.T, order).ravel()]), return_inverse=True
        )
        contexts, context_of = np.unique(strings // 256, return_inverse=True)
        in_text, asked = of[: len(data) - order], of[len(data) - order :].reshape(-1, W)
        asked = asked[1 if order == 0 else 0 :].T  # [W, T + 1 - max(order, 1)]: those that predict
        for i in range(len(read)):
            count = np.bincount(in_text[whole[i]], minlength=len(strings))
            seen = np.bincount(context_of, weights=count, minlength=len(contexts))
            kinds = np.bincount(context_of, weights=count > 0, minlength=len(contexts))
            here = context_of[asked]
            total = seen[here] + kinds[here]
            lower = p[i, :, max(order - 1, 0) :]
            p[i, :, max(order - 1, 0) :] = np.where(
                total > 0, (count[asked] + kinds[here] * lower) / np.maximum(total, 1), lower
            )
            if order in orders:
                bits[i, orders.index(order)] = -np.log2(p[i]).mean()
    return bits


def read_by(order, steps, batch, length, n_bytes):
    """bool [len(steps), n_bytes]: the bytes that a run has read after each of `steps`. order: int [windows], as the run
    draws them; window i is the bytes i length .. (i + 1) length, both included."""
    out = np.zeros((len(steps), n_bytes), dtype=bool)
    for row, step in zip(out, steps):
        for i in np.asarray(order[: step * batch]):
            row[i * length : (i + 1) * length + 1] = True
    return out
