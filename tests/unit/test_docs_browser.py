"""The site in a real browser: on a phone and on a desktop, in both colour schemes, with each link and the search."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import functools
import http.server
import re
import shutil
import threading
import urllib.request

import pytest
from test_docs_pages import site  # noqa: F401 - a fixture

pytestmark = pytest.mark.long
OPTIONS = "--headless=new --no-sandbox --disable-gpu --no-first-run --hide-scrollbars".split()
PHONE, DESKTOP = (390, 844), (1280, 800)  # width and height in pixels
SCHEMES = {"light": "default", "dark": "slate"}  # of a browser, and its name in the theme
LOAD_SECONDS = 60.0  # until a page is loaded or a search has results, on a busy machine
MIN_CONTRAST = 4.5  # of text and background: WCAG 2.1, success criterion 1.4.3
LOOK = """
const size = tag => parseFloat(getComputedStyle(tag).fontSize);
const commands = [...document.querySelectorAll("table.Nm td:first-child code")];
const links = [...document.querySelectorAll("article a:not(.headerlink), .md-nav__link--active")];
return {
    width: document.documentElement.scrollWidth,
    scheme: document.body.dataset.mdColorScheme,
    background: getComputedStyle(document.body).backgroundColor,
    broken_commands: commands.filter(name => name.offsetHeight > 2 * size(name)).length,
    link_colours: [...new Set(links.map(link => getComputedStyle(link).color))],
};
"""
TARGETS = "return [...document.querySelectorAll('[href], [src]')].map(tag => tag.href || tag.src)"


class SilentHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site):  # noqa: F811
    """Of a server of the site on the loopback interface."""
    handler = functools.partial(SilentHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def browser():
    """A new profile for each test: the theme keeps the colour scheme of a reader's first visit."""
    if shutil.which("chromium") is None:
        pytest.skip("no chromium on this machine")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chromium = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    chromium.set_page_load_timeout(LOAD_SECONDS)
    chromium.implicitly_wait(LOAD_SECONDS)
    yield chromium
    chromium.quit()


def luminance(colour: str) -> float:
    """Of a colour in the notation rgb(R, G, B), as WCAG 2.1 defines it."""
    channels = [int(channel) / 255 for channel in re.findall(r"\d+", colour)[:3]]
    linear = [
        channel / 12.92 if channel <= 0.03928 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(text: str, background: str) -> float:
    darker, lighter = sorted([luminance(text), luminance(background)])
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("width", "height"), [PHONE, DESKTOP])
def test_every_page_fits_the_screen_and_its_links_are_legible(
    site,  # noqa: F811
    address,
    browser,
    width,
    height,
    scheme,
):
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    pages = sorted(html.name for html in site.glob("*.html"))
    assert len(pages) > 25
    for page in pages:
        browser.get(address + page)
        look = browser.execute_script(LOOK)
        assert (page, look["width"], look["scheme"]) == (page, width, SCHEMES[scheme])
        assert (page, look["broken_commands"]) == (page, 0)
        faint = [
            colour
            for colour in look["link_colours"]
            if contrast(colour, look["background"]) < MIN_CONTRAST
        ]
        assert (page, faint) == (page, [])
        assert (page, browser.get_log("browser")) == (page, [])


def test_every_link_answers_and_the_search_has_results(site, address, browser):  # noqa: F811
    targets = set()
    for page in site.glob("[!4]*.html"):
        browser.get(address + page.name)
        targets |= {target.partition("#")[0] for target in browser.execute_script(TARGETS)}
    inside = {target for target in targets if target.startswith(address)}
    assert len(inside) > 30
    for target in inside:
        with urllib.request.urlopen(target, timeout=LOAD_SECONDS) as answer:
            assert (target, answer.status) == (target, 200)
    browser.get(f"{address}index.html?q=drift")
    assert browser.find_element("css selector", ".md-search-result__link").get_attribute("href")
