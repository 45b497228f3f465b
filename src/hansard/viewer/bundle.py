"""Write sessions as pages without a server: those of `hansard serve`, as files that link to each other."""

import re
import shutil
from bisect import bisect_left, bisect_right
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import hansard
from hansard.state.view import View
from hansard.viewer import pages, web
from hansard.viewer.guard import HEADERS

#: Entries of a page.
_ENTRIES: Final = 200

#: The address of pages that are not written; links to it are removed.
_NOWHERE: Final = "nowhere:"
_LINK: Final = re.compile(rf'<a [^>]*href="{_NOWHERE}"[^>]*>(.*?)</a>', re.DOTALL)

#: What a page may load. The rest of the policy works only in the headers of a server.
_POLICY: Final = HEADERS["Content-Security-Policy"].partition("; connect-src")[0]


class _Written(NamedTuple):
    """The files of a session: the beginning of their names, and the first seq of each page."""

    name: str
    firsts: list[int]

    def file(self, number: int) -> str:
        """Return the file name of a page. The last page is named like the session, which never has a `+`."""
        name = f"{self.name}+" if self.name.lower() == "index" else self.name
        return f"{name}.html" if number == len(self.firsts) - 1 else f"{name}+{number + 1}.html"


class _Addresses(NamedTuple):
    """The addresses of the pages in a directory."""

    site: pages.Site
    directory: Path
    written: dict[str, _Written]

    def url(self, page: str, **values: Any) -> str:
        """Return the file name of a page or a picture; write the picture."""
        found = self.written.get(values.get("id", ""))
        if not page:
            return "index.html"
        if page.startswith("static/"):
            return page
        if found is None or page not in {"session", "picture"}:
            return _NOWHERE
        if page == "picture":
            query = {key: str(value) for key, value in values.items()}
            media, data = pages.picture(self.site, query)
            file = f"{found.name}.{values['seq']}.{values['n']}.{media.partition('/')[2]}"
            Path(self.directory, file).write_bytes(data)
            return quote(file)
        place = values.get("around") or (values.get("after") or 0) + 1
        number = bisect_right(found.firsts, place) - 1
        if values.get("before"):
            number = bisect_left(found.firsts, values["before"]) - 1
        elif "around" not in values and "after" not in values:
            number = len(found.firsts) - 1
        anchor = f"#{values['anchor']}" if values.get("anchor") else ""
        return quote(found.file(max(number, 0))) + anchor


def write(
    store: "hansard.Store",
    names: dict[str, str],
    directory: Path,
    *,
    redacted: bool = True,
    view: View = "history",
) -> dict[str, tuple[str, int]]:
    """Write a list and the pages of sessions into an empty directory; return each newest page, and its bytes.

    `names`: the beginning of the file names of each session, by id.
    """
    written = {id: _Written(name, _firsts(store.session(id), view)) for id, name in names.items()}
    site = pages.Site(store, "", redacted, window=_ENTRIES, static=True)
    templates = web.templates(site, _Addresses(site, directory, written).url)

    def page(file: str, template: str, values: dict[str, Any]) -> int:
        made = templates.get_template(f"{template}.html")
        text = made.render(page=template, policy=_POLICY, **values)
        return Path(directory, file).write_bytes(_LINK.sub(r"\1", text).encode(errors="replace"))

    infos = store.sessions(order="-updated").items
    rows = [pages.row(site, info) for info in infos if info.id in names]
    page("index.html", "sessions", {**pages.sessions(site, {}), "rows": rows, "count": len(rows)})
    done = {}
    for id, found in written.items():
        count = 0
        for number, first in enumerate(found.firsts):
            shown = pages.session(site, {"id": id, "after": str(first - 1), "view": view})
            shown["children"] = [child for child in shown["children"] if child in names]
            count += page(found.file(number), "session", {**shown, "firsts": found.firsts})
        done[id] = (found.file(len(found.firsts) - 1), count)
    with resources.as_file(resources.files("hansard.viewer") / "static") as static:
        shutil.copytree(static, directory / "static")
    return done


def _firsts(session: "hansard.Session", view: View) -> list[int]:
    """Return the first seqs of the pages of a session."""
    firsts = [1]
    while True:
        later = session.transcript(_ENTRIES, after=firsts[-1] - 1, view=view).later
        if later is None:
            return firsts
        firsts.append(later + 1)
