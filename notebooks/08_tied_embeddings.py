# %% [markdown]
# # 08 · Tied embeddings
#
# A language model uses a matrix of $V \times d$ numbers twice: to turn a token into a vector, and to turn the last vector into one logit per token. Must it be two
# matrices?
#
# After it you will be able to
# - **tie** the two, and show that it is one tensor and not two equal ones;
# - **say** where its gradient comes from;
# - **compute** what tying saves, and in which models that is much;
# - **save and load** a tied model without losing or inventing its head;
# - **count** its parameters once.
#
# You need the GPT block of 2019. About 35 minutes.

# %%
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from safetensors import safe_open
from safetensors.torch import save_file, save_model

import lib
from book import configs
from book.exercises import check, progress
from book.explore.ch08_tied import draw_real, real_models, tied_explorer
from book.figures import style
from book.predict import check_close, check_equal, predict
from lib import LlamaStyleLM, parameters, read_config, rms_norm, rope_cache

style()

# %% [markdown]
# ## 1 · One tensor, two jobs
#
# Job one: the embedding $E \in \mathbb{R}^{V \times d}$ has a row for each token, and the model starts with row number `id`. Job two: the head
# $W_U \in \mathbb{R}^{d \times V}$ compares the last vector with one direction per token. Tying (Press & Wolf 2016, [arXiv 1608.05859](https://arxiv.org/abs/1608.05859)) sets $W_U = E^\top$:
#
# $$x = E[\mathrm{id}], \qquad \mathrm{logits} = E\, x_{\mathrm{last}} .$$
#
# Qwen3-0.6B has $V = 151{,}936$, $d = 1024$ and `tie_word_embeddings: true`. **Write down** how many parameters tying saves it, and which share of the
# model that one matrix is.

# %%
my_guess = None  # {"saved": .., "share": ..}
qwen = read_config(configs.path("qwen3-0.6b"))
p = parameters(qwen)
saved = qwen.V * qwen.d
predict(my_guess, {"saved": saved, "share": round(saved / p.total, 3)})
print(f"tied {p.total:,}   untied {p.total + saved:,}   the matrix {saved / 1e6:.1f}M")
check_equal("V d", saved, 155_582_464)
check_equal("tied", p.total, 596_049_920)
check_equal("untied", p.total + saved, 751_632_384)

# %% [markdown]
# A quarter of the model. In code, tying is one assignment: `head.weight = emb.weight`. After it there are two names and one storage.

# %%
torch.manual_seed(0)
sizes = {"V": 50, "d": 24, "n_layers": 2, "n_heads": 6, "n_kv_heads": 2, "d_ff": 40, "max_len": 16}
tied, untied = LlamaStyleLM(**sizes, tie=True), LlamaStyleLM(**sizes)
check_equal("tied: one storage", tied.head.weight.data_ptr() == tied.emb.weight.data_ptr(), True)
check_equal("untied: two", untied.head.weight.data_ptr() == untied.emb.weight.data_ptr(), False)
count = lambda model: sum(w.numel() for w in model.parameters())
print(f"parameters: tied {count(tied):,}, untied {count(untied):,}")
check_equal("the difference is V d", count(untied) - count(tied), 50 * 24)
check_equal("what lib.parameters says", parameters(tied.config).total, count(tied))
names = ["emb.weight", "head.weight"]
check_equal("names in the state_dict", [name in tied.state_dict() for name in names], [True, True])
listed = dict(tied.named_parameters())
check_equal("names in named_parameters", [name in listed for name in names], [True, False])

# %% [markdown]
# `parameters()` yields a shared tensor once; a `state_dict` lists both names. Remember this for section 6.
#
# The model around its blocks, in four lines, against `lib`, with random weights and gains.

# %%
def tied_logits(model, ids):
    x = model.emb.weight[ids]  # job one
    for block in model.blocks:
        x = block(x, cos, sin)
    return rms_norm(x, model.norm.weight, model.config.norm.eps) @ model.emb.weight.T  # job two, [B, T, V]


