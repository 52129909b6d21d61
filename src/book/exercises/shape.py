"""The look of a reader's function before it is run: is it still the stub, does it take the right arguments?"""

import dis
import inspect

_NOTHING = {
    "RESUME",
    "NOP",
    "LOAD_CONST",
    "RETURN_VALUE",
    "RETURN_CONST",
    "POP_TOP",
    "COPY_FREE_VARS",
    "CACHE",
}


def untouched(function, given=None):
    """True for a body that is only `...`, `pass`, a docstring or a constant of that kind, or is that of `given`."""
    code = getattr(function, "__code__", None)
    if not inspect.iscode(code):
        return False
    if given is not None and _body(code) == _body(given.__code__):
        return True
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
        return False
    idle = {i.opname for i in dis.get_instructions(code)} <= _NOTHING
    return idle and all(c is None or c is ... or isinstance(c, str) for c in code.co_consts)


def _body(code):
    """What a function does, without its names, docstring and line numbers."""
    consts = [_body(c) if inspect.iscode(c) else repr(c) for c in code.co_consts if not isinstance(c, str)]
    return code.co_code, code.co_names, tuple(consts)


def arity_problem(function, cases, names):
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    for case in cases:
        try:
            signature.bind(*case)
        except TypeError:
            wanted = ", ".join(names[: len(case)])
            return f"the function takes ({', '.join(signature.parameters)}), and is called with ({wanted})."
    return None
