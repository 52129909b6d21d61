"""Which head a file's `architectures` names: a language head, none, or a classifier with so many labels."""

import re

from .config_file import Fields, show

LANGUAGE = (
    "ForCausalLM",
    "LMHeadModel",
    "ForConditionalGeneration",
    "ChatGLMModel",
)  # the last: the class holds its head
CLASSIFIERS = {  # ending -> has a bias
    "ForSequenceClassification": False,
    "ForTokenClassification": True,
    "ForQuestionAnswering": True,
}
DRAFTS = ("Eagle", "Medusa", "Speculator", "MTP", "Draft")
REWARDS = ("Reward", "ValueHead")


def read_head(form):
    """(labels, bias, note): labels None = a language head of V rows, 0 = none at all, n = a classifier's rows.

    Raises: ValueError for a class whose head is not known here: a draft model, a reward model with code of its own.
    """
    key, names = form.first("architectures")
    if names is None or names == []:
        return None, False, None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f'{key} = {show(names)}: expected a list of class names, ["LlamaForCausalLM"]')
    said = f"{key} = {show(names)}"
    kinds = {_kind(name, said) for name in names}
    if len(kinds) > 1:
        raise ValueError(f"{said}: these classes have different heads; which one is meant?")
    kind = kinds.pop()
    if kind == "language":
        return None, False, None
    if kind == "none":
        return 0, False, f"{said}: a base model, no language head is counted"
    labels = 2 if kind == "ForQuestionAnswering" else _labels(form)
    rows = f"a score row for each of {labels} labels" if labels > 1 else "one score row"
    return labels, CLASSIFIERS[kind], f"{said}: {rows} in place of the language head"


def other_family(form, rows):
    """What to say where `architectures` names a class of another family than model_type does; empty where it does not.

    transformers follows model_type and other engines the class, so one of them builds another block than the author meant.
    """
    names, own = form.first("architectures")[1] or [], _letters(form.fields.get("model_type", ""))
    known = {_letters(row): row for row in rows}
    for name in names:
        ends = (*LANGUAGE, *CLASSIFIERS, "Model")
        meant = _letters(next((name.removesuffix(end) for end in ends if name.endswith(end)), name))
        if meant in known and not own.startswith(meant) and not meant.startswith(own):
            return f'architectures names {name}, a class of {known[meant]}, and model_type is "{form.fields["model_type"]}": read by model_type'
    return ""


def _letters(name):
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _kind(name, said):
    for words, what in (
        (DRAFTS, "a draft model: it reads another model's hidden states"),
        (REWARDS, "a reward model"),
    ):
        if any(word in name for word in words):
            raise ValueError(f"{said}: {what}, and its head is code of its own, which is not read here")
    if name.endswith(LANGUAGE):
        return "language"
    kind = next((ending for ending in CLASSIFIERS if name.endswith(ending)), None)
    if kind is None and not name.endswith("Model"):
        raise ValueError(
            f"{said}: expected a class with a language head (..ForCausalLM, ..LMHeadModel, ..ForConditionalGeneration),"
            f" without one (..Model), or a classifier ({', '.join('..' + ending for ending in CLASSIFIERS)})"
        )
    return kind or "none"


def _labels(form):
    """num_labels, or the entries of id2label; 2 where the file gives neither, as the classes do."""
    given = {}
    for table in (form.fields, form.outer or {}):
        f = Fields(table, "classifier")
        if f.has("id2label"):
            given["id2label"] = len(f.table("id2label"))
        if f.has("num_labels"):
            given["num_labels"] = f.size("num_labels")
    if len(set(given.values())) > 1:
        raise ValueError(
            f"id2label has {given['id2label']} entries and num_labels = {given['num_labels']}: which is meant?"
        )
    count = next(iter(given.values()), 2)
    if not count:
        raise ValueError("id2label is empty: how many labels does the classifier have?")
    return count
