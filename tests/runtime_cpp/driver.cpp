// Loads model after model and classifies items with each, for builds with sanitizers.
//
//     driver PACK    files of models in one file, each behind its length (8 bytes): one line for each, "ok" or why not
//     driver --frames MODEL    prints how often memory is allocated for each of three frames
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "bagwise.hpp"

static long n_allocations = 0;
static void on_malloc(const volatile void *, std::size_t) { ++n_allocations; }
static void on_free(const volatile void *) {}
// Of the run-time library of the sanitizers, whose header is not always installed.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void *, std::size_t),
                                                         void (*)(const volatile void *));

namespace {

const char *kTexts[] = {"The cat sat, the cat ran!", "", "A dog ran home \xff\xfe\xed\xa0\x80 \xf0\x9f",
                        "ΟΔΥΣΣΕΥΣ İstanbul Σ ΣΑΣ ǅ"};

void classify_some(bagwise::Workspace &workspace) {
    const bagwise::Model &model = workspace.model();
    const auto explain = [&] {
        if (!model.has_classifier()) return;
        for (int k = 0; k < static_cast<int>(model.classes().size()) && k < 3; ++k) workspace.explain(k);
        std::vector<std::int32_t> best(3);
        workspace.top(3, best.data());
        std::vector<double> out(model.classes().size());
        if (model.has_probabilities()) workspace.probabilities(out.data());
    };
    if (model.items() == bagwise::Items::images) {
        std::vector<std::uint8_t> pixels(45 * 37 * 4);
        for (std::size_t k = 0; k < pixels.size(); ++k) pixels[k] = static_cast<std::uint8_t>(k * k / 7 + k % 5);
        const int sizes[][2] = {{45, 37}, {9, 8}, {1, 1}, {0, 0}, {3, 40}, {0, 200}, {120, 0}};
        for (const auto &size : sizes)
            for (const int channels : {1, 3, 4}) {
                if (channels == 1 && model.needs_color()) continue;
                // at the very end of the memory, so that a read behind it is noticed
                const std::size_t n = static_cast<std::size_t>(size[0] * size[1] * channels);
                const std::vector<std::uint8_t> image(pixels.begin(), pixels.begin() + static_cast<std::ptrdiff_t>(n));
                workspace.classify({image.data(), size[0], size[1], channels});
                explain();
            }
    } else if (model.items() == bagwise::Items::texts) {
        for (const char *text : kTexts) {
            const std::vector<char> exact(text, text + std::strlen(text));
            workspace.classify_text({exact.data(), exact.size()});
            explain();
        }
    } else {
        std::vector<double> row(static_cast<std::size_t>(model.n_words()));
        for (std::size_t k = 0; k < row.size(); ++k) row[k] = static_cast<double>(k % 7) - 2;
        workspace.classify_row(row.data(), row.size());
        explain();
    }
}

int run_pack(const char *path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    for (std::size_t at = 0; at + 8 <= all.size();) {
        std::uint64_t size = 0;
        std::memcpy(&size, all.data() + at, 8);
        at += 8;
        const std::vector<char> content(all.begin() + static_cast<std::ptrdiff_t>(at),
                                        all.begin() + static_cast<std::ptrdiff_t>(at + size));
        at += size;
        try {
            const bagwise::Model model = bagwise::Model::from_memory(content.data(), content.size());
            bagwise::Workspace workspace(model);
            classify_some(workspace);
            std::puts("ok");
        } catch (const bagwise::Error &error) {
            std::string message = error.what();
            for (char &c : message) c = c == '\n' ? ' ' : c;
            std::puts(message.c_str());
        }
    }
    return 0;
}

int run_frames(const char *path) {
    const bagwise::Model model = bagwise::Model::load(path);
    bagwise::Workspace workspace(model, model.items() == bagwise::Items::images ? 2 : 1);
    for (int round = 0; round < 3; ++round) {
        const long before = n_allocations;
        if (model.items() == bagwise::Items::images) {
            static std::uint8_t frame[70 * 50 * 3];
            for (std::size_t k = 0; k < sizeof frame; ++k)
                frame[k] = static_cast<std::uint8_t>(k * k / 9 + static_cast<std::size_t>(round) * k);
            workspace.classify({frame, 70, 50, 3});
        } else if (model.items() == bagwise::Items::texts) {
            workspace.classify_text(kTexts[0]);
        } else {
            static const double row[64] = {1, 2, 3};
            workspace.classify_row(row, static_cast<std::size_t>(model.n_words()));
        }
        if (model.has_classifier()) workspace.explain(0);
        std::printf("%ld\n", n_allocations - before);
    }
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    if (!__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free)) return 3;
    if (argc == 3 && std::string(argv[1]) == "--frames") return run_frames(argv[2]);
    return argc == 2 ? run_pack(argv[1]) : 2;
}
