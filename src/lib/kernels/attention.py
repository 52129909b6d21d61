"""`lib.attend` by kernels: which of the three takes a call."""

from lib.kernels import decode, latent, prefill


def attend(q, k, v, mask=None, scale=None):
    """softmax(scale * q k^T) v: `lib.attend` as kernels, one query through `decode`, more through `prefill`.

    Shapes: q [B, h, T, dh], k [B, n_kv, S, dh], v [B, n_kv, S, d_v] in any strides -> [B, h, T, d_v], contiguous
    mask: bool, broadcastable to [B, h, T, S], read as it lies (no copy); None = causal, aligned to the last key.
    A window or padding is a mask; a masked block of keys is still read. Widths up to 256.
    MLA's absorbed form: where v is a view of the first numbers of the one key, `latent` reads both at once, widths up to 512.
    Raises: ValueError that says what it takes.
    """
    if k.shape[1] == 1 and v.data_ptr() == k.data_ptr() and v.stride() == k.stride():
        return latent.attend_latent(q, k[:, 0], v.shape[-1], mask, scale)
    if q.shape[2] != 1:
        launch, y = prefill.plan(q, k, v, mask, scale)
        launch.run()
        return y
    launches, y = decode.plan(q, k, v, mask, scale)
    for launch in launches:
        launch.run()
    return y
