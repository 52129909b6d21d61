"""Exercise 08.head; written by hand, without reading its checker."""

import torch


def solution(state, config):
    if config.get("text_config", config)["tie_word_embeddings"]:
        return state["model.embed_tokens.weight"]
    return state.get("lm_head.weight")


def draw(rng):
    vocab, d = rng.randint(5, 8), rng.randint(3, 4)
    state = {"model.embed_tokens.weight": torch.randn(vocab, d), "model.norm.weight": torch.randn(d)}
    if rng.random() < 0.6:
        state["lm_head.weight"] = torch.randn(vocab, d)
    flag = {"tie_word_embeddings": rng.random() < 0.5, "vocab_size": vocab}
    return state, {"text_config": flag, "model_type": "x"} if rng.random() < 0.4 else flag


def _tied(config):
    return config.get("text_config", config)["tie_word_embeddings"]


def file_decides(state, config):
    """the head where the file has one, whatever the config says"""
    return state.get("lm_head.weight", state["model.embed_tokens.weight"])


def flag_inverted(state, config):
    """the flag the other way round"""
    return state.get("lm_head.weight") if _tied(config) else state["model.embed_tokens.weight"]


def text_config_ignored(state, config):
    """the flag only at the top, absent is False"""
    if config.get("tie_word_embeddings", False):
        return state["model.embed_tokens.weight"]
    return state.get("lm_head.weight")


def text_config_ignored_true(state, config):
    """the flag only at the top, absent is True"""
    if config.get("tie_word_embeddings", True):
        return state["model.embed_tokens.weight"]
    return state.get("lm_head.weight")


def only_text_config(state, config):
    """the flag only in text_config"""
    if config.get("text_config", {}).get("tie_word_embeddings", False):
        return state["model.embed_tokens.weight"]
    return state.get("lm_head.weight")


def no_flag_raises(state, config):
    """config["tie_word_embeddings"] at the top: raises with text_config"""
    if config["tie_word_embeddings"]:
        return state["model.embed_tokens.weight"]
    return state.get("lm_head.weight")


def falls_back(state, config):
    """a damaged file falls back to the embedding"""
    if _tied(config):
        return state["model.embed_tokens.weight"]
    return state.get("lm_head.weight", state["model.embed_tokens.weight"])


def raises_when_damaged(state, config):
    """a damaged file raises KeyError"""
    return state["model.embed_tokens.weight"] if _tied(config) else state["lm_head.weight"]


def stale_is_damage(state, config):
    """an old head in a tied file taken for damage"""
    if _tied(config):
        return None if "lm_head.weight" in state else state["model.embed_tokens.weight"]
    return state.get("lm_head.weight")


def tied_needs_head(state, config):
    """None for a tied file without a head"""
    if "lm_head.weight" not in state:
        return None
    return state["model.embed_tokens.weight"] if _tied(config) else state["lm_head.weight"]


def always_embedding(state, config):
    """always the embedding"""
    return state["model.embed_tokens.weight"]


def always_head(state, config):
    """always the head"""
    return state.get("lm_head.weight")


def stale_preferred(state, config):
    """a tied file's old head, where there is one"""
    if _tied(config):
        return state.get("lm_head.weight", state["model.embed_tokens.weight"])
    return state.get("lm_head.weight")


def transposed(state, config):
    """transposed to [d, vocab]"""
    head = solution(state, config)
    return None if head is None else head.T


def copied(state, config):
    """the name of the tensor instead of the tensor"""
    if _tied(config):
        return "model.embed_tokens.weight"
    return "lm_head.weight" if "lm_head.weight" in state else None


def zeros_when_damaged(state, config):
    """a head of zeros for a damaged file"""
    head = solution(state, config)
    return torch.zeros_like(state["model.embed_tokens.weight"]) if head is None else head


def final_norm_in(state, config):
    """the final norm's gain folded in"""
    head = solution(state, config)
    return None if head is None or "model.norm.weight" not in state else head * state["model.norm.weight"]
