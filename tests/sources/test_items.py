"""The one iterator over items."""

import threading
import warnings

import pytest

from bagwise.errors import BagwiseError
from bagwise.sources import Item, ItemError, SkippedItemsWarning
from bagwise.sources.items import ItemIterator, item_errors, list_items

ITEMS = list_items(range(23), "item")


def square(item):
    with item_errors(item.id):
        if item.load() % 7 == 3:
            raise BagwiseError("it is 3 more than a multiple of 7")
        return item.load() ** 2


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("batch_size", [None, 1, 4, 100])
def test_batches_and_threads_do_not_change_the_results(n_jobs, batch_size):
    iterator = ItemIterator(ITEMS, square, "a list", on_error="skip", n_jobs=n_jobs, batch_size=batch_size)
    with pytest.warns(
        SkippedItemsWarning, match="3 of 23 items of a list could not be read and were skipped: item 3: "
    ):
        found = list(iterator)
    kept = [k for k in range(23) if k % 7 != 3]
    singles = found if batch_size is None else [one for batch in found for one in batch]
    assert singles == [k**2 for k in kept]
    assert iterator.kept == kept
    assert [skipped.id for skipped in iterator.skipped] == ["item 3", "item 10", "item 17"]
    assert iterator.n_done == iterator.n_items == 23
    if batch_size is not None:
        assert [len(batch) for batch in found[:-1]] == [batch_size] * (len(found) - 1)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_error_of_an_item_is_raised_in_its_turn(n_jobs):
    iterator = ItemIterator(ITEMS, square, "a list", n_jobs=n_jobs)
    assert [next(iterator) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(ItemError, match="Cannot read 'item 3': it is 3 more") as caught:
        next(iterator)
    assert isinstance(caught.value.__cause__, BagwiseError)


def test_other_errors_are_not_errors_of_the_item():
    def broken(item):
        raise BagwiseError("the disk is full")

    with pytest.raises(BagwiseError, match="the disk is full"):
        list(ItemIterator(ITEMS, broken, "a list", on_error="skip"))


def test_no_warning_on_request_but_an_error_if_nothing_is_left():
    iterator = ItemIterator(ITEMS[2:5], square, "a list", on_error="skip")
    iterator.warn = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(iterator) == [4, 16]
    nothing = ItemIterator(ITEMS[3:4], square, "a list", on_error="skip")
    nothing.warn = False
    with pytest.raises(BagwiseError, match=r"a list cannot be read\. item 3: it is 3 more"):
        list(nothing)


def test_closing_ends_the_threads():
    before = threading.active_count()
    iterator = ItemIterator(ITEMS, square, "a list", n_jobs=3, batch_size=2)
    next(iterator)
    iterator.close()
    assert list(iterator) == []
    assert threading.active_count() == before


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_large_results_are_held_in_small_numbers(n_jobs):
    """Batches end early and few items are begun ahead; the results are the same."""
    taken, most = [], 1 << 26

    class Items(list):
        def __iter__(self):
            for item in super().__iter__():
                taken.append(item.id)
                yield item

    items, ahead = Items(list_items(range(40), "item")), {}
    for size in (0, most // 2 + 1, most + 1):
        taken.clear()
        ahead[size], found = 0, []
        how = {"n_jobs": n_jobs, "batch_size": 8, "size": lambda _, size=size: size}
        iterator = ItemIterator(items, Item.load, "a list", **how)
        for batch in iterator:
            found += batch
            assert len(batch) == {0: 8, most // 2 + 1: 2, most + 1: 1}[size]
            ahead[size] = max(ahead[size], len(taken) - len(found))
        assert found == list(range(40))
    assert ahead == {0: 11, most // 2 + 1: 3, most + 1: 3} if n_jobs > 1 else set(ahead.values()) == {0}


@pytest.mark.parametrize("wrong", [{"on_error": "ignore"}, {"batch_size": 0}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(BagwiseError, match=next(iter(wrong))):
        ItemIterator(ITEMS, square, "a list", **wrong)
