"""The site's pages beside the chapters, all made from what is there: index and glossary, bibliography, reference of lib, the wall sheet."""

import importlib
import inspect
import re
from html import escape

import nbformat

import lib
from book.publish.glossary import QUESTIONS, SYMBOLS, TERMS
from lib.arithmetic import format_bytes

LINK = re.compile(r"\[([^\]\n]+)\]\((https?://[^)\s]+)\)")
NAMED = re.compile(
    r"((?:[A-Z][\w'-]+,? |& |et al\.,? )+\d{4})[^()\[\]]{0,60}\(?$"
)  # "Xiong et al. 2020 (" before a link
ARXIV = re.compile(r"arxiv\.org/abs/(\d{4}\.\d{4,5})")


def prose(paths):
    """[(stem, markdown of the whole chapter)]"""
    for path in paths:
        nb = nbformat.read(path, as_version=4)
        yield path.stem, "\n\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")


# ---- bibliography


def cited(paths):
    """(papers, others): {arXiv number: (who, chapters)} and {address: (words, chapters)}, as the chapters cite them."""
    papers, others = {}, {}
    for stem, text in prose(paths):
        for match in LINK.finditer(text):
            words, address = match[1], match[2]
            number = ARXIV.search(address)
            if number:
                before = NAMED.search(text[max(0, match.start() - 140) : match.start()].replace("\n", " "))
                who, where = papers.get(number[1], ("", []))
                papers[number[1]] = (who or (before[1].strip(" ,") if before else ""), where)
                where += [stem] * (stem not in where)
            else:
                where = others.setdefault(address, (words, []))[1]
                where += [stem] * (stem not in where)
    return papers, others


def chapter_links(stems):
    return ", ".join(f"[{stem[:2]}]({stem}.ipynb)" for stem in stems)


def bibliography(paths):
    papers, others = cited(paths)
    lines = ["# Bibliography", "", "Every source that a chapter cites, and where.", "", "## Papers", ""]
    for number, (who, where) in sorted(papers.items(), key=lambda item: (item[1][0] or "~", item[0])):
        lines.append(
            f"- {who + ': ' if who else ''}[arXiv {number}](https://arxiv.org/abs/{number}), chapter {chapter_links(where)}"
        )
    lines += ["", "## Public reports, code and pages", ""]
    for address, (words, where) in sorted(others.items(), key=lambda item: item[0].lower()):
        lines.append(f"- [{words}]({address}), chapter {chapter_links(where)}")
    return "\n".join(lines) + "\n"


# ---- reference


def public():
    """[(module, [(name, object)])] of lib's public names, in the order of the chapters."""
    for module, names in lib._HOME.items():
        importlib.import_module(f"lib.{module}")
        yield f"lib.{module}", [(name, getattr(lib, name)) for name in names.split()]


def anchor(name):
    return f"{'class' if name[0].isupper() else 'lib'}-{name.lower().replace('_', '-')}"


def signature(thing):
    try:
        return re.sub(r"<[\w. ]+ at 0x[0-9a-f]+>", "..", str(inspect.signature(thing)))
    except (TypeError, ValueError):
        return ""


def reference():
    lines = [
        "# Reference of `lib`",
        "",
        "What `import lib` gives, from its docstrings. Everything loads when it is first used.",
        "",
    ]
    for module, things in public():
        about = (inspect.getdoc(importlib.import_module(module)) or "").partition("\n")[0]
        lines += [f"## `{module}`", "", about, ""]
        for name, thing in things:
            own = inspect.getdoc(thing) or ""
            lines += [
                f"({anchor(name)})=",
                f"### `{name}`",
                "",
                "```python",
                f"{name}{signature(thing)}",
                "```",
                "",
            ]
            lines += ["```text", own, "```", ""] if own else []
    return "\n".join(lines)


def link_names(text, linked):
    """The chapter's first mention of each public name, in code, becomes a link to its entry. `linked` grows."""

    def link(match):
        name = match[1].removeprefix("lib.")
        if name not in lib.__all__ or name in linked:
            return match[0]
        linked.add(name)
        return f"[`{match[1]}`](reference.md#{anchor(name)})"

    return re.sub(r"(?<![\[`\w])`((?:lib\.)?\w+)`(?![\]`])", link, text)


# ---- index


