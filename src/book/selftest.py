"""Ten questions that say which chapters a reader can skip. The answers are computed; none is printed."""

from dataclasses import dataclass

from book.contents import BY_NUMBER
from book.exercises.compare import same
from lib.arithmetic import kv_cache_bytes, mla_cache_bytes, swiglu_width


@dataclass(frozen=True)
class Question:
    chapter: str
    text: str
    answer: object  # a function, so that nothing is typed in twice


QUESTIONS = (
    Question("01", "RMSNorm (gain 1, eps 0) of [3, 4]: what is the first entry?", lambda: 3 / 12.5**0.5),
    Question("02", "$d = 1024$: which $d_{ff}$ gives SwiGLU the parameters of a GELU layer at $4d$, rounded up to a multiple of 256?", lambda: swiglu_width(1024, multiple_of=256)),
    Question("03", "A RoPE score of a query at position 12 and a key at 7 equals that of the same two vectors with the query at 105 and the key at ..?", lambda: 105 - (12 - 7)),
    Question("04", "A checkpoint stores RoPE pairs adjacent, (0,1), (2,3), ..; your code pairs $i$ with $i + 4$ in heads of 8. In which order do you take the first four rows of a head?", lambda: list(range(0, 8, 2))),
    Question("05", "24 layers, 16 query heads, 4 KV heads, head_dim 64, bf16: how many bytes of cache per token?", lambda: kv_cache_bytes(24, 4, 64)),
    Question("05", "8 query heads, 2 KV heads: which KV head (0 or 1) does query head 5 read?", lambda: 5 // (8 // 2)),
    Question("06", "`kv_lora_rank` 512, `qk_rope_head_dim` 64, 128 heads: how many numbers does MLA cache per token and layer?", lambda: mla_cache_bytes(1, 512, 64, bytes_per_element=1)),
    Question("07", "QK-norm with gains of 1 and heads of 64: what is the largest logit that a query and a key can have?", lambda: 64**0.5),
    Question("08", "$V = 50{,}000$, $d = 1{,}000$: how many parameters does tying the head save?", lambda: 50_000 * 1_000),
    Question("10", "`hidden_size` 1024, `num_attention_heads` 16, `head_dim` 128: how many rows has `q_proj.weight`?", lambda: 16 * 128),
)  # fmt: skip


def self_test(answers):
    """Prints which answers are right and which chapters that makes optional. Never raises, whatever was typed."""
    given = (
        answers
        if isinstance(answers, dict)
        else dict(enumerate(answers, 1))
        if isinstance(answers, list | tuple)
        else {}
    )
    right = {
        i for i, q in enumerate(QUESTIONS, 1) if given.get(i) is not None and _right(given[i], q.answer())
    }
    open_ = [i for i in range(1, len(QUESTIONS) + 1) if given.get(i) is None]
    if len(open_) == len(QUESTIONS):
        print("Not attempted yet: write your answers into the cell, for example 1: 0.5,")
        return
    print(
        f"{len(right)} of {len(QUESTIONS)} right"
        + (f"; still open: {', '.join(map(str, open_))}" if open_ else "")
    )
    wrong = {q.chapter for i, q in enumerate(QUESTIONS, 1) if i not in right}
    sure = [c for c in dict.fromkeys(q.chapter for q in QUESTIONS) if c not in wrong]
    for title, numbers in (("You can skip", sure), ("Read", sorted(wrong))):
        if numbers:
            print(f"{title}: " + "; ".join(BY_NUMBER[n].name for n in numbers))


def _right(answer, truth):
    try:
        return bool(same(answer, truth))
    except Exception:  # noqa: BLE001  whatever a reader typed
        return False
