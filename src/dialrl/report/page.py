"""One HTML page out of figures, charts and dialogues: styles, script, library and data inside, nothing from a network.

Small data stands as JSON in the page with every ``<`` escaped; dialogues as gzipped JSON in base64, so that no text of
a model can end a tag. The script writes text as text nodes only, and the page's own policy forbids it any connection.
"""

import base64
import gzip
import html
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dialrl.errors import missing_extra

_ASSETS = Path(__file__).parent / "assets"


def render(title: str, content: Mapping[str, Any], sets: Iterable[Iterable[Mapping[str, Any]]]) -> str:
    """The page. ``content`` is what the script reads first; ``sets`` the dialogues of each file, one blob each."""
    blobs = "".join(
        f'<script type="application/gzip" class="dialogues">{packed(list(dialogues))}</script>\n' for dialogues in sets
    )
    parts = {
        "TITLE": html.escape(title),
        "STYLE": _asset("page.css"),
        "CONTENT": json_for_html(content),
        "DIALOGUES": blobs,
        "LIBRARY": plotting_library(),
        "SCRIPT": "\n".join(_asset(name) for name in ("page.js", "dialogue.js", "browser.js", "start.js")),
    }
    template = _asset("page.html").split("@@")
    return "".join(parts[piece] if index % 2 else piece for index, piece in enumerate(template))


def json_for_html(content: Any) -> str:
    """JSON that can stand inside a script tag: no ``<``, ``>``, ``&`` nor line separators in it.

    Example: ``"</script>"`` becomes ``"\\\\u003c/script\\\\u003e"``, which JSON reads back as it was.
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def packed(content: Any) -> str:
    """JSON, gzipped (the same bytes every time), in base64."""
    raw = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(raw, compresslevel=6, mtime=0)).decode()


@cache
def plotting_library() -> str:
    """Vega, Vega-Lite and vega-embed as one script. Raises MissingExtraError without the extra ``report``."""
    try:
        import vl_convert
    except ImportError:
        raise missing_extra("report", "vl-convert-python") from None
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
