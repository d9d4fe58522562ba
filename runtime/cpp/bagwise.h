/* C interface of the bagwise runtime: models of images, texts and tables, from pixels, UTF-8 or numbers to classes.
 *
 * Compile bagwise_c.cpp with a C++17 compiler and link it, or load it as a shared library. No function throws or ends
 * the process. A model is never changed after loading: any number of threads may use it, each with its own workspace.
 * All pointers that a workspace returns are valid until the next call of bagwise_image, _text or _row with it, or until
 * it is freed. Texts that are returned are UTF-8 and end with a zero byte.
 */
#ifndef BAGWISE_H
#define BAGWISE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(BAGWISE_SHARED)
#define BAGWISE_API __declspec(dllexport)
#elif defined(__GNUC__)
#define BAGWISE_API __attribute__((visibility("default")))
#else
#define BAGWISE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bagwise_model bagwise_model;
typedef struct bagwise_workspace bagwise_workspace;

enum bagwise_items { BAGWISE_IMAGES = 0, BAGWISE_TEXTS = 1, BAGWISE_TABLE = 2 };

/* A word of an item in one of its groups, and its part of a score. */
typedef struct {
    int32_t word, group;
    double weight;
} bagwise_term;

/* A part of an item and its part of a score. Images: the square of `side` pixels of the original image whose upper left
 * corner is (x, y). Texts: the token from byte `start` to byte `end`. Tables: the column `word`. */
typedef struct {
    double x, y, side;
    uint64_t start, end;
    int32_t word; /* images: of the patch; tables: the column; texts: -1 */
    double weight;
} bagwise_place;

/* Read a model from a file or from memory (copied; it may be freed afterwards). `n_groups` is the number of groups to
 * cut it at, 0 for that of the file. Returns NULL and writes what is wrong, cut at `error_size` bytes, if it is no
 * model or one that this runtime does not support. `error` may be NULL. */
BAGWISE_API bagwise_model *bagwise_load(const char *path, int32_t n_groups, char *error, size_t error_size);
BAGWISE_API bagwise_model *bagwise_load_memory(const void *content, size_t size, int32_t n_groups, char *error,
                                               size_t error_size);
BAGWISE_API void bagwise_free(bagwise_model *model); /* workspaces made from it stay valid */

BAGWISE_API int32_t bagwise_items_of(const bagwise_model *model);  /* enum bagwise_items */
BAGWISE_API int32_t bagwise_n_classes(const bagwise_model *model); /* 0 if there is no classifier for n_groups */
BAGWISE_API int32_t bagwise_n_groups(const bagwise_model *model);
BAGWISE_API int32_t bagwise_n_words(const bagwise_model *model);     /* of the vocabulary; columns of a table */
BAGWISE_API int32_t bagwise_n_features(const bagwise_model *model);  /* cells x groups */
BAGWISE_API int32_t bagwise_needs_color(const bagwise_model *model); /* 1 if grey images are refused, else 0 */
BAGWISE_API int32_t bagwise_has_probabilities(const bagwise_model *model);
BAGWISE_API const char *bagwise_class_name(const bagwise_model *model, int32_t k); /* NULL if there is no such class */
BAGWISE_API const char *bagwise_group_name(const bagwise_model *model, int32_t group); /* as given, or NULL */
/* The name of a word, which does not end with a zero byte; NULL if words have none (images, compact models). */
BAGWISE_API const char *bagwise_word_name(const bagwise_model *model, int32_t word, size_t *size);

/* Make what one thread needs to classify items. `n_threads` threads work on each image, 1 for the caller alone. */
BAGWISE_API bagwise_workspace *bagwise_workspace_new(const bagwise_model *model, int32_t n_threads, char *error,
                                                     size_t error_size);
BAGWISE_API void bagwise_workspace_free(bagwise_workspace *workspace);

/* Classify an item. Return the number of its class (0 if there is no classifier: see bagwise_features), or -1; then
 * bagwise_error says why. Images have 1 (grey), 3 (RGB) or 4 (RGBA, A is ignored) bytes per pixel, upright; `stride` is
 * the number of bytes from row to row, 0 for rows without gaps. Nothing is allocated for items that are no larger than
 * those before. Bytes that are no UTF-8 separate words. */
BAGWISE_API int32_t bagwise_image(bagwise_workspace *workspace, const uint8_t *pixels, int32_t width, int32_t height,
                                  int32_t channels, size_t stride);
BAGWISE_API int32_t bagwise_text(bagwise_workspace *workspace, const char *text, size_t size);
BAGWISE_API int32_t bagwise_row(bagwise_workspace *workspace, const double *values, size_t n_values);
BAGWISE_API const char *bagwise_error(const bagwise_workspace *workspace);

/* Of the last item: */
BAGWISE_API const float *bagwise_features(const bagwise_workspace *workspace); /* n_features numbers */
BAGWISE_API const double *bagwise_scores(const bagwise_workspace *workspace);  /* n_classes numbers */
/* Write the numbers of the up to n best classes, best first; returns how many. */
BAGWISE_API int32_t bagwise_top(const bagwise_workspace *workspace, int32_t n, int32_t *classes);
/* Write n_classes calibrated probabilities; returns -1 if the model has none. */
BAGWISE_API int32_t bagwise_probabilities(bagwise_workspace *workspace, double *out);
/* Explain the score of class k: intercept and contributions of groups, words or places each add up to it. Returns -1 on
 * error. The arrays below belong to the last explanation. */
BAGWISE_API int32_t bagwise_explain(bagwise_workspace *workspace, int32_t k);
BAGWISE_API double bagwise_intercept(const bagwise_workspace *workspace);
BAGWISE_API const double *bagwise_group_weights(const bagwise_workspace *workspace);          /* n_groups numbers */
BAGWISE_API const bagwise_term *bagwise_terms(const bagwise_workspace *workspace, size_t *n); /* by word, then group */
BAGWISE_API const bagwise_place *bagwise_places(const bagwise_workspace *workspace,
                                                size_t *n); /* in the item's order */

#ifdef __cplusplus
}
#endif

#endif
