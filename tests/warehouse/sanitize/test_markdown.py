"""Whatever a third party writes, a page holds no image, link, tag or further cell of it."""

import ast
import html
import io
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.pages import READER, list_tokens
from tests.support.paths import ROOT
from warehouse.publish import make_markdown_metadata
from warehouse.sanitize.markdown import (
    Markdown,
    escape_markdown,
    fill_markdown,
    join_markdown,
    make_markdown_table,
    quote_text,
    shrink_png,
)

# What a reader that makes links of bare addresses would take for one.
_ADDRESS = re.compile(r"https?:/|www\.|//\w|[\w.+-]@[\w-]+\.", re.IGNORECASE)
HOSTILE = (
    "![](http://127.0.0.1:9/beacon)",
    "[click](javascript:alert(1))",
    "![a][b]\n\n[b]: http://127.0.0.1:9/x",
    '<img src="http://127.0.0.1:9/beacon">',
    "<http://127.0.0.1:9>",
    "http://127.0.0.1:9/x www.example.com a@example.com",
    "a | b | c\n--- | --- | ---\n1 | 2 | 3",
    "`` ` ``` `![](x)`",
    "\\![](x) \\| \\` \\",
    "&#33;&#91;&#93;(x) &lt;b&gt; &#x21;[](x)",
    "x\r\n\n# heading\n\n```html\n<script>",
    "\u2028![](x)\u2029<b>\x85|\x0b|\x0c|",
    "[1]: 2",
)
_SIGNS = "![]()<>|`\\&#;:/@.-+_*~=\"' \n\r\t1ahwx\u2028\u200b"
TEXTS = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(alphabet=st.sampled_from(_SIGNS), max_size=60),
    st.text(max_size=60),
)


def assert_harmless(page: str) -> None:
    kinds = {token.type for token in list_tokens(page)}
    assert not kinds & {"image", "link_open", "html_block", "html_inline", "fence", "code_block"}
    bare = re.sub(r"<code>.*?</code>", "", READER.render(page), flags=re.DOTALL)
    assert not _ADDRESS.search(html.unescape(re.sub(r"<[^>]*>", " ", bare)))


@given(st.lists(st.lists(TEXTS, min_size=3, max_size=3), min_size=1, max_size=3), TEXTS)
def test_a_cell_of_any_text_is_one_cell_that_shows_text(rows, head):
    page = make_markdown_table(["a", head, "c"], rows)
    assert_harmless(page)
    kinds = [token.type for token in list_tokens(page)]
    assert kinds.count("table_open") == 1
    assert kinds.count("th_open") == 3
    assert kinds.count("td_open") == 3 * len(rows)


@given(TEXTS, TEXTS)
@example(*HOSTILE[:2])
def test_a_line_of_ours_keeps_its_form_whatever_fills_it(one, other):
    parts = [fill_markdown("## {}", one), fill_markdown("- {}: {}", quote_text(one), other), other]
    page = join_markdown("\n\n", parts)
    assert_harmless(page)
    kinds = [token.type for token in list_tokens(page)]
    assert (kinds.count("heading_open"), kinds.count("list_item_open")) == (1, 1)


@given(TEXTS)
def test_a_quoted_text_is_one_code_span_in_a_line_and_in_a_cell(text):
    for page in (quote_text(text), make_markdown_table(["a"], [[quote_text(text)]])):
        assert_harmless(page)
        assert [token.type for token in list_tokens(page)].count("code_inline") == 1


def test_numbers_and_names_stay_readable_and_a_value_that_the_template_forgot_is_an_error():
    text = fill_markdown("{:,} of {:.0%}, {}", 1234, 0.5, "recall_at_1")
    assert text == "1,234 of 50%, recall_at_1"
    assert escape_markdown("0.412, time-server 2.0.1, +3") == "0.412, time-server 2.0.1, +3"
    assert make_markdown_table(["n"], [[Markdown("**a|b**")]]).endswith("| **a\\|b** |")
    with pytest.raises(ValueError, match="no place for"):
        fill_markdown("{}", 1, 2)


def test_only_markdown_of_ours_reaches_a_page_and_none_is_made_around_the_escaping():
    assert make_markdown_metadata(Markdown("**a**")).md_str == "**a**"
    with pytest.raises(TypeError, match="Markdown that our code wrote"):
        make_markdown_metadata("![](http://127.0.0.1:9/beacon)")  # pyright: ignore[reportArgumentType]
    # Dagster's Markdown comes from one place, and who marks a text as ours is listed here.
    pages = {file for file, _ in find_calls("MetadataValue.md", "MarkdownMetadataValue")}
    assert pages == {"warehouse/publish.py"}
    assert not find_calls("MetadataValue.url", "UrlMetadataValue")
    for file, call in find_calls("AssetCheckResult"):
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert given["description"].startswith("escape_description("), file
    trusting = {file for file, _ in find_calls("mark_markdown")}
    assert trusting == {
        "assets/synthesis/export/write.py",  # front matter of its own words; the template's text
        "training/figures.py",  # lines of a table
        "extensions/publishing/model_card.py",  # front matter, as YAML writes it
        "training/reporting/report.py",  # a report from its file, with its plots
        "warehouse/sanitize/markdown.py",
    }


PACKAGES = ("assets", "training", "serving", "warehouse", "orchestration", "extensions", "demo")


def find_calls(*names: str) -> list[tuple[str, ast.Call]]:
    """(file, call) of every call in the source whose function is one of these."""
    results = []
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text if any(name in text for name in names) else "")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(names):
                results.append((str(path.relative_to(ROOT)), node))
    return results


def test_a_plot_takes_a_third_of_the_bytes_and_looks_the_same():
    from PIL import Image, ImageChops, ImageDraw

    large = Image.new("RGB", (1200, 900), "white")
    pen = ImageDraw.Draw(large)
    for at in range(30):
        pen.line((0, 30 * at, 1200, 900 - 17 * at), fill=("#2563eb", "#d12323")[at % 2], width=3)
        pen.text((40 * at, 20 + 28 * at), f"{at / 7:.3f} of all", fill="#1f2937", font_size=28)
    plot = large.resize((600, 450), Image.Resampling.LANCZOS).convert("RGBA")  # smoothed, as a plot
    png = io.BytesIO()
    plot.save(png, "PNG")
    small = shrink_png(png.getvalue())
    assert len(small) < len(png.getvalue()) / 2
    difference = ImageChops.difference(
        plot.convert("RGB"), Image.open(io.BytesIO(small)).convert("RGB")
    )
    observed = difference.convert("L").histogram()
    assert sum(observed[40:]) < sum(observed) / 100
    dot = io.BytesIO()
    Image.new("P", (1, 1)).save(dot, "PNG", optimize=True)
    assert shrink_png(dot.getvalue()) == dot.getvalue()
