"""The slips that people make in a line of code, as rewritings of one node of its tree. `book.exercises.rewrite` runs them.

Each operator takes a node, the literals that say an axis, and the names of the arguments, and yields (Slip, the node in its place).
"""

import ast
from dataclasses import dataclass

CAME = "This is what comes out "
WORDS = {  # kind: (text, the question that undoes it); {} is filled in by the operator
    "axis": ("when `{}` works along another axis.", "Write the shape beside that line: which axis holds what you mean?"),
    "swapped": ("when two of the things given to {} change places.", "Which of the two comes first, and does the order matter there?"),
    "sides": ("when the two sides of a {} change places.", "What is taken from what, or divided by what? Try it with 6 and 2."),
    "pair": ("when the two parts of a pair change places.", "Which of the two comes first?"),
    "forgotten term": ("when a term of a sum is forgotten.", "Count the terms of the formula and those of your code: which one is missing?"),
    "forgotten factor": ("when a factor is forgotten.", "Name every factor of the formula: which one has no counterpart in your code?"),
    "forgotten division": ("when a division is forgotten.", "What is the unit of your answer before and after that division?"),
    "forgotten step": ("without the step `{}`.", "Which step of the text has no line?"),
    "forgotten line": ("when a step is left out.", "Which step of the text has no line?"),
    "not added": ("when something is replaced that should be added up.", "What is kept of the rounds before?"),
    "sign": ("with a sign the other way round.", "Take the smallest example that you can do in your head: which sign has each term?"),
    "operation": ("with a {} where a {} belongs.", "Read the formula aloud, sign by sign: is each one what your code does?"),
    "off by one": ("when a count or an index is off by one.", "Try one or two entries: where does it begin, and is the last one in?"),
    "rounds down": ("when a division rounds down.", "What are 7 / 2 and 7 // 2?"),
    "does not round": ("when a division that should round down does not.", "What are 7 / 2 and 7 // 2?"),
    "dtype": ("without the cast `{}`: it is computed in another dtype.", "In which dtype does each line compute, and which comes out?"),
    "transposed": ("when a matrix lies the other way round there.", "What are its rows and what are its columns?"),
    "function": ("with `{}` where another function belongs.", "What does it give for the numbers 1 and 4, and what should come out?"),
    "power": ("with a power or a root forgotten, or turned over.", "Is it x, x squared, its root, or one over it? Try x = 4."),
    "comparison": ("when a comparison points the other way.", "Take the smallest example: for which entries is the condition true?"),
    "condition": ("when a condition is forgotten or turned over, or `and` and `or` are exchanged.", "Say it in words: must all hold, or one?"),
    "case": ("when two cases are not told apart.", "Which cases does the text name, and what does your code do in each?"),
    "name": ("with `{}` where another of the arguments belongs.", "Where does it occur in your code, and where in the formula?"),
    "part": ("when another part is taken: the other half, or the last entries for the first.", "Which indices does your slice take of a row of 6?"),
    "flag": ("with a True where False belongs, or the reverse.", "Which flags do you pass?"),
}  # fmt: skip


@dataclass(frozen=True)
class Slip:
    kind: str
    text: str
    question: str


def slip(kind, *words):
    text, question = WORDS[kind]
    return Slip(kind, CAME + text.format(*words), question)


