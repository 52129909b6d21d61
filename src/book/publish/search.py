"""The site's search: every section of every page, what cells printed included, as one script that a page opened from a disk can load."""

import json
import re
import shutil
from pathlib import Path

from bs4 import BeautifulSoup

HERE = Path(__file__).parent
DROPPED = "script, style, svg, nav, .headerlink, mjx-container, .run-it"
THEIRS = re.compile(
    r'<script[^>]*src="[^"]*(?:searchtools|searchindex|language_data)\.js[^"]*"[^>]*></script>\s*'
)


def words(node):
    """The text of a section without that of the sections inside it."""
    parts = []
    for child in node.find_all(string=True):
        owner = child.find_parent("section")
        if owner is node:
            parts.append(str(child))
    return re.sub(r"\s+", " ", " ".join(parts)).strip()


def sections(html, page):
    """[(page, anchor, chapter's title, section's title, text)] of a built page."""
    soup = BeautifulSoup(html, "html.parser")
    for junk in soup.select(DROPPED):
        junk.decompose()
    article = soup.select_one("article") or soup
    found, title = [], ""
    for section in article.find_all("section"):
        heading = section.find(["h1", "h2", "h3", "h4"])
        name = re.sub(r"\s+", " ", heading.get_text(" ")).strip() if heading else ""
        title = title or name
        found.append((page, section.get("id", ""), title, name, words(section)))
    return found


def add(site):
    """Write the index beside the pages of a built site, and put the book's search in the place of Sphinx's."""
    site = Path(site)
    pages = [
        path for path in sorted(site.glob("*.html")) if path.name not in ("search.html", "genindex.html")
    ]
    found = [row for path in pages for row in sections(path.read_text(encoding="utf-8"), path.name)]
    static = site / "_static"
    (static / "book-sections.js").write_text(
        "window.BOOK_SECTIONS = " + json.dumps(found, ensure_ascii=False, separators=(",", ":")) + ";\n",
        encoding="utf-8",
    )
    shutil.copy(HERE / "templates" / "search.js", static / "book-search.js")
    page = site / "search.html"
    text = THEIRS.sub("", page.read_text(encoding="utf-8"))
    ours = (
        '<script src="_static/book-sections.js"></script>\n<script src="_static/book-search.js"></script>\n'
    )
    page.write_text(text.replace("</body>", ours + "</body>", 1), encoding="utf-8")
    return found
