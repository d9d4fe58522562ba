"""What `make test-fast` leaves out, below this folder: folders, files, tests; and all checks of scikit-learn."""

SLOW = (
    "app/cli/",
    "app/first_hour/test_docs.py::test_the_first_hour_prints_what_its_page_says",
    "distributed/",
    "experiments/",
    "test_docs.py",
    "test_estimators.py",
    "test_import.py",
    "test_scripts.py",
    "baselines/test_hashing.py::test_inner_products_are_right_on_average",
    "codebooks/test_manifold_bag_of_features.py",
    "codebooks/test_manifold_layer.py",
    "descriptors/test_contract.py::test_a_run_killed_while_it_wrote_is_taken_up_again",
    "descriptors/test_sentences.py::test_no_character_is_lost",
    "descriptors/test_video.py",
)
CHECKS = "test_scikit_learn"
