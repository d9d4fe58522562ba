"""What all experiments are asked of their pages."""

from experiments.__main__ import footer
from experiments.pages import write_pages


def page_of(module, results, folder):
    """Write the page of an experiment from the cells that are there: its sections, and its text."""
    sections = module.sections(results)
    assert bool(sections) == (len(results) > 0)
    page = folder / "page.md"
    parts = [(module.PAPER, "made_up", footer("made_up", results), sections)] if sections else []
    write_pages(parts, page, "Intro.", folder / "plots")
    text = page.read_text()
    assert "nan" not in text
    return sections, text
