# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "A language model uses a matrix of $V \\times d$ numbers twice: token to vector, vector to logits. Must it be two matrices? After this chapter you can"}
# # 08 · Tied embeddings
#
# A language model uses a matrix of $V \times d$ numbers twice: to turn a token into a vector, and to turn the last vector into one logit per token. Must it be two
# matrices?
#
# After it you will be able to
# - **tie** the two, and show that it is one tensor and not two equal ones;
# - **say** where its gradient comes from;
# - **compute** what tying saves, and in which models that is much;
# - **save and load** a tied model without losing its tie, or inventing a head;
# - **count** its parameters once.
#
# You need no earlier chapter. About 35 minutes.

# %% slideshow={"slide_type": "skip"}
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
from book.corpus import load_corpus
from book.exercises import check, mine, progress
from book.explore.ch08_tied import draw_real, real_models, tied_explorer
from book.figures import style
from book.predict import check_close, check_equal, predict
from lib import LlamaStyleLM, parameters, read_config, rms_norm, rope_cache

style()

# %% [markdown] slideshow={"slide_type": "slide", "title": "One tensor, two jobs", "show": "formula", "text": "Qwen3-0.6B has $V = 151{,}936$, $d = 1024$ and `tie_word_embeddings: true`. **Write down** how many parameters tying saves it, and which share of the model that one matrix is."}
# ## 1 · One tensor, two jobs
#
# Job one: the embedding $E \in \mathbb{R}^{V \times d}$ has a row for each token, and the model starts with row number `id`. Job two: the head
# $W_U \in \mathbb{R}^{d \times V}$ compares the last vector with one direction per token. Tying (Press & Wolf 2016, [arXiv 1608.05859](https://arxiv.org/abs/1608.05859)) sets $W_U = E^\top$:
#
# $$x = E[\mathrm{id}], \qquad \mathrm{logits} = E\, x_{\mathrm{last}} .$$
#
# Qwen3-0.6B has $V = 151{,}936$, $d = 1024$ and `tie_word_embeddings: true`. **Write down** how many parameters tying saves it, and which share of the
# model that one matrix is.

# %% slideshow={"slide_type": "-"}
my_guess = None  # {"saved": .., "share": ..}
qwen = read_config(configs.path("qwen3-0.6b"))
p = parameters(qwen)
saved = qwen.V * qwen.d
predict(my_guess, {"saved": saved, "share": round(saved / p.total, 3)})
print(f"tied {p.total:,}   untied {p.total + saved:,}   the matrix {saved / 1e6:.1f}M")
check_equal("V d", saved, 155_582_464)
check_equal("tied", p.total, 596_049_920)
check_equal("untied", p.total + saved, 751_632_384)

# %% [markdown] slideshow={"slide_type": "notes"}
# A quarter of the model. In code, tying is one assignment: `head.weight = emb.weight`. After it there are two names and one storage.

# %% slideshow={"slide_type": "subslide", "title": "Two names, one storage", "show": "printed", "text": "`head.weight = emb.weight`: one assignment. `parameters()` yields a shared tensor once; a `state_dict` lists both names."}
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

# %% [markdown] slideshow={"slide_type": "skip"}
# `parameters()` yields a shared tensor once; a `state_dict` lists both names.
#
# The model around its blocks, in four lines, against `lib`, with random weights and gains.

