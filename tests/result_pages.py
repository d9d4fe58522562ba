"""What all experiments are asked of their pages."""

import pytest
from experiments.__main__ import footer
from experiments.pages import Part, write_appendix
from matplotlib.figure import Figure
from PIL import Image


def page_of(module, results, folder, n_rendered=2):
    """Write the page of an experiment from the cells that are there: its sections, and its text.

    All figures are made; rendering takes most of the time, so only the first `n_rendered` are.
    """
    sections = module.sections(results)
    assert bool(sections) == (len(results) > 0)
    page = folder / "page.md"
    parts = [Part(module.PAPER, "made_up", "Made up", footer("made_up", results), sections)] if sections else []
    render, rendered = Figure.savefig, []

    def save(figure, file, **options):
        rendered.append(figure)
        if len(rendered) <= n_rendered:
            render(figure, file, **options)
        else:
            Image.new("RGB", (1, 1)).save(file, "PNG")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        write_appendix(parts, page, "Made up", "Intro.", folder / "plots", csv=True)
    text = page.read_text()
    assert "nan" not in text
    return sections, text