def slug(heading):
    """The anchor that myst gives a heading."""
    text = re.sub(r"[`*_$\\]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def parts(path):
    """[(heading, text of that section, what its cells print included)] of a chapter; the first heading is the chapter's."""
    nb, found = nbformat.read(path, as_version=4), [("", "")]
    for cell in nb.cells:
        if cell.cell_type != "markdown":
            outputs = " ".join(str(output.get("text", "")) for output in cell.get("outputs", []))
            found[-1] = (found[-1][0], f"{found[-1][1]} {cell.source} {outputs}")
            continue
        for piece in re.split(r"(?m)^(?=#{1,3} )", cell.source):
            heading = re.match(r"#{1,3} (.+)", piece)
            if heading:
                found.append((heading[1], ""))
            found[-1] = (found[-1][0], f"{found[-1][1]} {piece}")
    return [part for part in found if part[0]]


def section_of(words, path):
    """(heading, times) of the section in which the words occur most, headings counting five times; None where they do not occur."""
    best = None
    for heading, text in parts(path):
        times = text.lower().count(words.lower()) + 5 * heading.lower().count(words.lower())
        if times and (best is None or times > best[1]):
            best = heading, times
    return best


def index(paths):
    """Markdown of the index. Raises: ValueError for an entry that its chapter does not mention."""
    by_number, lost = {path.stem[:2]: path for path in paths}, []

    def line(term, number, words):
        path = by_number.get(number)
        found = section_of(words, path) if path else None
        if path and not found:
            lost.append(f"{term} ({words!r} in chapter {number})")
        return f"[{number}]({path.name}#{slug(found[0])})" if found else number

    rows = ["# Index", "", "## Terms", ""]
    for term, number, what, words in sorted(TERMS, key=lambda row: row[0].lower()):
        rows.append(f"- **{term}**: {what}. Chapter {line(term, number, words or term)}")
    rows += ["", "## Symbols", ""] + [
        f"- ${s}$: {what}" if "θ" not in s else f"- {s}: {what}" for s, what in SYMBOLS
    ]
    rows += ["", "## Fields of a config.json", ""]
    for field, stems in sorted(fields(paths).items()):
        links = ", ".join(line(field, stem[:2], field) for stem in stems)
        rows.append(f"- `{field}`: {links}")
    rows += ["", "## What people ask", ""]
    rows += [f"- {question} {line(question, number, words)}" for question, number, words in QUESTIONS]
    if lost:
        raise ValueError("the index leads nowhere for: " + "; ".join(lost))
    return "\n".join(rows) + "\n"


def fields(paths):
    """{config field: chapters that name it in code}: what stands in the published files that the book holds."""
    from book import configs

    known = set().union(*(configs.load(name) for name in configs.names()))
    found = {}
    for stem, text in prose(paths):
        for name in set(re.findall(r"`([a-z][a-z0-9_]*)`", text)) & known:
            if "_" in name:
                found.setdefault(name, []).append(stem)
    return found


# ---- the wall sheet

FORMULAS = (
    ("RMSNorm", r"y = g \odot x / \sqrt{\mathrm{mean}(x^2) + \epsilon}"),
    ("SwiGLU", r"W_{down}\,(\mathrm{silu}(W_{gate}\,x) \odot W_{up}\,x)"),
    ("its width", r"d_{ff} \approx \tfrac{8}{3} d,\ \text{rounded up to a multiple}"),
    ("RoPE", r"\theta_i = b^{-2i/d_h},\quad \langle R_n q, R_m k\rangle = q^\top R_{m-n}\, k"),
    ("attention", r"\mathrm{softmax}\!\left(q^\top k / \sqrt{d_h}\right) v,\ \text{head } j \text{ reads KV head } \lfloor j\, n_{kv} / h \rfloor"),
    ("QK-norm", r"\lvert q^\top k\rvert / \sqrt{d_h} \le \sqrt{d_h}\ \text{(gain 1)}"),
    ("MLA", r"c = W_{DKV}\, x,\quad q^\top (W_{UK}\, c) = (W_{UK}^\top q)^\top c"),
    ("the block", r"x \leftarrow x + \mathrm{attention}(\mathrm{norm}(x)),\quad x \leftarrow x + \mathrm{SwiGLU}(\mathrm{norm}(x))"),
    ("cache per token", r"2\, L\, n_{kv}\, d_h\, \text{bytes};\quad \text{MLA: } L\,(d_c + d_R)\,\text{bytes}"),
    ("a decode step", r"\text{time} \ge (\text{weights} + \text{caches}) / \text{bandwidth}"),
)  # fmt: skip
SHOWN = (
    "gpt2",
    "llama-2-7b",
    "llama-3-8b",
    "llama-3-70b",
    "qwen3-0.6b",
    "gemma-3-1b",
    "gpt-oss-20b",
    "deepseek-v3",
)


def sheet():
    """One page for the wall: the formulas, and what eight published files come to, computed by lib."""
    from book import configs

    rows = [
        "# The block on one page",
        "",
        '<div class="sheet">',
        "",
        "| part | formula |",
        "|---|---|",
        *(f"| {escape(name)} | ${formula}$ |" for name, formula in FORMULAS),
        "",
        "| model | parameters | d | layers | heads : KV | d_ff | cache per token, 16 bits | one sequence at 8,192 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in (n for n in SHOWN if n in configs.names()):
        cfg = lib.read_config(configs.path(name))
        a, ffn = cfg.layers[-1].attention, cfg.layers[0].ffn
        kv = getattr(a, "n_kv_heads", None)
        heads = f"{a.n_heads} : {kv}" if kv else f"{a.n_heads}, MLA"
        rows.append(
            f"| {name} | {lib.format_count(lib.parameters(cfg).total)} | {cfg.d:,} | {cfg.n_layers} | {heads} | {ffn.d_ff:,} |"
            f" {format_bytes(lib.kv_bytes_per_token(cfg))} | {format_bytes(lib.sequence_bytes(cfg, 8192))} |"
        )
    rows += [
        "",
        "</div>",
        "",
        "Computed from the published files by `lib`. Press print: the page fits one sheet.",
        "",
    ]
    return "\n".join(rows)
