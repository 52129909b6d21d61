"""The rules that most families share: heads, windows, NoPE layers, experts, what a file leaves out."""

from ..config import GQA, LARGEST, MLA, Dense, MoE
from ..frequencies import yarn_mscale
from .beside import beside_experts, qk_part
from .config_file import Fields, show
from .ropes import read_ropes

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "xielu": "xielu",
}
ORDINALS = {1: "single", 2: "second", 3: "third", 4: "fourth", 5: "fifth", 6: "sixth"}
KINDS = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention", "indexed_attention")


class Reader:
    """One file of one family on its way to a ModelConfig."""

    def __init__(self, raw, model_type, family, notes=(), sizes=(), labels=None):
        self.family, self.labels = family, labels
        self.f = Fields(raw, model_type, family.keys, dict(sizes) | family.defaults)
        self.d, self.max_len = self.f.size("d"), self.f.size("max_len")
        self.stretch = 1.0  # dynamic scaling goes beyond max_len, which is its training length
        self.refused = list(family.always)
        self.counted = []
        self._extras = None
        self.beside = ()  # parts of every attention layer that the block does not run
        for note in notes:
            self.f.warn(note)

    def longest(self):
        return min(int(self.max_len * self.stretch), LARGEST)

    def refuse(self, name):
        self.refused.append(name)

    def refuse_unless(self, key, neutral, name):
        """The block does not run `name`, unless the file, or else the class, sets `key` to its neutral value."""
        f = self.f
        default = f.defaults.get(key, neutral)
        if isinstance(neutral, bool):
            value = f.flag(key, default)
        elif neutral is None and f.is_null(key):
            value = None
        else:
            value = f.number(key, default)
        if value == neutral:
            if key not in f.defaults:  # a feature that the file does not mention and the class does not have
                f.defaulted.pop(key, None)
        elif name is None:
            raise ValueError(f"{key} = {show(value)}: it adds parts to the layers that are not read here")
        else:
            self.refuse(name)

    def switch(self, rule):
        """A family's bias or QK-norm rule: a constant, or (key, class default)."""
        return self.f.flag(rule[0], rule[1]) if isinstance(rule, tuple) else rule

    def embed_scale(self):
        if self.family.embed is None:
            return 1.0
        return self.d**0.5 if self.family.embed == "sqrt" else float(self.f.number(self.family.embed))

    def stated_heads(self):
        """What the usual calculator takes for h and n_kv: the file's own fields, read literally."""
        f = self.f
        if not f.has("n_heads"):
            return None  # no attention anywhere
        heads, known = f.size("n_heads"), set(f.used)
        given = [f.size(key, None) for key in ("num_key_value_heads", "num_kv_heads")]
        f.used = known  # a field that only the calculator reads is still one that this reader does not use
        return heads, next((value for value in given if value is not None), heads)

    # ---- heads

    def heads(self):
        """(n_heads, n_kv_heads, head_dim)."""
        f = self.f
        h = f.size("n_heads")
        n_kv = self.kv_heads(h)
        return h, n_kv, self.head_dim(h)

    def kv_heads(self, h):
        f = self.f
        if f.defaults.get("n_kv_heads") == "always n_heads":
            return h  # the class has no such field: one in the file is not used, and is reported
        key, n_kv = f.find("n_kv_heads")
        if n_kv is None and (f.is_null("n_kv_heads") or f.defaults.get("n_kv_heads") == "n_heads"):
            f.defaulted[key] = h
            return h
        n_kv = f.size("n_kv_heads")
        if n_kv > h or h % n_kv:
            raise ValueError(
                f"{key} = {n_kv} and {f.find('n_heads')[0]} = {h}: each KV head serves the same whole number of query heads"
            )
        return n_kv

    def head_dim(self, h):
        f = self.f
        f.touch("head_dim")
        if f.has("head_dim") or "head_dim" in f.defaults:
            return f.size("head_dim", highest=100_000)
        if self.d % h:
            raise ValueError(
                f"{f.find('d')[0]} = {self.d} is not divisible by {f.find('n_heads')[0]} = {h}, and no head_dim is given"
            )
        f.defaulted[f.keys("head_dim")[0]] = self.d // h
        return self.d // h

    # ---- which layer is what

    def kinds(self, n_layers):
        """One of KINDS per layer: what the file says, else the pattern of the class."""
        f, rule = self.f, self.family.windows
        listed = f.list("layer_types", n_layers, (*KINDS, *self.family.kinds))
        if listed:
            listed = [self.family.kinds.get(kind, kind) for kind in listed]
        elif rule == "listed":
            raise ValueError(
                f"layer_types is missing: a {f.model_type} says there which layer is of which kind"
            )
        pattern = self._pattern()
        if rule is None:
            if listed and set(listed) & {"sliding_attention", "chunked_attention"}:
                raise ValueError(
                    f"layer_types names windows, and a {f.model_type} has none: contradictory, or a newer class"
                )
            return listed or ["full_attention"] * n_layers
        window = self.window()
        if listed:
            if "sliding_attention" in listed and window is None:
                raise ValueError(
                    "layer_types names sliding_attention, and sliding_window is null, missing or off"
                )
            return listed
        if window is None:
            return ["full_attention"] * n_layers
        slides = self._slides(pattern, n_layers)
        if isinstance(rule, int):
            f.warn(
                f"layer_types is not in the file: by the class of {f.model_type} windows come first, and every"
                f" {ORDINALS.get(pattern, f'{pattern}th')} layer sees the whole past",
                doubt=False,
            )
        return ["sliding_attention" if slide else "full_attention" for slide in slides]

    def _pattern(self):
        """Every n-th layer sees the whole past; the file's own n if it has one."""
        rule = self.family.windows
        if not isinstance(rule, int):
            return rule
        return self.f.size("sliding_window_pattern", None, highest=10_000) or rule

    def _slides(self, rule, n_layers):
        if rule == "all":
            return [True] * n_layers
        if rule == "late":
            first = self.f.size("max_window_layers", lowest=0)
            return [i >= first for i in range(n_layers)]
        if rule == "early":  # every second of the first max_window_layers
            last = self.f.size("max_window_layers", lowest=0)
            return [i % 2 == 0 and i < last for i in range(n_layers)]
        if rule == "nope":
            return [not turns for turns in self.turns(n_layers)]
        return [(i + 1) % rule != 0 for i in range(n_layers)]

    def window(self):
        """The window's width, or None where it is null, or present and switched off."""
        f = self.f
        if self.family.switched:
            on = f.flag("use_sliding_window", False)
            f.defaulted.pop("use_sliding_window", None)
            if not on:
                return f.size("sliding_window", None, lowest=0) and None
            return None if f.is_null("sliding_window") else f.size("sliding_window")
        width = f.size("sliding_window", None)
        if width is None and f.is_null("sliding_window") and isinstance(self.family.windows, int):
            raise ValueError(
                f"sliding_window is null, and a {f.model_type} has windows by its class: how wide are they?"
            )
        if width is None and not f.is_null("sliding_window") and "sliding_window" in f.defaults:
            width = f.defaulted["sliding_window"] = f.defaults["sliding_window"]
        if (
            width
            and "use_bidirectional_attention" in self.family.refuse
            and f.flag("use_bidirectional_attention", False)
        ):
            f.warn(
                f"use_bidirectional_attention = true: the class halves the window of {width} to {width // 2 + 1}"
            )
            width = width // 2 + 1
        return width

    def turns(self, n_layers):
        """True per layer where RoPE turns q and k. In no_rope_layers 1 means RoPE; an empty list means the class's schedule."""
        f = self.f
        listed = f.list("no_rope_layers", allowed=(0, 1))
        if listed:
            if len(listed) != n_layers:
                raise ValueError(
                    f"no_rope_layers has {len(listed)} entries: expected one per layer, {n_layers}"
                )
            f.touch("no_rope_layer_interval")
            return [entry == 1 for entry in listed]
        every = f.size("no_rope_layer_interval", 4)
        return [(i + 1) % every != 0 for i in range(n_layers)]

    def nope(self, kinds):
        if self.family.nope == "list":
            return [not turns for turns in self.turns(len(kinds))]
        if self.family.nope == "full" or self.family.nope == "hybrid" and self.f.has("sliding_window"):
            return [kind == "full_attention" for kind in kinds]
        return [False] * len(kinds)

    # ---- parts of a layer

    def activation(self):
        if self.family.fixed:
            self.f.touch("activation")
            return ACTIVATIONS[self.family.activation]
        name = self.f.text("activation", self.family.activation)
        if name not in ACTIVATIONS:
            key = self.f.find("activation")[0]
            raise ValueError(f"{key} = {show(name)}: known are {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[name]

    def softmax_scale(self, head_dim):
        if self.family.scale == "query_pre_attn_scalar":
            return self.f.number("query_pre_attn_scalar") ** -0.5
        if self.family.scale == "attention_multiplier":
            return float(self.f.number("attention_multiplier"))
        return None

    def gqa(self, h, n_kv, head_dim, **fields):
        family = self.family
        qk_norm = family.qk_norm
        if isinstance(qk_norm, tuple):
            qk_norm = qk_norm[2] if self.f.flag(qk_norm[0], qk_norm[1]) else False
        part = qk_part(qk_norm, h, n_kv, head_dim)
        if part:
            self.beside, qk_norm = (part,), False
            self.refuse(part.name)
        bias = self.switch(family.bias)
        out = bias if family.out_bias is None else self.switch(family.out_bias)
        scale = self.softmax_scale(head_dim)
        if family.v_dim:
            fields = {"v_head_dim": self.f.size(family.v_dim)} | fields
        return GQA(
            h,
            n_kv,
            head_dim,
            **({"qk_norm": qk_norm, "bias": bias, "out_bias": out, "scale": scale} | fields),
        )

    def mla(self, rope_of):
        f = self.f
        h, d_r = f.size("n_heads"), f.size("qk_rope_head_dim")
        nope = f.size("qk_nope_head_dim")
        rank = f.find("q_lora_rank")[1]
        if rank is not None or not f.is_null("q_lora_rank"):
            rank = f.size("q_lora_rank", lowest=0) or None  # 0, like null: queries straight from x
        stated = f.size("qk_head_dim", None)
        if stated not in (None, nope + d_r):
            raise ValueError(
                f"qk_head_dim = {stated}: expected qk_nope_head_dim + qk_rope_head_dim = {nope + d_r}"
            )
        rope = rope_of(d_r) if self.family.positions == "rope" else None
        scale, scaling = (nope + d_r) ** -0.5, rope and rope.scaling
        if scaling and scaling.kind == "yarn" and scaling.mscale_all_dim:
            scale *= yarn_mscale(scaling.factor, scaling.mscale_all_dim) ** 2
        return MLA(
            h, rank, f.size("kv_lora_rank"), nope, d_r, f.size("v_head_dim"),
            rope=rope, scale=scale, bias=self.switch(self.family.bias),
        )  # fmt: skip

    def dense(self, width=None):
        f, family = self.f, self.family
        if width is None:
            key, width = f.find("d_ff")
            if width is None and f.defaults.get("d_ff") == "4d":
                f.defaulted[key] = width = 4 * self.d
            else:
                width = f.size("d_ff")
        return Dense(width, family.gated, self.activation(), bool(self.switch(family.ffn_bias)))

    def sparse(self):
        """The MoE of one layer."""
        f, rule = self.f, self.family.moe
        width = f.size(rule.width)
        shared = 0
        if rule.shared:
            shared = f.size(rule.shared, lowest=0)
        if rule.shared_count:
            if f.is_null(rule.shared_count):
                f.warn(f"{rule.shared_count} is null: no shared expert")
            else:
                shared = f.size(rule.shared_count, lowest=0) * width
        experts, active = f.size("experts"), f.size("active")
        if active > experts:
            raise ValueError(
                f"{f.find('active')[0]} = {active} of {f.find('experts')[0]} = {experts}: more than there are"
            )
        self.activation()
        return MoE(experts, active, width, shared, self.family.gated)

    def sparse_layers(self, n_layers):
        """True per layer where experts stand."""
        f, rule = self.f, self.family.moe
        if rule is None:
            return [False] * n_layers
        listed = f.list("mlp_layer_types", n_layers, ("dense", "sparse"))
        sparse = [True] * n_layers
        if rule.where == "listed" and not listed:
            raise ValueError(
                f"mlp_layer_types is missing: a {f.model_type} says there which layers have experts"
            )
        if rule.where == "leading":
            first = f.find("first_k_dense_replace")[1]
            if first is not None or not listed:
                first = f.size("first_k_dense_replace", lowest=0)
            every = f.size("moe_layer_freq", 1)
            f.defaulted.pop("moe_layer_freq", None)
            if f.is_null("experts") and not listed:
                f.warn(f"{f.find('experts')[0]} is null: every layer is dense")
                first = n_layers
            if first is not None:
                sparse = [i >= first and i % every == 0 for i in range(n_layers)]
        if rule.where == "range":
            first, last = f.size("moe_layer_start_index", lowest=0), f.size("moe_layer_end_index", lowest=-1)
            every = f.size("moe_layer_interval", 1)
            last = n_layers - 1 if last == -1 else last
            sparse = [(i + 1) % every == 0 and first <= i <= last for i in range(n_layers)]
        if rule.where == "step":
            step = f.size("decoder_sparse_step", 1)
            only = f.list("mlp_only_layers", allowed=range(n_layers)) or []
            sparse = [(i + 1) % step == 0 and i not in only for i in range(n_layers)]
        if listed:
            named = [entry == "sparse" for entry in listed]
            if f.has("first_k_dense_replace") and named != sparse:
                raise ValueError(
                    "mlp_layer_types and first_k_dense_replace disagree about which layers are dense"
                )
            return named
        return sparse

    def no_experts(self):
        """Fields of experts that no layer has are known, and change nothing."""
        rule = self.family.moe
        self.f.touch("experts", "active", *filter(None, (rule.width, rule.shared, rule.shared_count)))

    def extras(self, is_sparse):
        """What stands beside attention and feed-forward in a common layer."""
        if not is_sparse:
            return ()
        if self._extras is None:
            self._extras = beside_experts(self)
        return self._extras

    def rope(self, width):
        """The Rope of a model whose layers all turn alike."""
        return read_ropes(self, width, ["full_attention"])["full_attention"]

    def ropes(self, width, kinds):
        """Kind of layer -> Rope."""
        return read_ropes(self, width, kinds)
