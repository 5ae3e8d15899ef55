"""The pages: links lead somewhere, real output is what was captured, the picture is current, the site builds."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COLOR = re.compile(r"\x1b\[\d+m")  # ECMA-48, SGR
CAPTURED = {
    path.stem: COLOR.sub("", path.read_text()) for path in (ROOT / "docs" / "captured").iterdir()
}
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted(
        [
            *ROOT.glob("*.md"),
            *(ROOT / "docs").glob("*.md"),
            *(ROOT / "tests").glob("**/README.md"),
        ]
    )
}
LARGEST_README = 6 * 1024  # bytes
REFERENCES = ("docs/ACCURACY.md", "docs/PERFORMANCE.md", "docs/TUNING.md", "tests/README.md")
LARGEST_REFERENCE = 1500  # words
MAX_WORDS = 13000  # docs/*.md
MAX_WORDS_FOR_DEVELOPERS = 3000  # HACKING and the README of the tests
WIDEST_ROW_OF_CLOUDS = 100
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
HISTORY = re.compile(
    rf"\b(?:(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{{7,40}}|20\d\d-\d\d(?:-\d\d)?|(?:{MONTHS}) 20\d\d"
    r"|(?:earlier|previous) (?:versions?|runs?)|used to|no longer|missed|loads? of|was busy|not repeated)\b",
    re.IGNORECASE,
)
LEFT_OUT = (".git", "build", "neuca_tools")
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prose(page: str) -> str:
    return FENCE.sub("", PAGES[page])


def words_of(page: str) -> int:
    """The words of a page, without the bars of its tables."""
    return len(PAGES[page].replace("|", " ").split())


def blocks(page: str) -> list[str]:
    return FENCE.findall(PAGES[page])


def anchors(page: str) -> set[str]:
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def test_the_readme_is_short():
    assert len(PAGES["README.md"].encode()) <= LARGEST_README


@pytest.mark.parametrize("page", REFERENCES)
def test_a_reference_has_one_page_of_present_figures_and_no_history(page):
    """What was measured earlier is in the history of the repository."""
    assert HISTORY.findall(PAGES[page]) == []
    columns = re.findall(r"^\|(.*)\|\n\|-", PAGES[page], re.MULTILINE)
    names = {name.strip() for row in columns for name in row.split("|")}
    assert names & {"before", "now", "then", "target", "aim", "met"} == set()
    assert words_of(page) <= LARGEST_REFERENCE


def test_the_pages_are_no_longer_than_a_user_reads():
    count = sum(words_of(page) for page in PAGES if page.startswith("docs/"))
    assert count <= MAX_WORDS, f"shorten pages in docs by {count - MAX_WORDS} words"


def test_no_row_about_clouds_is_wider_than_a_screen():
    rows = [row for row in PAGES["docs/CLOUDS.md"].splitlines() if row.startswith("|")]
    assert [row for row in rows if len(row) > WIDEST_ROW_OF_CLOUDS] == []


def test_the_table_of_systems_is_what_was_run_and_what_the_guests_are():
    command = [ROOT / "docs" / "systems"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert table in PAGES["docs/GUIDE.md"]


def test_a_run_is_recorded_for_the_system_of_this_machine(tmp_path):
    for name in ("docs/systems", "tests/machine/images.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs" / "systems.json").write_text("[]")
    command = [tmp_path / "docs" / "systems", "--record", "demo"]
    for _ in range(2):
        table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (system,) = json.loads((tmp_path / "docs" / "systems.json").read_text())
    assert system["passed"] == ["demo"]
    assert table.splitlines()[2].startswith(f"| {system['name']} | passed | – | ")


def test_the_pages_for_developers_show_a_test_that_is_run_and_no_commit():
    example = next(text for text in blocks("tests/README.md") if "def test_" in text)
    assert example in (ROOT / "tests/netns/test_netns_settings.py").read_text()
    assert HISTORY.findall(PAGES["docs/HACKING.md"]) == []
    pages = ("docs/HACKING.md", "tests/README.md")
    excess = sum(map(words_of, pages)) - MAX_WORDS_FOR_DEVELOPERS
    assert excess <= 0, f"shorten docs/HACKING.md or tests/README.md by {excess} words"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page):
    home = (ROOT / page).parent
    broken = []
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", prose(page)):
        target = (home / path).resolve() if path else ROOT / page
        if not target.exists():
            broken.append(path)
        elif anchor and anchor not in anchors(str(target.relative_to(ROOT))):
            broken.append(f"{path}#{anchor}")
    assert broken == []


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_is_named_is_there(page):
    named = re.findall(
        r"`((?:neuca_tools|tests|examples|docs|packaging|demo)(?:/[\w.-]+)*)`", prose(page)
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_sysctls_have_the_names_that_users_type():
    manuals = {path.name: path.read_text() for path in (ROOT / "docs" / "man").iterdir()}
    texts = {page: prose(page) for page in PAGES} | manuals
    paths = re.compile(r"(?<![\w/])(?:net|kernel|vm)/[a-z]\w*/\w[\w/]*")
    assert {name: paths.findall(text) for name, text in texts.items() if paths.search(text)} == {}


def test_every_test_that_the_page_on_security_names_is_there():
    """Those without a directory are in tests/attack."""
    named = re.findall(r"`((?:[\w/]+/)?test_\w+\.py)`", PAGES["docs/SECURITY.md"])
    paths = [name if "/" in name else f"tests/attack/{name}" for name in named]
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_target_of_make_that_is_named_is_there(page):
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    text = PAGES[page]
    named = set(re.findall(r"`make ([a-z-]+)", text)) | set(
        re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)
    )
    assert named - targets == set()


def test_every_page_is_in_the_index_of_the_readme_and_on_the_site():
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    manuals = {f"{path.name}.md" for path in (ROOT / "docs" / "man").iterdir()}
    indexed = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", PAGES["README.md"]))
    nav = set(re.findall(r": ([\w.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert (pages - indexed, (pages | manuals) - nav) == (set(), set())


def test_output_in_the_pages_is_what_was_captured():
    """The guide's plan of examples/user-data.ini is computed by test_docs.py: it has a VLAN."""
    shown = {
        page: [text for text in blocks(page) if re.match(r"# neuca(-selftest)? ", text)]
        for page in PAGES
    }
    texts = [text for page in shown for text in shown[page] if "fe163e006daf" not in text]
    assert [text for text in texts if text not in CAPTURED.values()] == []
    assert len(texts) >= 4
    unused = {
        name
        for name, text in CAPTURED.items()
        if text not in texts and text.split("\n", 1)[1].strip() not in PAGES["README.md"]
    }
    assert unused == set()