gen = torch.Generator().manual_seed(1)
for w in tied.parameters():
    w.data = torch.randn(w.shape, generator=gen) / 3
ids = torch.tensor([[3, 14, 15, 9, 2], [6, 5, 35, 8, 9]])
cos, sin = rope_cache(5, 24 // 6)
check_close("by hand = lib", tied_logits(tied, ids), tied(ids))

# %% [markdown]
# ### Two jobs, two gradients
#
# Both jobs send a gradient back. What does the one matrix receive? We give an untied model equal matrices and compare. **Predict** first: of the 50 rows, how
# many get a gradient from job one, and how many from job two? (The batch above has ten tokens, one of them twice.)

# %%
my_guess = None  # {"input": .., "output": ..}
targets = torch.randint(50, (2, 5), generator=torch.Generator().manual_seed(1))
untied.load_state_dict(tied.state_dict())  # equal numbers, two tensors
for model in (tied, untied):
    model.double().zero_grad()
    torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()
job_one, job_two = untied.emb.weight.grad, untied.head.weight.grad
rows = lambda grad: int((grad.abs().sum(1) > 0).sum())
predict(my_guess, {"input": rows(job_one), "output": rows(job_two)}, "rows")
check_equal("different tokens in the batch", ids.unique().numel(), rows(job_one))
check_close("tied gradient = sum of both", tied.emb.weight.grad, job_one + job_two)

# %% [markdown]
# They add up. And they differ in kind: as an input, a row learns only when its token occurs in the batch; as an output, **every** row learns at every step, since
# the softmax pushes all the wrong tokens down. A row whose token is not in the batch is moved by its second job alone.
#
# ### Equal is not tied
#
# Copying the numbers gives the right logits, today. **Predict**: after one step of SGD, are the copies still equal?

# %%
my_guess = None  # True or False
with torch.no_grad():
    for model in (tied, untied):
        for w in model.parameters():
            w -= 0.5 * w.grad
predict(my_guess, bool(torch.equal(untied.emb.weight, untied.head.weight)))
check_equal("tied: still one", bool(torch.equal(tied.emb.weight, tied.head.weight)), True)
gap = (untied.emb.weight - untied.head.weight).abs().max()
check_equal("copied: apart by more than 0.01", bool(gap > 0.01), True)
check_close("tied row = both steps", tied.emb.weight - untied.emb.weight, -0.5 * job_two)

# %% [markdown]
# ## 2 · When it matters
#
# $V d$ grows with the width, the layers grow with its square. So the share of the embedding falls as models grow. **Predict** it for Llama-3-70B, whose
# vocabulary is that of Llama-3.2-1B: 128,256.

# %%
my_guess = None  # per cent
models = real_models()
share = {row["name"]: row["share"] for row in models}
predict(my_guess, round(100 * share["llama-3-70b"], 1), "per cent")
check_close("Llama-3.2-1B", 100 * share["llama-3.2-1b"], 21.3, 0.003)
check_close("Qwen3-0.6B", 100 * share["qwen3-0.6b"], 26.1, 0.003)
check_close("SmolLM2-135M", 100 * share["smollm2-135m"], 21.0, 0.003)
fig, ax = plt.subplots(figsize=(11, 5.4))
draw_real(ax, models)
plt.show()
for row in models:
    flag = configs.load(row["name"]).get("tie_word_embeddings", "absent")
    print(f"{row['name']:<15} {row['total']:>15,}  V d {row['share']:6.1%}  tie_word_embeddings: {flag}")

# %% [markdown]
# *In words: twelve models, one bar each. Violet is the embedding, blue a second matrix for the head. The small models at the top have a fifth to a third in
# the one violet piece; in the 70B and in DeepSeek-V3 both pieces are slivers.*
#
# Small models tie and large ones mostly do not: the saving is small there, and two matrices leave the model freer. That is a tendency, not a law.
# **Command-R has 35 billion parameters and ties**, and so does Gemma-3-27B. Qwen3 ties up to the 4B, Llama 3.2 the 1B and the 3B. Look at the field.
#
# Where the field is *absent*, the default of the model's class counts, and it is `true` for GPT-2, Gemma and Command-R. A reader that takes absent for false
# asks those files for a head that they do not hold.

# %%
for name in ("gpt2", "gemma-3-1b", "command-r-v01"):
    assert "tie_word_embeddings" not in configs.load(name)
    cfg = read_config(configs.path(name))
    gib = 2 * cfg.V * cfg.d / 2**30
    print(f"{name:<14} absent, tied: {cfg.tied}; the matrix is {gib:.2f} GiB in bf16")
check_equal("Command-R's parameters", parameters(cfg).total, 34_980_831_232)
check_equal("and the ones that tying saves it", cfg.V * cfg.d, 2_097_152_000)

# %% [markdown]
# ### Move the sliders
#
# A Llama-shaped model from five numbers; it opens at Llama-3.2-1B. Left the parameters, untied and tied. Right the share against the width. Try SmolLM2
# (49,152; 576; 30; 2.67; 3) and Llama-3-70B (128,256; 8,192; 80; 3.50; 8).

# %%
tied_explorer

# %%
stops = {"Llama-3.2-1B": {}}
stops["SmolLM2-135M"] = {"V": 49152, "d": 576, "L": 30, "ratio": 8 / 3, "group": 3}
stops["Llama-3-70B"] = {"V": 128256, "d": 8192, "L": 80, "ratio": 3.5, "group": 8}
for name, at in stops.items():
    t = tied_explorer.table(**at)
    print(f"{name:<13} tied {t['tied']:>14,}   untied {t['untied']:>14,}   tying saves {t['saved']:.1%}")
got = [tied_explorer.table(**at)["tied" if "70B" not in name else "untied"] for name, at in stops.items()]
check_equal("as their configs say", got, [1_235_814_400, 134_515_008, 70_553_706_496])

# %% [markdown]
# ## 3 · What it does not save
#
# **Exercise 1.** Llama-3.2-1B ($V = 128{,}256$, $d = 2048$) ties. How many FLOPs does its **head** cost for one token, forward?

# %% tags=["exercise"]
my_flops = None

# %% tags=["check"]
check("08.flops", my_flops)

# %% tags=["solution"] jupyter={"source_hidden": true}
def flops_solution():
    return 2 * 128_256 * 2048


check("08.flops", flops_solution)

# %% [markdown]
# A lookup copies a row and multiplies nothing; the head multiplies the whole matrix, whoever owns it. Accounting that lets a tied head go free, or counts the
# lookup as a product, is wrong by this much ([trl#6709](https://github.com/huggingface/trl/issues/6709), [torchtitan#3225](https://github.com/pytorch/torchtitan/issues/3225)). The bytes a decode step reads do not change either: both models read one $V \times d$ matrix
# for the head, and one row for the lookup.

# %%
llama = read_config(configs.path("llama-3.2-1b"))
loose = replace(llama, tied=False)
one, two = lib.flops_per_token(llama), lib.flops_per_token(loose)
print(f"head: {2 * llama.V * llama.d:,} FLOPs of {one:,}, {2 * llama.V * llama.d / one:.0%}")
check_equal("FLOPs a token, tied and untied", one, two)
check_equal("weight bytes a step", lib.weight_bytes_per_step(llama), lib.weight_bytes_per_step(loose))
print(f"parameters: {parameters(llama).total:,} and {parameters(loose).total:,}")

# %% [markdown]
# Tying saves memory, and nothing else. That makes a small model's head look heavy: a fifth of this one's parameters, and of its FLOPs too.
#
# ## 4 · Saving and loading
#
# A file must hold the matrix once, and whoever reads it must know. `safetensors` refuses a `state_dict` in which two names share a storage; `save_model` drops one
# of them. **Predict** which names stay.

# %%
scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
folder = Path(scratch.name)
tied.float()
try:
    save_file(tied.state_dict(), folder / "model.safetensors")
except RuntimeError as error:
    print("refused:", "share memory" in str(error))
save_model(tied, str(folder / "model.safetensors"))
with safe_open(folder / "model.safetensors", "pt") as file:
    stored = set(file.keys())
my_guess = None
predict(my_guess, sorted(stored & {"emb.weight", "head.weight"}))
check_equal("the matrix is stored once", len(stored & {"emb.weight", "head.weight"}), 1)
check_equal("all the rest is there", set(tied.state_dict()) - stored <= {"emb.weight", "head.weight"}, True)

# %% [markdown]
# Reading is where it goes wrong. A checkpoint without `lm_head.weight` is either a tied model or a damaged one. **Only the config tells.** A loader that ignores
# what is missing leaves the head at its random start values: no error, gibberish ([sglang#1508](https://github.com/sgl-project/sglang/issues/1508), [vllm#53020](https://github.com/vllm-project/vllm/issues/53020), [transformers#43429](https://github.com/huggingface/transformers/issues/43429)).
#
# `lib.load_model` reads Hugging Face folders. We write our model as one, under the names that Llama files use, once with each config.

# %%
theirs = {f"attn.w{part}": f"self_attn.{part}_proj" for part in "qkvo"}
theirs |= {f"ffn.w_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
theirs |= {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
theirs |= {"blocks": "layers", "emb": "embed_tokens"}
torch.manual_seed(2)
plain = LlamaStyleLM(**sizes, tie=True, qk_norm=False)


def hf_name(name):
    for ours, other in theirs.items():
        name = name.replace(ours, other)
    return f"model.{name}"


tensors = {hf_name(name): w.detach() for name, w in plain.named_parameters()}
save_file(tensors, folder / "model.safetensors")
config = {"model_type": "llama", "vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 2}
config |= {"num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 40, "hidden_act": "silu"}
config |= {"max_position_embeddings": 16, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
config |= {"head_dim": 4, "attention_bias": False, "mlp_bias": False}

# %%
def load(tie):
    text = json.dumps(config | {"tie_word_embeddings": tie})
    (folder / "config.json").write_text(text)
    return lib.load_model(folder)


again = load(tie=True)
one = again.head.weight.data_ptr() == again.emb.weight.data_ptr()
check_equal("tied: one storage after loading", one, True)
check_close("and the same logits", again(ids), plain(ids))
try:
    load(tie=False)
except ValueError as error:
    print("untied: ValueError,", str(error).partition(": ")[2])

# %% [markdown]
# How large is such a file? Bytes follow from the unique parameters and the dtype. A bf16 checkpoint loaded as fp32 doubles ([transformers#34743](https://github.com/huggingface/transformers/issues/34743)); a head counted
# twice adds another $V d$.

# %%
print(f"{'':<14}{'bf16, bytes':>15}{'fp32, bytes':>15}{'bf16, head twice':>19}")
for name in ("smollm2-135m", "qwen3-0.6b", "llama-3.2-1b"):
    p = parameters(read_config(configs.path(name)))
    print(f"{name:<14}{2 * p.total:>15,}{4 * p.total:>15,}{2 * (p.total + p.embedding):>19,}")
check_equal("Llama-3.2-1B in bf16", 2 * p.total, 2_471_628_800)

# %% [markdown]
# ## 5 · SmolLM2's one matrix
#
# Its config says `tie_word_embeddings: true`. **Predict** how many tensors named `lm_head` its file has. Then we read the first 8,192 rows of the embedding, a
# sixth of the vocabulary, and the final norm's gain, and nothing else.

# %%
my_guess = None
path = lib.find_model()
tokenizer = lib.load_tokenizer(path)
with safe_open(path / "model.safetensors", "pt") as file:
    stored = list(file.keys())
    E = file.get_slice("model.embed_tokens.weight")[:8192]
    gain = file.get_tensor("model.norm.weight")
predict(my_guess, sum("lm_head" in name for name in stored), f"of {len(stored)}")
total = parameters(read_config(configs.path("smollm2-135m"))).total
print(f"V d = {49152 * 576:,} of {total:,}: {49152 * 576 / total:.1%}")
check_equal("SmolLM2's parameters, the matrix once", total, 134_515_008)

# %% [markdown]
# One row, two meanings: where a token starts, and in which direction the last vector must point to predict it. Rows that point the same way are tokens that the
# model treats alike. We take a word's row and list the rows with the highest cosine.

# %%
def token(j):
    return tokenizer.id_to_token(j).replace("Ġ", " ")  # how this tokenizer writes a space


lengths = E.norm(dim=1)
neighbours = {}
for word in (" Germany", " seven", " blue", " mother", " May"):
    i = tokenizer.encode(word, add_special_tokens=False).ids[0]
    cosine = E @ E[i] / (lengths * lengths[i])
    near = cosine.topk(6).indices[1:].tolist()  # without the word itself
    neighbours[word] = [token(j) for j in near]
    print(f"{word:<8}:{','.join(neighbours[word])}")
check_equal("the four next to seven", neighbours[" seven"][:4], [" eight", " six", " nine", " five"])

# %% [markdown]
# Countries, numbers, colours, a family, months: words that can stand in the same places.
#
# Now feed a row straight to the head, with no block in between: $\mathrm{logits} = E\,\mathrm{norm}(E[\mathrm{id}])$. **Predict** which token a tied model
# then says after " seven".

# %%
my_guess = None
says = {}
for word in (" seven", " because", " king", " two", " gold"):
    i = tokenizer.encode(word, add_special_tokens=False).ids[0]
    logits = E @ rms_norm(E[i], gain, eps=1e-5)
    top = logits.topk(3).indices.tolist()
    says[word] = token(top[0])
    print(f"{word:<9}->{','.join(map(token, top))}")
predict(my_guess, says[" seven"])
check_equal("each says itself", list(says) == list(says.values()), True)

# %% [markdown]
# These five say **themselves**: a row has a large product with itself. No text goes "seven seven seven", so the blocks of a tied model must move the vector away
# from where it starts. An untied model has a second matrix for that: this is what its $V d$ more parameters buy.
#
# It does not hold for every word. Products also grow with a row's length, and a few rows of this matrix are more than twice as long as most:

# %%
i = tokenizer.encode(" Paris", add_special_tokens=False).ids[0]
top = (E @ rms_norm(E[i], gain, eps=1e-5)).topk(3).indices.tolist()
print("' Paris' says", [token(j) for j in top])
print(f"their lengths: {[round(lengths[j].item(), 1) for j in top]}; the median row: {lengths.median():.1f}")
check_equal("more than twice the median", bool((lengths[top] > 2 * lengths.median()).all()), True)

# %% [markdown]
# ## 6 · Bugs that shipped
#
# Two stood above: FLOPs that depend on tying, and a head left at its random start. The one that everybody meets is the third.
#
# **Counted twice.** Summing a `state_dict` counts both names. The llama2.c models were reported so ([karpathy/llama2.c#378](https://github.com/karpathy/llama2.c/issues/378)), GPT-2 small appears with a head on
# top ([nanoGPT#209](https://github.com/karpathy/nanoGPT/issues/209), [transformers#14960](https://github.com/huggingface/transformers/issues/14960)), and a from-scratch Llama-3.2-1B that *copied* its embedding really had the extra matrix ([rasbt/LLMs-from-scratch#822](https://github.com/rasbt/LLMs-from-scratch/issues/822)). The last line is from [Abdullah-Taha9/ui-training#29](https://github.com/Abdullah-Taha9/ui-training/issues/29).

# %%
shapes = {"stories15M": (288, 6, 6, 768), "stories42M": (512, 8, 8, 1376), "stories110M": (768, 12, 12, 2048)}
cases = {}
for name, (d, L, h, d_ff) in shapes.items():
    cases[name] = lib.llama_style(32000, d, L, h, h, d_ff, tie=True, qk_norm=False)
cases |= {"GPT-2 small": read_config(configs.path("gpt2")), "Llama-3.2-1B": llama}
print(f"{'':<13}{'right':>15}{'counted twice':>16}")
for name, cfg in cases.items():
    total = parameters(cfg).total
    print(f"{name:<13}{total:>15,}{total + cfg.V * cfg.d:>16,}  {cfg.V * cfg.d / total:+.0%}")
right = [parameters(cfg).total for cfg in cases.values()]
check_equal("right", right, [15_191_712, 41_689_600, 109_529_856, 124_439_808, 1_235_814_400])
once = 4_411_424_256 - 151_936 * 2560
print(f"Qwen3-4B (V = 151,936, d = 2,560): 4,411,424,256 counted twice, right: {once:,}")

# %% [markdown]
# ## Exercises
#
# **2. The share.** Qwen3-0.6B: $V = 151{,}936$, $d = 1024$, tied, 596,049,920 unique parameters. Which share of them is the embedding?

# %% tags=["exercise"]
my_share = None

# %% tags=["check"]
check("08.share", my_share)

# %% tags=["solution"] jupyter={"source_hidden": true}
def share_solution():
    return 151_936 * 1024 / 596_049_920


check("08.share", share_solution)

# %% [markdown]
# **3. Count.** The unique parameters of any torch module, frozen or not, tied or not, without buffers.

# %% tags=["exercise"]
def my_count(model):
    ...

# %% tags=["check"]
check("08.count", my_count)

# %% tags=["solution"] jupyter={"source_hidden": true}
def count_solution(model):
    seen = {w.data_ptr(): w.numel() for w in model.parameters()}
    return sum(seen.values())


check("08.count", count_solution)

# %% [markdown]
# **4. Find the head.** `state` maps names to tensors, `config` is a config.json. Return the head's weight, or `None` where the file is damaged. The config of
# a model that also sees images has its flag one level down, in `text_config`; a reader that asks at the top gets nothing and takes it for false.

# %% tags=["exercise"]
def my_head(state, config):
    ...

# %% tags=["check"]
check("08.head", my_head)

# %% tags=["solution"] jupyter={"source_hidden": true}
def head_solution(state, config):
    if config.get("text_config", config)["tie_word_embeddings"]:
        return state["model.embed_tokens.weight"]
    return state.get("lm_head.weight")


check("08.head", head_solution)

# %% [markdown]
# **5. Find the fault.** One step of SGD on a model without blocks, meant to be tied. It runs, and the two returned matrices drift apart. Mend it.

# %% tags=["exercise"]
def my_step(E, ids, targets, lr):
    emb = E.clone().requires_grad_()
    head = E.clone().requires_grad_()
    loss = (emb[ids] @ head.T).log_softmax(-1)[range(len(ids)), targets].mean().neg()
    loss.backward()
    return emb.detach() - lr * emb.grad, head.detach() - lr * head.grad

# %% tags=["check"]
check("08.step", my_step)

# %% tags=["solution"] jupyter={"source_hidden": true}
def step_solution(E, ids, targets, lr):
    emb = head = E.clone().requires_grad_()
    loss = (emb[ids] @ head.T).log_softmax(-1)[range(len(ids)), targets].mean().neg()
    loss.backward()
    return emb.detach() - lr * emb.grad, head.detach() - lr * head.grad


check("08.step", step_solution)

# %% [markdown]
# ## What you can do now
#
# You **tied** two matrices and saw one storage; **said** where its gradient comes from, two jobs added up; **computed** shares from 31 % down to 0.1 %;
# **saved and loaded** a tied model, and saw a loader refuse an untied one without its head; **counted** once. Proved equal: four lines = `lib`, tied
# gradient = sum of both, explorer = configs.
#
# **In practice.** Read `tie_word_embeddings`, inside `text_config` too; absent means the class's default. Compare a parameter count with and without $V d$ before you
# doubt it. Tying changes memory, not FLOPs.
#
# **Sources.** Press & Wolf 2016 ([arXiv 1608.05859](https://arxiv.org/abs/1608.05859)). The config.json files of the table in section 2. Qwen3-4B: citsjtu2020/LLM-Prof, `Model_Config.md`; Llama-3.2-3B:
# mlc-ai/mlc-llm, `model_preset.py`; Gemma-3-27B: NVIDIA/TensorRT-LLM, `test_modeling_gemma3vl`. The issues named above.

# %%
progress("08")
