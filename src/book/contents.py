"""The chapters in order, once: start page, contents, previous and next, README and site are made from this table."""

from dataclasses import dataclass

EDITION = "2"


@dataclass(frozen=True)
class Chapter:
    number: str
    file: str  # stem of its notebook
    title: str
    minutes: int
    about: str
    needs: tuple = ()  # chapters that it builds on

    @property
    def name(self):
        return f"{self.number} · {self.title}"


CHAPTERS = (
    Chapter("00", "00_at_a_glance", "The block at a glance", 35, "both blocks side by side, and what each change buys"),
    Chapter("01", "01_rmsnorm", "RMSNorm", 40, "LayerNorm without the mean; where to cast"),
    Chapter("02", "02_swiglu", "SwiGLU and its width", 35, "three matrices at 8/3 d, and why 11,008"),
    Chapter("03", "03_rope", "RoPE, derived", 45, "relative scores force rotations"),
    Chapter("04", "04_rope_in_practice", "RoPE in practice", 60, "layouts, bases, scaling, precision", ("03",)),
    Chapter("05", "05_kv_cache", "The KV cache", 50, "MHA, GQA, MQA; bytes, masks, bandwidth", ("03",)),
    Chapter("06", "06_mla", "Multi-head latent attention", 50, "one latent for all heads, and absorption", ("03", "05")),
    Chapter("07", "07_qk_norm", "QK-norm", 40, "bounded attention logits", ("01", "03")),
    Chapter("08", "08_tied_embeddings", "Tied embeddings", 35, "one tensor, two jobs"),
    Chapter("09", "09_full_block", "The whole block", 70, "thirty lines equal to `lib`; trained beside the 2019 block", ("01", "02", "03", "05", "07")),
    Chapter("10", "10_real_models", "Real models", 60, "a port by hand, and the config detective", ("04", "05", "08")),
    Chapter("11", "11_kernels", "The block on a GPU, without a GPU", 60, "kernels in Triton: run in its interpreter, counted to the byte, compiled for three cards", ("01", "05", "06")),
)  # fmt: skip
BY_NUMBER = {chapter.number: chapter for chapter in CHAPTERS}
# For whom, which chapters, and what they can do afterwards.
PATHS = {
    "You port models": (("03", "04", "08", "10"), "layouts, scaling and stale heads, then a port by hand"),
    "You plan capacity": (
        ("05", "06", "10"),
        "what a cache costs, per token, user and card, for any config.json",
    ),
    "You give a two-hour class": (("00", "05", "06"), "the map, the cache, and the idea that made it small"),
}


def neighbours(number):
    """(the chapter before, the chapter after), None at the ends."""
    at = [chapter.number for chapter in CHAPTERS].index(number)
    return (CHAPTERS[at - 1] if at else None), (CHAPTERS[at + 1] if at + 1 < len(CHAPTERS) else None)


def way_on(number, contents, suffix=".ipynb"):
    """The closing line of a chapter, in Markdown: previous, contents, next. `contents` is the address of the first page."""
    before, after = neighbours(number)
    links = [f"← [{before.name}]({before.file}{suffix})"] if before else []
    links += [f"[Contents]({contents})"]
    links += [f"[{after.name}]({after.file}{suffix}) →"] if after else []
    return " | ".join(links)
