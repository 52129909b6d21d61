"""The site, built here, opened from the disk in a Chromium without a network."""

import re

import pytest
from bs4 import BeautifulSoup
from driver import shows

from book.explore import ALL, player
from book.paths import chapters
from book.publish import site, static

CHAPTERS = chapters(suffix=".ipynb")
EACH = pytest.mark.parametrize("path", CHAPTERS, ids=[p.stem for p in CHAPTERS])
PHONE = {"width": 390, "height": 844}
OUTSIDE = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["'](?:https?:)?//[^"']*""")


@pytest.fixture(scope="session")
def the_site(tmp_path_factory):
    out = tmp_path_factory.mktemp("static") / "site"
    site.build(out)
    return out


@pytest.fixture
def offline(page):
    """`page` without a network; what it asks for beyond the disk is in `page.asked`, and goes nowhere."""
    page.asked = []

    def on_request(route, request):
        if request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            page.asked.append(request.url)
            route.abort()

    page.context.route("**/*", on_request)
    page.context.set_offline(True)
    yield page
    assert page.asked == []
    assert page.problems == []


def explorers_in(path):
    """[(explorer, settings it is shown at)] of the committed chapter."""
    import nbformat

    nb = nbformat.read(path, as_version=4)
    found = [static.explorer_of(o) for c in nb.cells for o in c.get("outputs", [])]
    return [(ALL[name], ALL[name].settings(**at)) for name, at in filter(None, found)]


def check_player(page, figure, explorer, at):
    """The first and last stop of every control by key: each time the live picture, its text and the label."""
    assert figure.get_attribute("data-explorer") == explorer.name
    knobs = {k.name: k for k in explorer.knobs}
    now = dict(at)

    def right():
        picture = figure.locator(".explorer-picture")
        said = figure.locator(".says").inner_text().strip()
        label = picture.get_attribute("aria-label")
        words = explorer.text(**now)
        return (
            shows(page, picture.element_handle(), explorer, now)
            and said.split() == words.split()
            and label.split() == f"{explorer.alt} {words}".split()
        )

    assert right()
    for i, (name, offered) in enumerate(player.stops(explorer, at).items()):
        control = figure.locator("input, select").nth(i)
        for key, stop in (("End", offered[-1]), ("Home", offered[0])):
            control.focus()
            page.keyboard.press(key)
            now[name] = knobs[name].stops[stop]
            assert right(), f"{explorer.name}: {now}"
            if not knobs[name].choice:
                assert control.get_attribute("aria-valuetext") == knobs[name].labels[stop]
    for label, preset in explorer.presets.items():
        figure.get_by_role("button", name=label, exact=True).click()
        now = explorer.settings(**preset)
        assert right(), f"{explorer.name}: {label}"
    figure.get_by_role("button", name="Reset").click()
    now = dict(at)
    assert right()


@EACH
def test_page_moves_without_a_network(path, the_site, offline):
    offline.goto((the_site / f"{path.stem}.html").as_uri())
    figures = offline.locator(".explorer-player")
    wanted = explorers_in(path)
    assert figures.count() == len(wanted)
    for i, (explorer, at) in enumerate(wanted):
        check_player(offline, figures.nth(i), explorer, at)
    assert offline.locator("a[download]").first.get_attribute("href") == f"notebooks/{path.name}"
    assert (the_site / "notebooks" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("width", [390, 768, 900, 1024, 1440])
def test_the_menus_open_at_every_width(width, the_site, offline):
    """The list of chapters and the page's contents: a button opens what the width has no room for, and leads somewhere."""
    offline.set_viewport_size({"width": width, "height": 844})
    for side, least in (("primary", 12), ("secondary", 5)):
        offline.goto((the_site / "03_rope.html").as_uri())
        bar = offline.locator(f".bd-sidebar-{side}")
        button = offline.locator(f".{side}-toggle:visible")
        shown = bar.is_visible()
        if not button.count():
            assert shown, f"{side}: neither a bar nor a button"
            continue
        button.first.click()
        assert bar.is_visible() is not shown
        if shown:  # a wide page does without it, and has it back
            button.first.click()
            assert bar.is_visible()
            continue
        links = bar.locator("a:visible")
        assert links.count() >= least
        offline.keyboard.press("Escape")
        assert not bar.is_visible()
        button.first.click()
        links.nth(4).click()
        assert not bar.is_visible() or offline.url.endswith(".html")


def test_answers_stay_folded_until_asked_for(the_site, offline):
    """A prediction's answer and a solution open on a click that says what it shows; nobody's progress is printed."""
    offline.goto((the_site / "03_rope.html").as_uri())
    answers = offline.locator("details:has(summary:has-text('Show the answer'))")
    assert answers.count() >= 4
    truth = answers.first.locator("pre", has_text="truth:")
    assert not truth.is_visible()
    answers.first.locator("summary").click()
    assert truth.is_visible()
    assert offline.locator("details:has(summary:has-text('Show the solution'))").count() >= 3
    text = offline.locator("article").inner_text()
    assert "exercises done" not in text and "Not attempted yet" not in text


@EACH
def test_page_typesets_and_fits_a_phone(path, the_site, offline):
    offline.set_viewport_size(PHONE)
    offline.goto((the_site / f"{path.stem}.html").as_uri())
    if offline.locator(".math").count():
        offline.wait_for_selector("mjx-container svg")
        assert offline.locator(".math:not(:has(mjx-container))").count() == 0
        assert offline.locator("mjx-merror").count() == 0
    wide, window = offline.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= window, f"the page is {wide} pixels wide on a phone of {window}"


def test_no_page_names_a_script_or_picture_outside(the_site):
    for path in the_site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not OUTSIDE.findall(text), path.name


def test_search_finds_words_of_every_chapter(the_site, offline):
    for path in CHAPTERS:
        word = path.stem.split("_")[-1]
        offline.goto(f"{(the_site / 'search.html').as_uri()}?q={word}")
        # The list grows link by link; the chapter's own must be among them.
        offline.wait_for_selector(f'ul.search li a[href*="{path.stem}"]', timeout=20_000)


@pytest.mark.parametrize("asked", ["11,008", "11008"])
def test_search_finds_a_number_that_a_cell_printed_and_shows_where(asked, the_site, offline):
    offline.goto(f"{(the_site / 'search.html').as_uri()}?q={asked}")
    link = offline.locator("ul.search li a").first
    assert "02_swiglu" in link.get_attribute("href") and "#" in link.get_attribute("href")
    assert offline.locator("ul.search mark").first.inner_text().replace(",", "") == "11008"
    link.click()
    offline.wait_for_url("**/02_swiglu.html#*")


def test_every_link_inside_the_site_leads_to_a_place_that_is_there(the_site):
    pages = {
        p.name: BeautifulSoup(p.read_text(encoding="utf-8"), "html.parser") for p in the_site.glob("*.html")
    }
    places = {name: {tag["id"] for tag in page.find_all(id=True)} for name, page in pages.items()}
    lost = set()
    for name, page in pages.items():
        for link in page.select("article a[href]"):
            target, _, anchor = link["href"].partition("#")
            target = target or name
            if (
                ":" not in target
                and target.endswith(".html")
                and (target not in pages or anchor and anchor not in places[target])
            ):
                lost.add(f"{name}: {link['href']}")
    assert not lost, sorted(lost)[:20]


def test_dark_and_light(the_site, offline):
    offline.goto((the_site / f"{CHAPTERS[0].stem}.html").as_uri())
    brightness = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => +a + +b)"
    seen = {}
    for scheme in ("light", "dark"):
        offline.emulate_media(color_scheme=scheme)
        offline.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
        offline.wait_for_timeout(300)
        seen[scheme] = int(offline.evaluate(brightness))
    assert seen["light"] > 600 and seen["dark"] < 150, seen
    offline.locator(".theme-switch-button:visible").first.click()
    offline.locator("[data-mode=light]:visible").first.click()
    offline.wait_for_timeout(300)
    assert int(offline.evaluate(brightness)) > 600, "the menu at the top overrides the system"
