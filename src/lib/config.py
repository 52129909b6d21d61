"""What a model is: a vocabulary, a width, and a list of layers. No torch here.

A model is a LIST of layers, so windows, NoPE layers, two RoPE bases, leading dense layers and hybrids need no flags.
Field names are the keyword names of the modules that they describe.
"""

from dataclasses import dataclass, field, replace

SCALINGS = ("linear", "dynamic", "yarn", "llama3", "longrope", "proportional")
LAYOUTS = ("half", "adjacent")
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu", "relu2", "xielu")
PLACES = ("pre", "post", "sandwich", "parallel", "parallel2")
LARGEST = 10**9  # a size above this is a typing error, not a model


def _need(ok, message):
    if not ok:
        raise ValueError(message)


def _whole(owner, **sizes):
    """Every size is a positive integer (a bool or a float is not)."""
    for name, value in sizes.items():
        good = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST
        _need(good, f"{owner}.{name} = {value!r}: expected a whole number from 1 to {LARGEST:,}")


@dataclass(frozen=True)
class Scaling:
    """How a published model stretches RoPE beyond its training length. `kind` is one of SCALINGS.

    "proportional" (Gemma 4's partial rotation over the whole head) is counted and refused: no table is made of it.
    factor            linear, dynamic, yarn, llama3: the stretch; longrope: max_len / original_max_len
    original_max_len  tokens seen in training before the stretch (all kinds but linear)
    max_len           tokens the stretched model declares
    attention_factor  the FINAL multiplier of cos and sin (yarn, longrope); None = the kind's own formula
    mscale, mscale_all_dim   DeepSeek's yarn: their ratio multiplies cos and sin (see MLA.scale for the softmax)
    """

    kind: str
    factor: float = 1.0
    original_max_len: int | None = None
    max_len: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()

    def __post_init__(self):
        _need(self.kind in SCALINGS, f"Scaling.kind = {self.kind!r}: expected one of {', '.join(SCALINGS)}")
        _need(self.factor > 0, f"Scaling.factor = {self.factor!r}: expected a positive number")
        _need(
            self.kind != "llama3" or 0 < self.low_freq_factor <= self.high_freq_factor,
            f"Scaling.low_freq_factor = {self.low_freq_factor!r} and high_freq_factor = {self.high_freq_factor!r}: llama3 blends"
            " from the low number of turns to the high one (1 and 4 in Llama 3.1)",
        )
        if self.kind not in ("linear", "proportional"):
            _whole("Scaling", original_max_len=self.original_max_len)


@dataclass(frozen=True)
class Rope:
    """Rotary positions of one layer: base, scaling (None = none), rotary width (None = the whole head), pair layout."""

    base: float = 10000.0
    scaling: Scaling | None = None
    rotary_dim: int | None = None
    layout: str = (
        "half"  # "half": i with i + dh/2 (Hugging Face); "adjacent": 2i with 2i+1 (the paper, Meta, DeepSeek)
    )

    def __post_init__(self):
        _need(
            1 < self.base < float("inf"),
            f"Rope.base = {self.base!r}: expected a finite number above 1 (10000 originally)",
        )
        _need(self.layout in LAYOUTS, f"Rope.layout = {self.layout!r}: expected one of {', '.join(LAYOUTS)}")
        if self.rotary_dim is not None:
            _whole("Rope", rotary_dim=self.rotary_dim)
            _need(
                self.rotary_dim % 2 == 0,
                f"Rope.rotary_dim = {self.rotary_dim}: expected an even width (pairs)",
            )


