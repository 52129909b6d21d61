"""A function written wrongly in every usual way, one slip at a time: what a checker compares a wrong answer with.

Only what is written in the function's own file is rewritten, helpers that it calls included; what lib does stays as it is.
"""

import ast
import contextlib
import inspect
import textwrap
import types

from book.exercises.slips import OPERATORS, axis_literals, statements


def reached(function):
    """Functions of the same file that a call goes through, by name; itself too, unless it is a lambda."""
    space, found, waiting = function.__globals__, {}, [function]
    if space.get(function.__name__) is function:
        found[function.__name__] = function
    while waiting:
        f = waiting.pop()
        codes = [f.__code__]
        while codes:
            code = codes.pop()
            codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
            for name in code.co_names:
                other = space.get(name)
                if (
                    isinstance(other, types.FunctionType)
                    and other.__module__ == f.__module__
                    and name not in found
                ):
                    found[name] = other
                    waiting.append(other)
    return found


def rewritten(tree):
    """One Slip after the other; the tree has it while the loop's body runs, and is whole again afterwards."""
    axes, names = axis_literals(tree), [arg.arg for arg in tree.body[0].args.args]
    where = {}  # id of a node -> (parent, field, index in a list or None)
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, list):
                where |= {id(node): (parent, field, i) for i, node in enumerate(value)}
            elif isinstance(value, ast.AST):
                where[id(value)] = parent, field, None
    nodes = [
        node
        for node in ast.walk(tree)
        if id(node) in where and not isinstance(node, ast.operator | ast.cmpop)
    ]
    for operator in OPERATORS:
        for node in nodes:
            for slip, new in operator(node, axes, names) or ():
                parent, field, i = where[id(node)]
                if i is None:
                    setattr(parent, field, new)
                    yield slip
                    setattr(parent, field, node)
                else:
                    getattr(parent, field)[i] = new
                    yield slip
                    getattr(parent, field)[i] = node
    for slip, node, new in list(statements(tree)):
        parent, field, i = where[id(node)]
        body = getattr(parent, field)
        setattr(parent, field, body[:i] + new + body[i + 1 :])
        yield slip
        setattr(parent, field, body)


def variants(function):
    """(Slip, the function with that slip), one after the other. Nothing where there is no source, as of a closure."""
    if not isinstance(function, types.FunctionType) or function.__closure__:
        return
    trees = {}
    for name, each in reached(function).items():
        with contextlib.suppress(OSError, TypeError, SyntaxError):
            tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
            if isinstance(tree.body[0], ast.FunctionDef) and not tree.body[0].decorator_list:
                trees[name] = tree
    whole = {name: compile(tree, f"<{name}>", "exec") for name, tree in trees.items()}
    for name, tree in trees.items():
        for slip in rewritten(tree):
            space = dict(function.__globals__)
            try:
                changed = compile(ast.fix_missing_locations(tree), f"<{name}>", "exec")
                for other, code in whole.items():
                    exec(changed if other == name else code, space)  # noqa: S102  the book's own source
            except (SyntaxError, TypeError, ValueError):
                continue  # no Python
            own = function.__globals__.get(function.__name__) is function and function.__name__ in trees
            yield (
                slip,
                space[function.__name__]
                if own
                else types.FunctionType(function.__code__, space, function.__name__, function.__defaults__),
            )
