"""Families with multi-head latent attention. Data, no code."""

from ..family import DEEPSEEK_MOE, ROUTED, Family, defaults

# fmt: off
DEEPSEEK_V3 = Family(
    keys=ROUTED, defaults=defaults(1e4, 4096), attention="mla", bias=("attention_bias", False), moe=DEEPSEEK_MOE,
    layout="rope_interleave", ignored=("n_kv_heads", "head_dim", "mlp_bias"),
)

MLA = {
    "glm4_moe_lite": Family(
        keys=ROUTED, defaults=defaults(1e4, 202752, 1e-5), attention="mla", bias=("attention_bias", False),
        moe=DEEPSEEK_MOE, layout="rope_interleave", ignored=("n_kv_heads", "head_dim"),
    ),
    "deepseek_v2": Family(
        keys=ROUTED, defaults=defaults(1e4, 2048), attention="mla", bias=("attention_bias", False), ffn_bias=("mlp_bias", False),
        moe=DEEPSEEK_MOE, layout="adjacent", ignored=("n_kv_heads", "head_dim"),
    ),
    "deepseek_v3": DEEPSEEK_V3,
    "kimi_k2": DEEPSEEK_V3,
    "deepseek_v32": Family(
        keys=ROUTED, defaults=defaults(1e4, 163840), attention="mla", bias=("attention_bias", False),
        moe=DEEPSEEK_MOE, layout="adjacent", build="deepseek_v32",
        ignored=("n_kv_heads", "head_dim", "mlp_bias"),
    ),
}
