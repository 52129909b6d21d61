"""Sphinx settings of the static book. Copied beside the pages as conf.py; no address outside the site, but for the buttons of BOOK_REPOSITORY."""

import os

REPOSITORY = os.environ.get("BOOK_REPOSITORY", "").rstrip(
    "/"
)  # https://github.com/OWNER/NAME; its buttons are absent until it is set
project = "The Modern Transformer Block"
html_show_copyright = False
html_show_sphinx = False
html_context = {
    "default_mode": "auto"
}  # light or dark as the reader's system says; the button at the top changes it
extensions = ["myst_nb"]
exclude_patterns = ["_build"]

nb_execution_mode = "off"  # the committed notebooks are the executed ones
nb_ipywidgets_js = {}  # no widget manager: the sliders are players of their own
nb_merge_streams = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type"]

mathjax_path = "vendor/tex-svg.js"  # glyphs inside: a page opened from a disk may not load fonts
mathjax3_config = {"options": {"enableMenu": False}, "startup": {"typeset": True}}

html_theme = "sphinx_book_theme"
html_title = "The Modern Transformer Block"
html_static_path = ["_static"]
html_extra_path = ["_extra"]
html_css_files = ["book.css"]
html_js_files = ["menus.js"]
html_copy_source = False  # the real notebooks are offered, not these, whose sliders are pictures
html_show_sourcelink = False
html_show_search_summary = False  # summaries are fetched, which a page opened from a disk may not do
html_last_updated_fmt = None
html_theme_options = {
    "footer_content_items": [],
    "use_download_button": False,
    "use_fullscreen_button": True,
    "show_toc_level": 2,
    "home_page_in_toc": True,
    "search_bar_text": "Search the book",
    "show_navbar_depth": 1,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
if REPOSITORY:
    html_theme_options |= {
        "repository_url": REPOSITORY,
        "repository_branch": os.environ.get("BOOK_BRANCH", "main"),
        "path_to_docs": "notebooks",
        "use_repository_button": True,
        "use_edit_page_button": True,
        "launch_buttons": {
            "binderhub_url": "https://mybinder.org",
            "notebook_interface": "jupyterlab",
            **({"jupyterhub_url": os.environ["BOOK_HUB"]} if os.environ.get("BOOK_HUB") else {}),
        },
    }
