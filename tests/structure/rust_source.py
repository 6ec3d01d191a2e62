"""Rust sources as the checks read them. Standard library only."""

import re

NOISE_RE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(\#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\(?:u\{\w+\}|x\w\w|.)|[^\\'])'""", re.DOTALL
)


def blank(text: str) -> str:
    """As many lines and columns, and nothing on them."""
    return re.sub(r"[^\n]", " ", text)


def without_comments_and_strings(text: str) -> str:
    """The code, with every line where it was; lifetimes are no characters.

    >>> without_comments_and_strings("f('\\"', \\"crate::x\\"); fn g<'a>() {} // crate::y")
    "f(   ,           ); fn g<'a>() {}            "
    """
    return NOISE_RE.sub(lambda noise: blank(noise.group()), text)
