"""A model of images in a real browser: patches, heat maps, and search by a file that is chosen or dropped."""

import base64
import io
from urllib.parse import urljoin

import numpy as np
import pytest
from PIL import Image

from browsing import IN_BROWSER, explorer, playwright
from small_sources import write_image_folder

pytestmark = IN_BROWSER
expect = playwright().expect
DROP = """(element, content) => {
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
  for (const name of ["dragover", "drop"]) {
    element.dispatchEvent(new DragEvent(name, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_image_folder(tmp_path_factory.mktemp("explored") / "images", n_each=5, side=40, color=True)


@pytest.fixture(scope="module")
def address(folder):
    from bagwise.app import FitOptions, run_fit
    from bagwise.app.index.item_index import index_of_fit

    fit = run_fit(folder, FitOptions(n_words=20, n_groups=5, folds=0))
    with explorer(index_of_fit(fit, None, folder, FitOptions()).save(folder.parent / "images.index")) as opened:
        yield opened


def test_an_image_is_searched_for_by_a_file(visit, folder):
    page = visit("/search")
    chosen = sorted(folder.rglob("*.png"))
    page.set_input_files("#query", chosen[0])
    first = page.locator(".strip .id").first
    expect(first).to_have_text(chosen[0].relative_to(folder).as_posix())
    expect(page.locator(".why")).to_contain_text(chosen[0].parent.name)
    page.locator(".drop").evaluate(DROP, base64.b64encode(chosen[-1].read_bytes()).decode())
    expect(first).to_have_text(chosen[-1].relative_to(folder).as_posix())


def test_patches_and_heat_maps_are_in_colour(visit):
    page = visit("/")
    expect(page.locator("main")).to_contain_text("learned from 10 of these items: its answers")
    page.click("nav >> text=Groups")
    expect(page.locator("img.patches")).to_have_count(5)
    page.goto(urljoin(page.url, "/items?item=0"))
    page.click("summary:text-is('Export')")
    with page.expect_download() as started:
        page.get_by_role("button", name="Heat map as PNG").click()
    pixels = np.asarray(Image.open(io.BytesIO(started.value.path().read_bytes())).convert("RGB")).astype(int)
    assert np.ptp(pixels, axis=2).max() > 20
    for source in ("/api/groups/0/patches?n=5", "/api/items/0/picture"):
        shown = Image.open(io.BytesIO(page.request.get(urljoin(page.url, source)).body())).convert("RGB")
        assert np.ptp(np.asarray(shown).astype(int), axis=2).max() > 20