# %% slideshow={"slide_type": "subslide", "title": "The model around its blocks, in four lines"}
cos, sin = rope_cache(5, 24 // 6)


def tied_logits(model, ids):
    x = model.emb.weight[ids]  # job one
    for block in model.blocks:
        x = block(x, cos, sin)
    return rms_norm(x, model.norm.weight, model.config.norm.eps) @ model.emb.weight.T  # job two, [B, T, V]


gen = torch.Generator().manual_seed(1)
for w in tied.parameters():
    w.data = torch.randn(w.shape, generator=gen) / 3
ids = torch.tensor([[3, 14, 15, 9, 2], [6, 5, 35, 8, 9]])
check_close("by hand = lib", tied_logits(tied, ids), tied(ids))

# %% [markdown] slideshow={"slide_type": "skip"}
# ### Two jobs, two gradients
#
# Both jobs send a gradient back. What does the one matrix receive? We give an untied model equal matrices and compare. **Predict** first: of the 50 rows, how
# many get a gradient from job one, and how many from job two? (The batch above has ten tokens, one of them twice.)

# %% slideshow={"slide_type": "slide", "title": "Two jobs, two gradients: they add up", "text": "Ten tokens in the batch, one of them twice; 50 rows. **Predict** how many rows get a gradient from job one, and how many from job two."}
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

# %% [markdown] slideshow={"slide_type": "slide", "title": "How hard does each job push?", "show": "", "text": "As an input a row learns only when its token occurs; as an output every row gets a gradient, since the softmax pushes all wrong tokens down.\n\n**Predict** for SmolLM2 and a short text which job sends the larger gradient, and which share of job two's squared gradient falls on the few rows of the tokens to be predicted."}
# They add up. As an input, a row learns only when its token occurs in the batch; as an output every row gets a gradient, since the softmax pushes all the wrong tokens down. But how hard? **Predict** for SmolLM2 and a short text
# which job sends the larger gradient, and which share of the squared gradient of job two falls on the few rows of the tokens to be predicted.

# %% slideshow={"slide_type": "-"}
my_guess = {"larger": None, "share": None}  # "input" or "output", and a number between 0 and 1
path = lib.find_model()
tokenizer, smol = lib.load_tokenizer(path), lib.load_model(path, torch.float32).requires_grad_(False)
story = "The old lighthouse keeper climbed the stairs every evening. When the light was burning, he wrote one line in his book."
text = torch.tensor([tokenizer.encode(story).ids])
start, head = smol.emb(text).requires_grad_(), smol.head.weight.detach().requires_grad_()
x, table = start, rope_cache(text.shape[1], 64, 100_000.0)
for block in smol.blocks:
    x = block(x, *table)
torch.nn.functional.cross_entropy((smol.norm(x) @ head.T)[0, :-1], text[0, 1:]).backward()
once, at = text[0].unique(return_inverse=True)
job_one = torch.zeros(len(once), 576).index_add(0, at, start.grad[0])  # a row's uses add up
sizes_two = head.grad.norm(dim=1)
on = (sizes_two[text[0, 1:].unique()].square().sum() / sizes_two.square().sum()).item()
larger = "input" if job_one.norm() > head.grad.norm() else "output"
predict(my_guess, {"larger": larger, "share": round(on, 2)})
print(f"job one {job_one.norm():.1f}, job two {head.grad.norm():.1f}; job two by rows: median {sizes_two.median():.0e}, largest {sizes_two.max():.1f}")
del smol, head, job_one, x

# %% [markdown] slideshow={"slide_type": "notes"}
# Job two is the stronger here, and almost all of it goes to the tokens to be predicted, as it would before any training: a softmax over 49,152 tokens pushes each wrong one very little. That every row learns at every step is true, and worth little. Press & Wolf found that a tied matrix
# evolves more like the untied head than like the untied embedding.
#
# ### Equal is not tied
#
# Copying the numbers gives the right logits, today. **Predict**: after one step of SGD, are the copies still equal?

# %% slideshow={"slide_type": "slide", "title": "Equal is not tied", "text": "Copying the numbers gives the right logits, today. **Predict:** after one step of SGD, are the copies still equal?"}
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

# %% [markdown] slideshow={"slide_type": "slide", "title": "When it matters: V d grows with the width, the layers with its square", "show": "", "ask": "Q18", "text": "Who should tie: a model of 0.6B or of 70B? **Predict** the embedding's share of Llama-3-70B, whose vocabulary is that of Llama-3.2-1B: 128,256."}
# ## 2 · When it matters
#
# $V d$ grows with the width, the layers grow with its square. So the share of the embedding falls as models grow. **Predict** it for Llama-3-70B, whose
# vocabulary is that of Llama-3.2-1B: 128,256.

# %% slideshow={"slide_type": "fragment", "show": "picture"}
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
    print(f"{row['name']:<15} {row['total']:>15,}  V d {row['share']:6.1%}  tie_word_embeddings: {flag!s:<7} read as {row['tied']}")

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: twelve bars. Violet is the embedding, blue a second matrix for the head: a fifth to a third of the small models at the top, slivers in the 70B and in DeepSeek-V3.*
#
# Small models tie and large ones mostly do not: the saving is small there, and a pipeline that keeps the first and the last layer on different devices would have to exchange the matrix's gradient at every step.
# **Command-R has 35 billion parameters and ties**, and so does Gemma-3-27B. Qwen3 ties up to the 4B, Llama 3.2 the 1B and the 3B. Look at the field.
#
# Where the field is *absent*, the default of the model's class counts, and it is `true` for GPT-2, Gemma and Command-R. A reader that takes absent for false
# asks those files for a head that they do not hold.
#
# ### Move the sliders
#
# A Llama-shaped model from five numbers; it opens at Llama-3.2-1B. Left the parameters, untied and tied. Right the share against the width. Try the presets SmolLM2 and Llama-3-70B.

# %% slideshow={"slide_type": "slide", "title": "Try SmolLM2 and Llama-3-70B: what share is one matrix?"}
tied_explorer

# %% [markdown] slideshow={"slide_type": "skip"}
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

# %% [markdown] slideshow={"slide_type": "slide", "title": "What it does not save: FLOPs, and bytes read per step", "show": "", "text": "- a lookup copies a row; the head multiplies the whole matrix, whoever owns it\n- tying saves parameters, with their gradients and optimizer state\n- what it forbids: with no block in between, \"San\" before \"Francisco\" scores like \"Francisco\" before \"San\"\n- exercise `08.flops`: what does the head of Llama-3.2-1B cost per token?"}
# A lookup copies a row and multiplies nothing; the head multiplies the whole matrix, whoever owns it. Accounting that lets a tied head go free, or counts the
# lookup as a product, is wrong by this much ([trl#6709](https://github.com/huggingface/trl/issues/6709), [torchtitan#3225](https://github.com/pytorch/torchtitan/issues/3225)). The bytes a decode step reads do not change either: both models read one $V \times d$ matrix
# for the head, and one row for the lookup.

# %% slideshow={"slide_type": "subslide", "title": "Tied or not: the same FLOPs, the same bytes per step", "show": "code printed", "text": "Llama-3.2-1B, as it is and untied:"}
llama = read_config(configs.path("llama-3.2-1b"))
loose = replace(llama, tied=False)
one, two = lib.flops_per_token(llama), lib.flops_per_token(loose)
print(f"head: {2 * llama.V * llama.d:,} FLOPs of {one:,}, {2 * llama.V * llama.d / one:.0%}")
check_equal("FLOPs per token, tied and untied", one, two)
check_equal("weight bytes per step", lib.weight_bytes_per_step(llama), lib.weight_bytes_per_step(loose))
total = parameters(llama).total
print(f"parameters: {total:,} and {parameters(loose).total:,}; the tied file {2 * total:,} bytes in bf16, {4 * total:,} in fp32")

# %% [markdown] slideshow={"slide_type": "skip"}
# So tying saves parameters, with their gradients and optimizer state, and no FLOPs. Does it cost quality? Press & Wolf, and Inan et al. 2016 ([arXiv 1611.01462](https://arxiv.org/abs/1611.01462)), report **better** perplexity tied, in models of their time; [chapter 09](09_full_block.ipynb) measures it on small
# runs. What tying forbids is easy to see: with no block and no norm in between, the score of $b$ after $a$ is $E_b \cdot E_a$, the same as of $a$ after $b$. "San" is followed by "Francisco" and not the other way round: the blocks must
# supply all the difference. (And $E$ must have both jobs' sizes: Gemma multiplies the input rows by $\sqrt{d}$.)
#
# ## 4 · Saving and loading
#
# A file must hold the matrix once, and whoever reads it must know. `safetensors` refuses a `state_dict` in which two names share a storage; `save_model` drops one
# of them. **Predict** which names stay.

# %% slideshow={"slide_type": "slide", "title": "Saving: a file must hold the matrix once", "text": "A `state_dict` has two names for the matrix. `safetensors` refuses two names for one storage; `save_model` drops one of them. **Predict** which names stay."}
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

# %% [markdown] slideshow={"slide_type": "slide", "title": "Loading: only the config tells a tied model from a damaged one", "show": "", "text": "A checkpoint without `lm_head.weight` is either a tied model or a damaged one.\n\n- a loader that ignores what is missing leaves the head at random: no error, gibberish\n- a reader that takes an *absent* field for false asks GPT-2, Gemma and Command-R for a head that they do not hold: the default of the class counts"}
# Reading is where it goes wrong. A checkpoint without `lm_head.weight` is either a tied model or a damaged one. **Only the config tells.** A loader that ignores
# what is missing leaves the head at random: no error, gibberish ([sglang#1508](https://github.com/sgl-project/sglang/issues/1508), [vllm#53020](https://github.com/vllm-project/vllm/issues/53020), [transformers#43429](https://github.com/huggingface/transformers/issues/43429)).
#
# `lib.load_model` reads Hugging Face folders. We write our model as one, under the names that Llama files use, once with each config.

# %% slideshow={"slide_type": "subslide", "title": "Our model under the names that Llama files use", "show": "code"}
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

# %% slideshow={"slide_type": "subslide", "title": "Tied it loads as one; untied it is refused"}
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

# %% [markdown] slideshow={"slide_type": "skip"}
# **Exercise 2. A tie that survives loading.** `load_state_dict(assign=True)`, which a model built on the `meta` device needs, puts a new tensor under each name and cuts the tie ([pytorch#188346](https://github.com/pytorch/pytorch/issues/188346)). `model` has `emb.weight` and `head.weight`; `state` has the first and maybe the second. Load with
# `assign=True`; afterwards there is one parameter, with the embedding's numbers, where `tie` is true, and two where not. Return `list(model.parameters())`, or `None` where `state` lacks a matrix.

# %% tags=["exercise"]
def my_load(model, state, tie):
    ...

# %% tags=["check"]
check("08.load", my_load)

# %% tags=["solution"] jupyter={"source_hidden": true}
def load_solution(model, state, tie):
    if not tie and "head.weight" not in state:
        return None
    state = {**state, "head.weight": state["emb.weight" if tie else "head.weight"]}
    model.load_state_dict(state, assign=True)  # a new parameter under each name
    if tie:
        model.head.weight = model.emb.weight
    return list(model.parameters())


check("08.load", load_solution)

# %% slideshow={"slide_type": "slide", "title": "A tie that survives loading", "show": "printed", "text": "`load_state_dict(assign=True)`, which a model built on the `meta` device needs, puts a new tensor under each name and cuts the tie. (Exercise `08.load` mends it.)"}
load_tied = mine("08.load")  # yours once it has passed
with torch.device("meta"):
    empty, plain_load = LlamaStyleLM(**sizes, tie=True), LlamaStyleLM(**sizes, tie=True)
plain_load.load_state_dict({name: w.clone() for name, w in tied.state_dict().items()}, assign=True)
check_equal("plain assign=True: still one parameter", plain_load.head.weight is plain_load.emb.weight, False)
_ = load_tied(empty, {name: w.detach().clone() for name, w in tied.named_parameters()}, True)
check_equal("ours: still one parameter", empty.head.weight is empty.emb.weight, True)
check_close("and the same logits", empty(ids), tied(ids))

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 5 · SmolLM2's one matrix
#
# We read the first 8,192 rows of the embedding, a sixth of the vocabulary, and the final norm's gain.

# %% slideshow={"slide_type": "skip"}
with safe_open(path / "model.safetensors", "pt") as file:
    stored = list(file.keys())
    E = file.get_slice("model.embed_tokens.weight")[:8192].double()
    gain = file.get_tensor("model.norm.weight").double()
read = torch.tensor(tokenizer.encode(load_corpus().decode()[:400_000]).ids)  # 92,000 tokens
seen = read.bincount(minlength=49152)[:8192]
check_equal("tensors named lm_head in its file", sum("lm_head" in name for name in stored), 0)
total = parameters(read_config(configs.path("smollm2-135m"))).total
print(f"V d = {49152 * 576:,} of {total:,}: {49152 * 576 / total:.1%}")
check_equal("SmolLM2's parameters, the matrix once", total, 134_515_008)

# %% [markdown] slideshow={"slide_type": "skip"}
# Rows that point the same way are tokens that the model treats alike. We take a word's row and list the rows with the highest cosine; below, the same for a random matrix whose rows have the same lengths.

# %% slideshow={"slide_type": "slide", "title": "SmolLM2's one matrix: neighbours of a row", "show": "printed", "text": "Highest cosine to a word's row; below, the same for a random matrix whose rows have the same lengths."}
def token(j):
    return tokenizer.id_to_token(j).replace("Ġ", " ")  # how this tokenizer writes a space


lengths = E.norm(dim=1)
random = torch.randn(E.shape, generator=torch.Generator().manual_seed(0), dtype=E.dtype)
random *= (lengths / random.norm(dim=1))[:, None]
neighbours = {}
for word in (" Germany", " seven", " blue", " mother", " May"):
    i = tokenizer.encode(word, add_special_tokens=False).ids[0]
    cosine = E @ E[i] / (lengths * lengths[i])
    near = cosine.topk(6).indices[1:].tolist()  # without the word itself
    neighbours[word] = [token(j) for j in near]
    print(f"{word:<8}:{','.join(neighbours[word])}")
six = random @ random[i] / (lengths * lengths[i])
print(f"random  :{','.join(token(j) for j in six.topk(6).indices[1:].tolist())}")
check_equal("the four next to seven", neighbours[" seven"][:4], [" eight", " six", " nine", " five"])

# %% [markdown] slideshow={"slide_type": "skip"}
# Now feed a row straight to the head, with no block in between: $\mathrm{logits} = E\,\mathrm{norm}(E[\mathrm{id}])$. **Predict**: of the 8,192 rows, how many then say **their own** token, in SmolLM2 and in the random matrix?

# %% slideshow={"slide_type": "subslide", "title": "Feed a row straight to the head: does it say itself?", "text": "$\\mathrm{logits} = E\\,\\mathrm{norm}(E[\\mathrm{id}])$, no block in between. **Predict:** of the 8,192 rows, how many say **their own** token, in SmolLM2 and in the random matrix?"}
my_guess = {"SmolLM2": None, "random": None}


def said(M):
    return torch.cat([(rms_norm(rows, gain, eps=1e-5) @ M.T).argmax(1) for rows in M.split(1024)])


own, says, chance = torch.arange(8192), said(E), said(random)
truth = {"SmolLM2": int((says == own).sum()), "random": int((chance == own).sum())}
predict(my_guess, {name: round(n, -2) for name, n in truth.items()}, "rows, to the nearest 100")
print(f"say themselves: SmolLM2 {truth['SmolLM2'] / 8192:.0%}, random {truth['random'] / 8192:.0%}")
winners = says[says != own].bincount(minlength=8192).topk(5)
for n, j in zip(*(part.tolist() for part in winners), strict=True):
    print(f"{token(j):<12} said by {n:>5,} others; {lengths[j] / lengths.median():.1f} times the median length; in the corpus: {seen[j]}")
drawn = torch.randperm(8192, generator=torch.Generator().manual_seed(0))[:100]
for words, rows_at in (("the 100 longest", lengths.topk(100).indices), ("100 drawn", drawn)):
    print(f"{words}: {int((seen[rows_at] == 0).sum())} never occur in 92,000 tokens of this book's corpus")

# %% [markdown] slideshow={"slide_type": "notes"}
# That a row says itself is geometry: in the random matrix all do. What training added is the opposite. Half of the rows do **not**: a few very long rows win, of pieces such as " strugg" that a text hardly ever contains,
# since " struggle" has a token of its own. Land & Bartolo 2024 ([arXiv 2405.05417](https://arxiv.org/abs/2405.05417)) find under-trained tokens from the matrix alone.
#
# ## 6 · Bugs that shipped
#
# **Counted twice.** Summing a `state_dict` counts both names. The llama2.c models were reported so ([karpathy/llama2.c#378](https://github.com/karpathy/llama2.c/issues/378)), and GPT-2 small appears with a head on
# top ([nanoGPT#209](https://github.com/karpathy/nanoGPT/issues/209)); a from-scratch Llama-3.2-1B that *copied* its embedding really had the extra matrix ([rasbt/LLMs-from-scratch#822](https://github.com/rasbt/LLMs-from-scratch/issues/822)). The last line is from [Abdullah-Taha9/ui-training#29](https://github.com/Abdullah-Taha9/ui-training/issues/29).

# %% slideshow={"slide_type": "slide", "title": "Bugs that shipped: counted twice", "show": "printed", "text": "Summing a `state_dict` counts both names."}
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

# %% [markdown] slideshow={"slide_type": "skip"}
# ## Exercises
#
# **3. The share.** Llama-3.2-3B: $V = 128{,}256$, $d = 3072$, tied, 3,212,749,824 unique parameters. Which share of them is the embedding?

# %% tags=["exercise"]
my_share = None

# %% tags=["check"]
check("08.share", my_share)

# %% tags=["solution"] jupyter={"source_hidden": true}
def share_solution():
    return 128_256 * 3072 / 3_212_749_824


check("08.share", share_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **4. Count.** The unique parameters of any torch module, frozen or not, tied or not, on any device (`meta` too), without buffers.

# %% tags=["exercise"]
def my_count(model):
    ...

# %% tags=["check"]
check("08.count", my_count)

# %% tags=["solution"] jupyter={"source_hidden": true}
def count_solution(model):
    return sum(w.numel() for w in model.parameters())


check("08.count", count_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **5. Find the head.** `state` maps names to tensors, `config` is a config.json. Return the head's weight, or `None` where the file is damaged. Some files hold an old `lm_head.weight` that the config does not use; some configs have their flag in
# `text_config`.

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

# %% [markdown] slideshow={"slide_type": "skip"}
# **6. Find the fault.** One step of SGD on a model without blocks, meant to be tied. It runs, and the two returned matrices drift apart. Mend it.

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

# %% [markdown] slideshow={"slide_type": "slide", "title": "Once, everywhere: one tensor, one count, one file entry", "show": "", "text": "- tying is one assignment, and one tensor; equal is not tied\n- the share $V d$ falls from a third of small models to slivers of the largest: look at the field\n- no FLOPs saved; parameters, gradients and optimizer state are\n- a tied matrix counts once; summing a `state_dict` counts it twice\n- to take home: `08.flops`, `08.load`"}
# ## What you can do now
#
# You **tied** two matrices; **said** where the gradient comes from; **computed** shares from 31 % down to 0.1 %;
# **saved and loaded** a tied model so that the tie survived; **counted** once.
#
# **Sources.** The papers and issues linked above. The config.json files of the table in section 2. Qwen3-4B: citsjtu2020/LLM-Prof, `Model_Config.md`; Llama-3.2-3B:
# mlc-ai/mlc-llm, `model_preset.py`; Gemma-3-27B: NVIDIA/TensorRT-LLM, `test_modeling_gemma3vl`.

# %% slideshow={"slide_type": "skip"}
progress("08")
