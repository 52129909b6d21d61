"""python -m book.classroom.links: the link that opens a chapter on your hub (nbgitpuller) or on Binder.

The first was tried with nbgitpuller 1.3 on this folder's hub and a local repository; Binder could not be reached.
"""

import argparse
import sys
from urllib.parse import quote, urlencode, urlsplit

from book import paths


def _web_address(url, name):
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{name} {url!r}: expected a web address such as https://hub.example.edu")
    return url.rstrip("/")


def nbgitpuller(hub, repository, branch, path):
    """Fetches the repository into the student's folder, or merges what is new, then opens `path` of it in JupyterLab.

    nbgitpuller merges with `-Xours`: where both sides changed the same lines, the student's stay.
    """
    repository = _web_address(repository, "repository")
    folder = repository.rsplit("/", 1)[-1].removesuffix(".git")
    query = {
        "repo": repository,
        "branch": branch,
        "targetpath": folder,
        "urlpath": f"lab/tree/{folder}/{path}",
    }
    return (
        f"{_web_address(hub, 'hub')}/hub/user-redirect/git-pull?{urlencode(query, quote_via=quote, safe='')}"
    )


def binder(repository, branch, path):
    """A session on mybinder.org from a public GitHub repository; nothing in it outlives the session."""
    parts = urlsplit(_web_address(repository, "repository"))
    names = parts.path.removesuffix(".git").strip("/").split("/")
    if parts.hostname != "github.com" or len(names) != 2:
        raise ValueError(
            f"repository {repository!r}: expected https://github.com/OWNER/NAME for a Binder link"
        )
    ref = quote(branch, safe="")
    return (
        f"https://mybinder.org/v2/gh/{names[0]}/{names[1]}/{ref}?urlpath={quote(f'lab/tree/{path}', safe='')}"
    )


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m book.classroom.links", description=__doc__.splitlines()[0]
    )
    parser.add_argument("repository", help="such as https://github.com/OWNER/NAME")
    parser.add_argument("--chapter", default="00")
    parser.add_argument("--folder", default="notebooks", help="where the chapters lie in that repository")
    parser.add_argument("--branch", default="main")
    parser.add_argument("--hub", help="such as https://hub.example.edu; without it, a Binder link")
    arguments = parser.parse_args(argv)
    try:
        name = paths.chapters(arguments.chapter, ".ipynb")[0].name
        path = f"{arguments.folder.strip('/')}/{name}".lstrip("/")
        if arguments.hub:
            print(nbgitpuller(arguments.hub, arguments.repository, arguments.branch, path))
        else:
            print(binder(arguments.repository, arguments.branch, path))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
