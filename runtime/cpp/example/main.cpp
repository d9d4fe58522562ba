// Classify images, texts or rows of a table by a model of bagwise.
//
//   classify [options] [FILE…]       without FILE, or with -: standard input
//
// Images are PNM files (P5, P6; a file may hold several), texts are lines of UTF-8, rows of a table are lines of CSV. Each
// item gets a line: its name, then the best classes with their scores, separated by tabs.
#include <algorithm>
#include <chrono>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "bagwise.hpp"
#if __has_include("model_data.h")
#include "model_data.h"  // written by bagwise export --embed: the model as an array
#define MODEL_IS_EMBEDDED
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("Os")  // what follows takes no time: small rather than fast
#endif

namespace {

const char kUsage[] =
    "usage: classify [--model FILE] [--groups N] [--top N] [--probabilities] [--threads N] [--time N] [FILE...]\n"
    "  --model FILE     another model file\n"
    "  --groups N       another number of groups that the model has a classifier for\n"
    "  --top N          number of classes to print, 3 unless told\n"
    "  --probabilities  print calibrated probabilities instead of scores\n"
    "  --threads N      threads that work on an image, 1 unless told\n"
    "  --time N         classify each item N times; print milliseconds and memory on standard error\n";

struct Options {
    std::string model;
    int groups = 0, top = 3, threads = 1, time = 0;
    bool probabilities = false;
    std::vector<std::string> files;
};

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

int number(const std::string &text, int least) {
    char *end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end || value < least || value > 1000000000)
        throw bagwise::Error("A number of at least " + std::to_string(least) + " is expected, got " + text + ".");
    return static_cast<int>(value);
}

// One run of the program: a model, what it needs to classify items, and where answers go.
class Program {
  public:
    Program(const bagwise::Model &model, const Options &options)
        : model_(model), workspace_(model, options.threads), options_(options), best_(model.classes().size()) {
        if (!model.has_classifier()) throw bagwise::Error("This model has no classifier, so there are no classes to print.");
        if (options.probabilities && !model.has_probabilities()) throw bagwise::Error("This model has no calibrated probabilities.");
    }

    void read(std::istream &in, const std::string &name) {
        if (model_.items() == bagwise::Items::images) return read_images(in, name);
        if (model_.items() == bagwise::Items::texts) return read_texts(in, name);
        read_rows(in, name);
    }

    void tell_times(double load) const {
        if (times_.empty()) return;
        const auto median = [](std::vector<double> all) {
            std::sort(all.begin(), all.end());
            return all[all.size() / 2];
        };
        std::fprintf(stderr, "load_ms %.3f\nitem_ms %.3f\nitem_cpu_ms %.3f\n", load, median(times_), median(cpu_times_));
        std::ifstream status("/proc/self/status");  // Linux
        for (std::string line; std::getline(status, line);)
            if (line.compare(0, 6, "VmHWM:") == 0) std::fprintf(stderr, "peak_kb %ld\n", std::atol(line.c_str() + 6));
    }

  private:
    // One of the three.
    struct Item {
        const bagwise::Image *image;
        const std::string *text;
        const std::vector<double> *row;
    };

    void classify(const Item &item) {
        if (item.image) workspace_.classify(*item.image);
        if (item.text) workspace_.classify_text(*item.text);
        if (item.row) workspace_.classify_row(item.row->data(), item.row->size());
    }

