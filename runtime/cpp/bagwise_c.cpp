// The C interface of bagwise.hpp. Every error becomes a text: nothing is thrown across this border.
#include "bagwise.h"

#include "bagwise.hpp"

static_assert(sizeof(bagwise_term) == sizeof(bagwise::Term) && sizeof(bagwise_place) == sizeof(bagwise::Place),
              "terms and places are returned as they are");

struct bagwise_model {
    bagwise::Model model;
};

struct bagwise_workspace {
    bagwise_workspace(const bagwise::Model &model, int n_threads) : workspace(model, n_threads) {}
    bagwise::Workspace workspace;
    char error[512] = "";
};

namespace {

void copy_message(const char *message, char *error, std::size_t size) {
    if (error && size) {
        std::size_t n = std::min(std::strlen(message), size - 1);
        while (n && (message[n] & 0xc0) == 0x80) --n;  // no part of a character
        std::memcpy(error, message, n);
        error[n] = '\0';
    }
}

template <class Function>
auto guarded(Function function, decltype(function()) otherwise, char *error, std::size_t size) -> decltype(function()) {
    try {
        return function();
    } catch (const std::bad_alloc &) {
        copy_message("There is not enough memory.", error, size);
    } catch (const std::exception &wrong) {
        copy_message(wrong.what(), error, size);
    }
    return otherwise;
}

template <class Function>
std::int32_t with_workspace(bagwise_workspace *held, Function function) {
    held->error[0] = '\0';
    return guarded([&]() -> std::int32_t { return function(held->workspace); }, -1, held->error, sizeof held->error);
}

}  // namespace

extern "C" {

bagwise_model *bagwise_load(const char *path, int32_t n_groups, char *error, size_t error_size) {
    return guarded([&] { return new bagwise_model{bagwise::Model::load(path, n_groups)}; }, nullptr, error, error_size);
}

bagwise_model *bagwise_load_memory(const void *content, size_t size, int32_t n_groups, char *error, size_t error_size) {
    return guarded([&] { return new bagwise_model{bagwise::Model::from_memory(content, size, n_groups)}; }, nullptr,
                   error, error_size);
}

void bagwise_free(bagwise_model *model) { delete model; }

int32_t bagwise_items_of(const bagwise_model *model) { return static_cast<int32_t>(model->model.items()); }

int32_t bagwise_n_classes(const bagwise_model *model) {
    return model->model.has_classifier() ? static_cast<int32_t>(model->model.classes().size()) : 0;
}

int32_t bagwise_n_groups(const bagwise_model *model) { return model->model.n_groups(); }
int32_t bagwise_n_words(const bagwise_model *model) { return model->model.n_words(); }
int32_t bagwise_n_features(const bagwise_model *model) { return model->model.n_features(); }
int32_t bagwise_needs_color(const bagwise_model *model) { return model->model.needs_color(); }
int32_t bagwise_has_probabilities(const bagwise_model *model) { return model->model.has_probabilities(); }

const char *bagwise_class_name(const bagwise_model *model, int32_t k) {
    const auto &names = model->model.classes();
    return k < 0 || static_cast<std::size_t>(k) >= names.size() ? nullptr : names[static_cast<std::size_t>(k)].c_str();
}

const char *bagwise_group_name(const bagwise_model *model, int32_t group) {
    const std::string *name = model->model.group_name(group);
    return name ? name->c_str() : nullptr;
}

const char *bagwise_word_name(const bagwise_model *model, int32_t word, size_t *size) {
    const std::string_view name = model->model.word_name(word);
    *size = name.size();
    return name.data();
}

bagwise_workspace *bagwise_workspace_new(const bagwise_model *model, int32_t n_threads, char *error,
                                         size_t error_size) {
    return guarded([&] { return new bagwise_workspace(model->model, n_threads); }, nullptr, error, error_size);
}

void bagwise_workspace_free(bagwise_workspace *workspace) { delete workspace; }

int32_t bagwise_image(bagwise_workspace *workspace, const uint8_t *pixels, int32_t width, int32_t height,
                      int32_t channels, size_t stride) {
    return with_workspace(workspace, [&](auto &own) {
        return own.classify({pixels, width, height, channels, stride});
    });
}

int32_t bagwise_text(bagwise_workspace *workspace, const char *text, size_t size) {
    return with_workspace(workspace, [&](auto &own) { return own.classify_text({text, size}); });
}

int32_t bagwise_row(bagwise_workspace *workspace, const double *values, size_t n_values) {
    return with_workspace(workspace, [&](auto &own) { return own.classify_row(values, n_values); });
}

const char *bagwise_error(const bagwise_workspace *workspace) { return workspace->error; }
const float *bagwise_features(const bagwise_workspace *workspace) { return workspace->workspace.features().data(); }
const double *bagwise_scores(const bagwise_workspace *workspace) { return workspace->workspace.scores().data(); }

int32_t bagwise_top(const bagwise_workspace *workspace, int32_t n, int32_t *classes) {
    return workspace->workspace.top(n, classes);
}

int32_t bagwise_probabilities(bagwise_workspace *workspace, double *out) {
    return with_workspace(workspace, [&](auto &own) { return own.probabilities(out), 0; });
}

int32_t bagwise_explain(bagwise_workspace *workspace, int32_t k) {
    return with_workspace(workspace, [&](auto &own) { return own.explain(k), 0; });
}

double bagwise_intercept(const bagwise_workspace *workspace) { return workspace->workspace.intercept(); }

const double *bagwise_group_weights(const bagwise_workspace *workspace) {
    return workspace->workspace.group_weights().data();
}

const bagwise_term *bagwise_terms(const bagwise_workspace *workspace, size_t *n) {
    *n = workspace->workspace.terms().size();
    return reinterpret_cast<const bagwise_term *>(workspace->workspace.terms().data());
}

const bagwise_place *bagwise_places(const bagwise_workspace *workspace, size_t *n) {
    *n = workspace->workspace.places().size();
    return reinterpret_cast<const bagwise_place *>(workspace->workspace.places().data());
}

}  // extern "C"
