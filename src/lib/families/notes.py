"""What is said of a file beside its numbers: what the class filled in, what nobody asked for."""

from .config_file import listed, show
from .table import HARMLESS, HARMLESS_ENDINGS, HARMLESS_OFF, HARMLESS_STARTS


def warnings(f):
    """What the reader of a file should know, once all of it is read."""
    known = f.used | HARMLESS
    unknown = sorted(
        key
        for key, value in ((str(key), value) for key, value in f.raw.items())
        if value is not None
        and key not in known
        and not (value is False and key in HARMLESS_OFF)
        and not key.endswith(HARMLESS_ENDINGS)
        and not key.startswith(HARMLESS_STARTS)
    )
    if f.defaulted:
        pairs = ", ".join(f"{key} = {show(value)}" for key, value in f.defaulted.items())
        f.warn(f"not in the file, taken from the class of {f.model_type}: {pairs}", doubt=False)
    if unknown:
        f.warn(f"fields that this reader does not know, and did not use: {listed(unknown)}")
    if f.raw.get("num_nextn_predict_layers") or f.raw.get("use_mtp"):
        f.warn(
            "published with extra layers that predict further tokens (MTP): they are not counted", doubt=False
        )
    return tuple(f.warnings)