AXES = {
    "mean", "sum", "softmax", "log_softmax", "cat", "stack", "transpose", "swapaxes", "split", "chunk", "repeat_interleave", "argmax",
    "argmin", "amax", "amin", "max", "min", "cumsum", "cumprod", "norm", "flip", "roll", "unflatten", "flatten", "var", "std", "unsqueeze",
    "squeeze", "prod", "logsumexp", "all", "any", "narrow", "gather", "size", "diff", "unbind", "topk", "sort", "concatenate",
}  # fmt: skip
OTHER = {  # what people write in the place of what
    "sqrt": ("rsqrt",), "rsqrt": ("sqrt",), "cos": ("sin",), "sin": ("cos",), "mean": ("sum",), "sum": ("mean",), "exp": ("log",),
    "log": ("exp", "log2"), "log2": ("log",), "max": ("min", "sum"), "min": ("max",), "amax": ("amin", "sum"), "amin": ("amax",),
    "silu": ("gelu", "sigmoid", "relu"), "sigmoid": ("tanh",), "gelu": ("silu",), "any": ("all",), "all": ("any",), "ones": ("zeros",),
    "zeros": ("ones",), "floor": ("ceil", "round"), "ceil": ("floor", "round"), "round": ("floor", "ceil"), "cat": ("stack",),
    "stack": ("cat",), "repeat_interleave": ("repeat",), "tril": ("triu",), "triu": ("tril",), "argmax": ("argmin",), "softmax": ("sigmoid",),
}  # fmt: skip
CASTS = {"float", "double", "half", "bfloat16", "long", "int", "to", "type_as"}
TURNS = {"transpose", "swapaxes", "permute", "t"}
KEPT = {
    "range",
    "len",
    "tuple",
    "list",
    "dict",
    "set",
    "zip",
    "enumerate",
    "arange",
    "getattr",
    "isinstance",
}  # never left out
BACKWARDS = {
    ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
STRICT = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
SIGN = {
    ast.Add: "sum", ast.Sub: "difference", ast.Mult: "product", ast.Div: "quotient", ast.FloorDiv: "quotient",
    ast.MatMult: "matrix product", ast.Pow: "power",
}  # fmt: skip


def name_of(call):
    f = call.func
    return f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""


def number(node):
    """The value of an int literal, a negative one included; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def is_module(node):
    return isinstance(node, ast.Name) and node.id in ("torch", "F", "np", "math", "nn")


def constant(value):
    return ast.parse(repr(value), mode="eval").body


def axis_literals(tree):
    """{id of an int literal that says an axis: of which function}: `dim=`, `axis=`, and positional ones."""
    found = {}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and name_of(call) in AXES:
            given = [k.value for k in call.keywords if k.arg in ("dim", "axis", "dim0", "dim1")]
            own = isinstance(call.func, ast.Attribute) and not is_module(call.func.value)
            given += call.args if own else call.args[1:]
            found |= {id(node): name_of(call) for node in given if number(node) is not None}
    return found


def axis(node, axes, names):
    if id(node) in axes:
        for value in (-1, -2, 0, 1, 2, -3):
            if value != number(node):
                yield slip("axis", axes[id(node)]), constant(value)


def function(node, axes, names):
    if isinstance(node, ast.Call):
        for other in OTHER.get(name_of(node), ()):
            own = isinstance(node.func, ast.Attribute)
            f = ast.Attribute(node.func.value, other, ast.Load()) if own else ast.Name(other, ast.Load())
            yield slip("function", other), ast.Call(f, node.args, node.keywords)


def power(node, axes, names):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        yield slip("power"), node.left
        yield slip("power"), ast.BinOp(node.left, node.op, ast.UnaryOp(ast.USub(), node.right))
        for op in (ast.Mult(), ast.Div()):
            yield slip("power"), ast.BinOp(node.left, node.op, ast.BinOp(node.right, op, constant(2)))
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and name_of(node) in ("pow", "square")
    ):
        yield slip("power"), node.func.value
        yield slip("power"), ast.Call(ast.Attribute(node.func.value, "abs", ast.Load()), [], [])
    if isinstance(node, ast.Call) and name_of(node) in ("sqrt", "rsqrt", "reciprocal"):
        inside = node.args[0] if node.args else node.func.value
        yield slip("power"), inside
        yield slip("power"), ast.BinOp(constant(1), ast.Div(), inside)


def forgotten(node, axes, names):
    if not isinstance(node, ast.BinOp):
        return
    kinds = {
        ast.Add: "forgotten term", ast.Sub: "forgotten term", ast.Mult: "forgotten factor", ast.Div: "forgotten division",
        ast.FloorDiv: "forgotten division", ast.MatMult: "forgotten factor",
    }  # fmt: skip
    kind = kinds.get(type(node.op))
    if kind:
        yield slip(kind), node.left
        if isinstance(node.op, ast.Add | ast.Mult | ast.MatMult):
            yield slip(kind), node.right


def swapped(node, axes, names):
    if isinstance(node, ast.Call) and not any(id(arg) in axes for arg in node.args):
        for i in range(len(node.args) - 1):
            args = [*node.args[:i], node.args[i + 1], node.args[i], *node.args[i + 2 :]]
            what = name_of(node)  # a helper's name would tell the reader nothing
            yield (
                slip("swapped", "a step" if what[:1] in ("", "_") else f"`{what}`"),
                ast.Call(node.func, args, node.keywords),
            )
    if isinstance(node, ast.BinOp) and isinstance(
        node.op, ast.Sub | ast.Div | ast.MatMult | ast.Pow | ast.FloorDiv
    ):
        yield slip("sides", SIGN[type(node.op)]), ast.BinOp(node.right, node.op, node.left)
    if isinstance(node, ast.Tuple | ast.List) and len(node.elts) == 2 and isinstance(node.ctx, ast.Load):
        yield slip("pair"), type(node)(node.elts[::-1], node.ctx)


def rounded(node, axes, names):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv):
        down = isinstance(node.op, ast.Div)
        op = ast.FloorDiv() if down else ast.Div()
        yield slip("rounds down" if down else "does not round"), ast.BinOp(node.left, op, node.right)


def left_out(node, axes, names):
    """A call left out: what it is called on, or its first argument, goes through unchanged."""
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        yield slip("transposed"), node.value
    if not isinstance(node, ast.Call) or name_of(node) in KEPT:
        return
    own = isinstance(node.func, ast.Attribute) and not is_module(node.func.value)
    inside = node.func.value if own else node.args[0] if node.args else None
    if inside is not None:
        what = name_of(node)
        kind = "dtype" if what in CASTS else "transposed" if what in TURNS else "forgotten step"
        kind = "forgotten line" if what[:1] == "_" else kind
        yield slip(kind, what), inside


def turned(node, axes, names):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        yield slip("transposed"), ast.BinOp(node.left, node.op, ast.Attribute(node.right, "mT", ast.Load()))
        yield slip("transposed"), ast.BinOp(ast.Attribute(node.left, "mT", ast.Load()), node.op, node.right)


def part(node, axes, names):
    if not isinstance(node, ast.Slice):
        return
    if (node.lower is None) != (node.upper is None):
        yield slip("part"), ast.Slice(node.upper, node.lower, node.step)
    if node.step is None and node.upper is not None:
        yield slip("part"), ast.Slice(ast.UnaryOp(ast.USub(), node.upper), None, None)
    if node.step is None and node.lower is not None:
        yield slip("part"), ast.Slice(None, ast.UnaryOp(ast.USub(), node.lower), None)
    if node.step is not None:
        yield (
            slip("part"),
            ast.Slice(constant(0 if node.lower is not None and number(node.lower) else 1), None, node.step),
        )
    yield slip("part"), ast.Slice(None, None, None)


def sign(node, axes, names):
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield (
            slip("sign"),
            ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right),
        )
        yield slip("sign"), ast.BinOp(ast.UnaryOp(ast.USub(), node.left), node.op, node.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and id(node) not in axes:
        yield slip("sign"), node.operand


def off_by_one(node, axes, names):
    if number(node) is not None and id(node) not in axes and abs(number(node)) < 100:
        yield slip("off by one"), constant(number(node) + 1)
        yield slip("off by one"), constant(number(node) - 1)
    for op in (ast.Add(), ast.Sub()):
        if isinstance(node, ast.Call) and name_of(node) in ("range", "arange"):
            for i, arg in enumerate(node.args):
                args = [*node.args[:i], ast.BinOp(arg, op, constant(1)), *node.args[i + 1 :]]
                yield slip("off by one"), ast.Call(node.func, args, node.keywords)
        if isinstance(node, ast.Slice) and node.lower is not None:
            yield slip("off by one"), ast.Slice(ast.BinOp(node.lower, op, constant(1)), node.upper, node.step)
        if isinstance(node, ast.Slice) and node.upper is not None:
            yield slip("off by one"), ast.Slice(node.lower, ast.BinOp(node.upper, op, constant(1)), node.step)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in STRICT:
        yield slip("off by one"), ast.Compare(node.left, [STRICT[type(node.ops[0])]()], node.comparators)


def compared(node, axes, names):
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in BACKWARDS:
        yield slip("comparison"), ast.Compare(node.left, [BACKWARDS[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.BoolOp):
        yield (
            slip("condition"),
            ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values),
        )
        for i in range(len(node.values)):
            rest = node.values[:i] + node.values[i + 1 :]
            yield slip("condition"), rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        other = ast.BitOr() if isinstance(node.op, ast.BitAnd) else ast.BitAnd()
        for new in (ast.BinOp(node.left, other, node.right), node.left, node.right):
            yield slip("condition"), new
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield slip("condition"), node.operand
    if isinstance(node, ast.IfExp):
        for new in (node.body, node.orelse, ast.IfExp(node.test, node.orelse, node.body)):
            yield slip("case"), new


def another_name(node, axes, names):
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
        for other in names:
            if other != node.id:
                yield slip("name", other), ast.Name(other, ast.Load())


def operation(node, axes, names):
    other = {ast.Mult: (ast.Add, ast.Div), ast.Div: (ast.Mult,), ast.Add: (ast.Mult,), ast.Pow: (ast.Mult,)}
    if isinstance(node, ast.BinOp):
        for op in other.get(type(node.op), ()):
            yield slip("operation", SIGN[op], SIGN[type(node.op)]), ast.BinOp(node.left, op(), node.right)


def flag(node, axes, names):
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield slip("flag"), ast.Constant(not node.value)


OPERATORS = (
    axis, function, power, forgotten, swapped, rounded, left_out, turned, part, sign, off_by_one, compared, another_name, operation, flag,
)  # fmt: skip


def statements(tree):
    """(Slip, statement, what is in its place, a list): a step left out, a sum not added up, a branch always or never taken."""
    known = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            names = {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
            if names <= known:
                yield slip("forgotten line"), node, [ast.Pass()]
            known |= names
        if isinstance(node, ast.AugAssign):
            yield slip("forgotten line"), node, [ast.Pass()]
            yield slip("not added"), node, [ast.Assign([node.target], node.value)]
        if isinstance(node, ast.If):
            yield slip("case"), node, node.body
            yield slip("case"), node, node.orelse or [ast.Pass()]