    void answer(const std::string &name, const Item &item) {
        for (int k = 0; k < std::max(options_.time, 1); ++k) {
            const auto start = Clock::now();
            const std::clock_t cpu = std::clock();
            classify(item);
            if (!options_.time) continue;
            times_.push_back(milliseconds(start));
            cpu_times_.push_back(1000.0 * static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
        }
        std::vector<double> shown = workspace_.scores();
        if (options_.probabilities) workspace_.probabilities(shown.data());
        std::string line = name;
        const int n = workspace_.top(std::min<int>(options_.top, static_cast<int>(best_.size())), best_.data());
        for (int k = 0; k < n; ++k) {
            char score[32];
            std::snprintf(score, sizeof score, "%.6g", shown[static_cast<std::size_t>(best_[k])]);
            line += '\t' + model_.classes()[static_cast<std::size_t>(best_[k])] + '\t' + score;
        }
        std::puts(line.c_str());
    }

    // The next number of the header of a PNM file, without comments.
    static int header_number(std::istream &in, const std::string &name) {
        int c = in.get();
        while (c == '#' || std::isspace(c)) {
            if (c == '#')
                while (c != '\n' && c != EOF) c = in.get();
            c = in.get();
        }
        int value = 0;
        if (!std::isdigit(c)) throw bagwise::Error(name + " is no PNM file: its header ends early.");
        for (; std::isdigit(c); c = in.get())
            if ((value = 10 * value + (c - '0')) > 65535) throw bagwise::Error(name + " is too large: sides have at most 65535 pixels.");
        return value;  // one character after the last number was read as well, as the format wants it
    }

    void read_images(std::istream &in, const std::string &name) {
        std::vector<std::uint8_t> pixels, colors;
        for (int count = 0;; ++count) {
            while (std::isspace(in.peek())) in.get();
            char magic[2] = {};
            if (!in.read(magic, 2)) {
                if (count == 0) throw bagwise::Error(name + " has no image.");
                return;
            }
            if (magic[0] != 'P' || (magic[1] != '5' && magic[1] != '6'))
                throw bagwise::Error(name + " is no PNM file of bytes, which begins with P5 (grey) or P6 (colour). Convert it first, such as by: convert photo.jpg photo.ppm");
            const int channels = magic[1] == '6' ? 3 : 1;
            const int width = header_number(in, name), height = header_number(in, name);
            if (const int most = header_number(in, name); most != 255) throw bagwise::Error(name + " must have values up to 255, got " + std::to_string(most) + ".");
            const std::size_t size = static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * static_cast<std::size_t>(channels);
            if (size > std::size_t{1} << 30) throw bagwise::Error(name + " has more than 2^30 bytes.");
            pixels.resize(size);
            if (!in.read(reinterpret_cast<char *>(pixels.data()), static_cast<std::streamsize>(size)))
                throw bagwise::Error(name + " is cut short: " + std::to_string(size) + " bytes of pixels are expected.");
            bagwise::Image image{pixels.data(), width, height, channels};
            if (channels == 1 && model_.needs_color()) {  // colours of a grey image
                colors.resize(3 * size);
                for (std::size_t k = 0; k < 3 * size; ++k) colors[k] = pixels[k / 3];
                image = bagwise::Image{colors.data(), width, height, 3};
            }
            answer(count ? name + "[" + std::to_string(count) + "]" : name, {&image, nullptr, nullptr});
        }
    }

    void read_texts(std::istream &in, const std::string &name) {
        std::size_t count = 0;
        for (std::string line; std::getline(in, line);) {
            if (!line.empty() && line.back() == '\r') line.pop_back();
            answer(name + ":" + std::to_string(++count), {nullptr, &line, nullptr});
        }
    }

    static std::vector<std::string> fields(const std::string &line) {
        std::vector<std::string> found(1);
        bool quoted = false;
        for (std::size_t k = 0; k < line.size(); ++k) {
            const char c = line[k];
            if (quoted && c == '"' && k + 1 < line.size() && line[k + 1] == '"') found.back() += line[++k];
            else if (c == '"') quoted = !quoted;
            else if (c == ',' && !quoted) found.emplace_back();
            else found.back() += c;
        }
        return found;
    }

    static bool parse(const std::string &text, double &value) {
        char *end = nullptr;
        value = std::strtod(text.c_str(), &end);
        while (*end == ' ') ++end;
        return !text.empty() && *end == 0 && std::isfinite(value);
    }

    // Lines of numbers, one per column of the model in their order; or a first line with names of columns, by which they
    // are found: those that the model does not know are left out.
    void read_rows(std::istream &in, const std::string &name) {
        const std::size_t n_columns = static_cast<std::size_t>(model_.n_words());
        std::vector<std::size_t> places(n_columns);
        for (std::size_t k = 0; k < n_columns; ++k) places[k] = k;
        std::vector<double> row(n_columns);
        std::size_t expected = n_columns, count = 0;
        for (std::string line; std::getline(in, line);) {
            if (!line.empty() && line.back() == '\r') line.pop_back();
            const std::vector<std::string> given = fields(line);
            double value = 0;
            if (++count == 1 && !parse(given[0], value)) {
                for (std::size_t k = 0; k < n_columns; ++k) {
                    const auto wanted = model_.word_name(static_cast<int>(k));
                    const auto found = std::find(given.begin(), given.end(), wanted);
                    if (wanted.empty()) {
                        if (given.size() == n_columns) continue;
                        throw bagwise::Error("The columns of this model have no names: give its " + std::to_string(n_columns) + " columns in their order.");
                    }
                    if (found == given.end()) throw bagwise::Error(name + " has no column " + std::string(wanted) + ", which the model needs.");
                    places[k] = static_cast<std::size_t>(found - given.begin());
                }
                expected = given.size();
                continue;
            }
            const std::string place = name + ":" + std::to_string(count);
            if (given.size() != expected) throw bagwise::Error(place + " has " + std::to_string(given.size()) + " fields, expected " + std::to_string(expected) + ".");
            for (std::size_t k = 0; k < n_columns; ++k)
                if (!parse(given[places[k]], row[k])) throw bagwise::Error(place + ": field " + std::to_string(places[k] + 1) + " is no number: " + given[places[k]]);
            answer(place, {nullptr, nullptr, &row});
        }
    }

    bagwise::Model model_;
    bagwise::Workspace workspace_;
    Options options_;
    std::vector<std::int32_t> best_;
    std::vector<double> times_, cpu_times_;  // milliseconds of each call, and of all threads of the process
};

Options parse_options(int argc, char **argv) {
    Options options;
    const std::string self = argc ? argv[0] : "";
    const std::size_t slash = self.find_last_of("/\\");
    options.model = (slash == std::string::npos ? "" : self.substr(0, slash + 1)) + "model.bagwise";
    for (int k = 1; k < argc; ++k) {
        const std::string name = argv[k];
        const auto value = [&]() -> std::string {
            if (k + 1 >= argc) throw bagwise::Error(name + " needs a value.");
            return argv[++k];
        };
        if (name == "--help" || name == "-h") std::fputs(kUsage, stdout), std::exit(0);
        else if (name == "--model") options.model = value();
        else if (name == "--groups") options.groups = number(value(), 1);
        else if (name == "--top") options.top = number(value(), 1);
        else if (name == "--threads") options.threads = number(value(), 1);
        else if (name == "--time") options.time = number(value(), 1);
        else if (name == "--probabilities") options.probabilities = true;
        else if (name.size() > 1 && name[0] == '-') throw bagwise::Error("Unknown option " + name + ".\n" + kUsage);
        else options.files.push_back(name);
#ifdef MODEL_IS_EMBEDDED
        if (name == "--model") throw bagwise::Error("The model of this program is part of it: --model is not accepted.");
#endif
    }
    if (options.files.empty()) options.files.push_back("-");
    return options;
}

bagwise::Model load(const Options &options) {
#ifdef MODEL_IS_EMBEDDED
    return bagwise::Model::from_memory(model_data, sizeof model_data, options.groups);
#else
    return bagwise::Model::load(options.model, options.groups);
#endif
}

}  // namespace

int main(int argc, char **argv) {
    try {
        const Options options = parse_options(argc, argv);
        const auto start = Clock::now();
        Program program(load(options), options);
        const double loaded = milliseconds(start);
        for (const std::string &path : options.files) {
            if (path == "-") {
                program.read(std::cin, path);
                continue;
            }
            std::ifstream file(path, std::ios::binary);
            if (!file) throw bagwise::Error(path + " cannot be opened.");
            program.read(file, path);
        }
        program.tell_times(loaded);
        return 0;
    } catch (const std::exception &error) {
        std::fflush(stdout);
        std::fprintf(stderr, "classify: %s\n", error.what());
        return 1;
    }
}