@dataclass(frozen=True)
class GQA:
    """MHA (n_kv_heads = n_heads), GQA, MQA (n_kv_heads = 1). rope None = a NoPE layer; window None = the whole past.

    qk_norm: False, True or "head" (each head's q and k, one gain of head_dim), "width" (before the head split, OLMo 2).
    bias: q, k and v; out_bias: wo. scale None = head_dim ** -0.5.
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    rope: Rope | None = field(default_factory=Rope)
    window: int | None = None
    qk_norm: bool | str = False
    bias: bool = False
    out_bias: bool = False
    scale: float | None = None

    def __post_init__(self):
        _whole("GQA", n_heads=self.n_heads, n_kv_heads=self.n_kv_heads, head_dim=self.head_dim)
        _need(
            self.n_heads % self.n_kv_heads == 0,
            f"GQA: n_heads = {self.n_heads} is not divisible by n_kv_heads = {self.n_kv_heads}: each KV head serves the same"
            " number of query heads",
        )
        if self.v_head_dim is not None:
            _whole("GQA", v_head_dim=self.v_head_dim)
        if self.window is not None:
            _whole("GQA", window=self.window)
        _need(
            self.qk_norm in (False, True, "head", "width"),
            f"GQA.qk_norm = {self.qk_norm!r}: expected False, True, 'head' or 'width'",
        )
        if self.rope is not None:
            width = self.rope.rotary_dim or self.head_dim
            _need(width % 2 == 0, f"GQA: rotary width {width} is odd: RoPE turns pairs of dimensions")
            _need(
                width <= self.head_dim, f"GQA: rotary_dim = {width} is wider than head_dim = {self.head_dim}"
            )

    @property
    def d_v(self):
        return self.v_head_dim or self.head_dim

    @property
    def group_size(self):
        return self.n_heads // self.n_kv_heads


@dataclass(frozen=True)
class MLA:
    """Multi-head latent attention. Cached per token: kv_lora_rank + qk_rope_head_dim numbers.

    q_lora_rank None = queries straight from x. qk_nope_head_dim 0 and latent_norm False: what a GQA layer is as MLA, all of its key
    in the rope part and a latent that is its values. scale None = (qk_nope_head_dim + qk_rope_head_dim) ** -0.5; a DeepSeek
    model with yarn multiplies it by (0.1 mscale_all_dim ln factor + 1) ** 2: `families` computes it.
    """

    n_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    rope: Rope = field(default_factory=lambda: Rope(layout="adjacent"))
    scale: float | None = None
    bias: bool = False
    latent_norm: bool = True

    def __post_init__(self):
        _whole(
            "MLA", n_heads=self.n_heads, kv_lora_rank=self.kv_lora_rank, qk_rope_head_dim=self.qk_rope_head_dim,
            v_head_dim=self.v_head_dim,
        )  # fmt: skip
        if self.qk_nope_head_dim != 0 or isinstance(self.qk_nope_head_dim, bool):
            _whole("MLA", qk_nope_head_dim=self.qk_nope_head_dim)
        if self.q_lora_rank is not None:
            _whole("MLA", q_lora_rank=self.q_lora_rank)
        _need(
            self.qk_rope_head_dim % 2 == 0,
            f"MLA.qk_rope_head_dim = {self.qk_rope_head_dim} is odd: RoPE turns pairs of dimensions",
        )


@dataclass(frozen=True)
class Dense:
    """A feed-forward layer of width d_ff: gated = three matrices (SwiGLU for "silu"), else two."""

    d_ff: int
    gated: bool = True
    activation: str = "silu"
    bias: bool = False

    def __post_init__(self):
        _whole("Dense", d_ff=self.d_ff)
        _need(
            self.activation in ACTIVATIONS,
            f"Dense.activation = {self.activation!r}: expected one of {', '.join(ACTIVATIONS)}",
        )


@dataclass(frozen=True)
class MoE:
    """Experts of width d_ff, `active` of them a token, and a shared dense part of total width shared_d_ff. Counted, never run.

    d_in: what the experts read and write, where it is not d (a latent space).
    """

    experts: int
    active: int
    d_ff: int
    shared_d_ff: int = 0
    gated: bool = True
    d_in: int | None = None

    def __post_init__(self):
        _whole("MoE", experts=self.experts, active=self.active, d_ff=self.d_ff)
        _need(self.active <= self.experts, f"MoE: {self.active} active of {self.experts} experts")


@dataclass(frozen=True)
class Counted:
    """A part that real models add and the block does not run: arithmetic adds it up.

    parameters in the whole model or layer; active: those a token uses (None = all); kv_elements per token;
    state_elements per sequence whatever its length.
    """

    name: str
    parameters: int = 0
    active: int | None = None
    kv_elements: int = 0
    state_elements: int = 0


@dataclass(frozen=True)
class Norm:
    """kind "rms" or "layer"; unit_offset: the gain is 1 + weight (Gemma); gain_last: multiply in fp32, cast last
    (Gemma, OLMo 2, gpt-oss; a LayerNorm always does).

    gain False = no weight at all; bias: LayerNorm's shift.
    """

    kind: str = "rms"
    eps: float = 1e-6
    unit_offset: bool = False
    gain_last: bool = False
    gain: bool = True
    bias: bool = False

    def __post_init__(self):
        _need(self.kind in ("rms", "layer"), f"Norm.kind = {self.kind!r}: expected 'rms' or 'layer'")
        _need(0 <= self.eps < 1, f"Norm.eps = {self.eps!r}: expected a small number >= 0 (1e-5 or 1e-6)")


@dataclass(frozen=True)
class Layer:
    """One block. attention None = no attention here; ffn None = no feed-forward. `norms` says where they stand:

    "pre"       x + attn(norm(x)), x + ffn(norm(x))          two norms (Llama)
    "post"      x + norm(attn(x)), x + norm(ffn(x))          two norms (OLMo 2)
    "sandwich"  x + norm(attn(norm(x))), the same for ffn    four norms (Gemma 2, 3)
    "parallel"  x + attn(norm(x)) + ffn(norm(x))             one norm (Cohere, Falcon-7B); "parallel2": two (NeoX)
    A layer without attention or without ffn has only the norms of the part that is there.
    refused: features of this layer that the block does not run, by name.
    """

    attention: GQA | MLA | None
    ffn: Dense | MoE | None
    norms: str = "pre"
    counted: tuple[Counted, ...] = ()
    refused: tuple[str, ...] = ()

    def __post_init__(self):
        _need(self.norms in PLACES, f"Layer.norms = {self.norms!r}: expected one of {', '.join(PLACES)}")

    @property
    def n_norms(self):
        parts = (self.attention is not None) + (self.ffn is not None)
        if self.norms.startswith("parallel"):
            return 2 if self.norms == "parallel2" else 1
        return parts * (2 if self.norms == "sandwich" else 1)


@dataclass(frozen=True)
class ModelConfig:
    """A decoder: V token embeddings of width d, layers, a final norm, a head (tied: the embedding itself).

    labels: None = a language head of V rows; 0 = no head (a base model); n = a score row per label. With labels nothing is tied.

    embed_scale multiplies the embedding (Gemma: sqrt(d)). counted: parts outside the layers (learned positions ..).
    unsupported: features that the model refuses to run, by name. warnings: what a reader of the file should know;
    doubts: those of them after which a number could be another than the file's author meant (a class default is what its class runs too).
    stated_heads: (h, n_kv) as a config.json states them where the layers say otherwise; only the naive cache formula uses it.
    fields: where the numbers come from, (our name, the file's key, its value, "file" or "class") each; no part of the model.
    """

    V: int
    d: int
    layers: tuple[Layer, ...]
    norm: Norm = Norm()
    tied: bool = False
    max_len: int = 1024
    embed_scale: float = 1.0
    counted: tuple[Counted, ...] = ()
    unsupported: tuple[str, ...] = ()
    model_type: str = ""
    warnings: tuple[str, ...] = ()
    stated_heads: tuple[int, int] | None = None
    labels: int | None = None
    fields: tuple = field(default=(), compare=False, repr=False)
    doubts: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self):
        _whole("ModelConfig", V=self.V, d=self.d, max_len=self.max_len)
        _need(
            self.labels is None or not self.tied,
            f"ModelConfig.labels = {self.labels!r}, and tied: only a language head can be the embedding",
        )
        _need(len(self.layers) > 0, "ModelConfig.layers is empty: expected at least one Layer")
        _need(
            len(self.layers) <= 10_000,
            f"ModelConfig.layers has {len(self.layers)} entries: expected at most 10,000",
        )

    @property
    def n_layers(self):
        return len(self.layers)

    @property
    def head_rows(self):
        """Rows of the head's matrix, tied or not: V, or the labels of a classifier, or 0."""
        return self.V if self.labels is None else self.labels

    def replace(self, **changes):
        """The same configuration with some fields changed (a new, validated object)."""
        return replace(self, **changes)


def llama_style(V, d=256, n_layers=4, n_heads=8, n_kv_heads=2, d_ff=688, max_len=1024, rope_base=10000.0, tie=False,
                head_dim=None, qk_norm=True, eps=1e-6, window=None, bias=False, scaling=None):  # fmt: skip
    """The seed block as a ModelConfig: n_layers equal pre-norm layers of GQA with RoPE and SwiGLU."""
    _whole("llama_style", d=d, n_layers=n_layers, n_heads=n_heads, d_ff=d_ff)
    if head_dim is None:
        _need(d % n_heads == 0, f"d = {d} is not divisible by n_heads = {n_heads}: give head_dim")
        head_dim = d // n_heads
    rope = Rope(float(rope_base), scaling)
    attention = GQA(n_heads, n_kv_heads, head_dim, rope=rope, window=window, qk_norm=qk_norm, bias=bias)
    layer = Layer(attention, Dense(d_ff))
    return ModelConfig(V, d, (layer,) * n_layers, Norm(eps=eps), tie, max_len)
