"""Markdown as HTML that is safe to show: for the page and for HTML exports.

The text is hostile. Rendered is Markdown without HTML and pictures, and with links to the web or to a mail
address only. Everything else is escaped, and control characters are shown as escapes.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from hansard.transfer.transcript import visible

_WEB: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)


class _Renderer(RendererHTML):
    """Adds what links need, and leaves out styles, which the policy of the page forbids."""

    def link_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        tokens[idx].attrSet("rel", "noreferrer noopener nofollow")
        tokens[idx].attrSet("target", "_blank")
        return self.renderToken(tokens, idx, options, env)

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        tokens[idx].attrs.pop("style", None)
        return self.renderToken(tokens, idx, options, env)

    th_open = td_open

    def heading_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        # The page's own headings are of the first two levels.
        tokens[idx].tag = f"h{min(int(tokens[idx].tag[1:]) + 2, 6)}"
        return self.renderToken(tokens, idx, options, env)

    heading_close = heading_open


@cache
def renderer(highlight: Callable[[str, str, str], str] | None = None) -> Callable[[str], str]:
    """Return a function from Markdown to HTML. `highlight` returns code in a language as HTML."""
    made = MarkdownIt("commonmark", {"html": False, "highlight": highlight}, renderer_cls=_Renderer)
    made.enable(["table", "strikethrough"]).disable("image")
    made.validateLink = lambda url: bool(_WEB.match(url))  # type: ignore[method-assign]
    return lambda text: str(made.render(visible(text)))