def test_the_document_of_the_readme_is_the_example():
    assert (ROOT / "examples" / "first.ini").read_text() in blocks("README.md")


def test_the_picture_shows_the_captured_status():
    drawn = subprocess.run(
        [ROOT / "docs" / "draw", ROOT / "docs" / "captured" / "status.txt"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert drawn == (ROOT / "docs" / "status.svg").read_text()
    texts = "".join(re.findall(r">([^<]*)</text>", drawn))
    assert texts.replace(" ", "") == re.sub(r"\s", "", CAPTURED["status"])


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The directory of the built site. mkdocs says nothing unless something is wrong."""
    assert shutil.which("mkdocs"), "mkdocs is not installed: tests/setup.sh unit"
    tree = tmp_path_factory.mktemp("site") / "tree"
    shutil.copytree(
        ROOT, tree, ignore=lambda directory, _: LEFT_OUT if Path(directory) == ROOT else ()
    )
    done = subprocess.run([tree / "docs" / "build"], capture_output=True, text=True, check=False)
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)
    return tree / "build" / "site"


def test_every_link_of_the_site_leads_to_a_page_and_a_part_of_it(site):
    missing = {
        f"{html.name}: {target}"
        for html in site.glob("[!4]*.html")
        for target in re.findall(r'(?:href|src)="([^"#?:/][^"#?:]*)[#"?]', html.read_text())
        if not (site / target).exists()
    }
    assert missing == set()
    assert broken_anchors(site) == set()


def test_the_site_loads_nothing_from_elsewhere(site):
    loaded = r'<(?:script|img|iframe)[^>]* src="(https?:[^"]*)|<link[^>]* rel="stylesheet"[^>]* href="(https?:[^"]*)'
    assert [html.name for html in site.glob("*.html") if re.search(loaded, html.read_text())] == []


def test_every_page_of_the_site_has_a_heading_and_a_clean_title_in_the_search(site):
    for html in site.glob("[!4]*.html"):
        text = html.read_text()
        assert len(re.findall(r"<h1\b", text)) == 1, html.name
        assert re.search(r"<title>[\w(][^<>]*</title>", text), html.name
    documents = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    titles = [document["title"] for document in documents]
    assert len(titles) > 200
    strange = re.compile(r"[^\w '\"()[\]{}.,:;/?!&<>|*=+…-]|&\w+;")
    assert [title for title in titles if strange.search(title)] == []


def test_the_site_has_two_colour_schemes_copy_buttons_and_four_kinds_of_pages(site):
    text = (site / "GUIDE.html").read_text()
    schemes = re.findall(r'data-md-color-media="([^"]*)"[^>]*data-md-color-scheme="(\w+)"', text)
    assert set(schemes) == {
        ("(prefers-color-scheme: light)", "default"),
        ("(prefers-color-scheme: dark)", "slate"),
    }
    assert "content.code.copy" in text
    tabs = re.findall(r'class="md-tabs__link[^>]*>\s*(\S[^<]*?)\s*</a>', text)
    assert tabs[:4] == ["Tutorial", "How-to", "Reference", "Explanation"]


def test_nothing_on_the_site_is_wider_than_a_phone(site):
    """A table and a block scroll by themselves: those of Markdown by the theme, those of mandoc by manual.css."""
    (theme,) = (site / "assets" / "stylesheets").glob("main.*.css")
    (rule,) = re.findall(r"\.md-typeset table:not\(\[class\]\)\{([^}]*)\}", theme.read_text())[:1]
    assert "overflow:auto" in rule
    assert "max-width:100%" in rule
    style = (site / "manual.css").read_text()
    for scrolling in ("pre", r"table\.Nm", r"table\.Bl-column"):
        assert re.search(
            rf"^\.md-typeset {scrolling} {{[^}}]*overflow-x: auto", style, re.MULTILINE
        )
    tables = {
        table
        for html in site.glob("*.html")
        for table in re.findall(r"<table([^>]*)>", html.read_text())
    }
    assert tables <= {"", ' class="Nm"', ' class="Bl-column"'}


def broken_anchors(site):
    """The links to a part of a page of the site that has no such part."""
    texts = {html.name: html.read_text() for html in site.glob("*.html")}
    ids = {name: set(re.findall(r'\bid="([^"]*)"', text)) for name, text in texts.items()}
    return {
        f"{name}: {page}#{anchor}"
        for name, text in texts.items()
        for page, anchor in re.findall(r'href="([\w.-]*)#([^"]+)"', text)
        if page in {"", *texts} and anchor not in ids[page or name]
    }


# --- as installed -----------------------------------------------------------------------------------------------------


def test_installed_pages_have_no_dangling_link_and_the_changelog(tmp_path):
    """A link leads to an installed page, or to examples, which are beside the pages."""
    subprocess.run([ROOT / "packaging" / "installed-docs", tmp_path], check=True)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    pages = {path.name: path.read_text() for path in tmp_path.glob("*.md")}
    assert {"README.md", "CHANGELOG.md", "GUIDE.md", "FAQ.md", "MIGRATING.md"} <= pages.keys()
    assert not {"PERFORMANCE.md", "ACCURACY.md", "HACKING.md"} & pages.keys()
    links = [
        (name, target)
        for name, text in pages.items()
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    ]
    assert len(links) > 10
    assert [(name, target) for name, target in links if not (tmp_path / target).exists()] == []
