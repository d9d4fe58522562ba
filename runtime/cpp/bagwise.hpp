// bagwise.hpp: models of bagwise on devices, from pixels, texts or numbers to classes. C++17, the standard library
// alone.
//
//     bagwise::Model model = bagwise::Model::load("scenes.bagwise");
//     bagwise::Workspace workspace(model);                                // one per thread
//     int k = workspace.classify({pixels, width, height, 3});             // 8-bit grey (1), RGB (3) or RGBA (4)
//     std::puts(model.classes()[k].c_str());
//
// It computes what bagwise.Model computes (docs/model-file.md of bagwise has the file and the steps), and checks files
// as bagwise.runtime does. What it does not support it refuses when it loads a model, by a bagwise::Error that says
// what. Nothing is allocated for items that are no larger than those before. BAGWISE_NO_THREADS leaves std::thread out.
#ifndef BAGWISE_HPP
#define BAGWISE_HPP

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
#ifndef BAGWISE_NO_THREADS
#include <condition_variable>
#include <mutex>
#include <thread>
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Model files are little-endian, and this runtime does not swap bytes: big-endian machines are not supported."
#endif
#if defined(__GNUC__)
#define BAGWISE_APART __attribute__((noinline))
#define BAGWISE_RESTRICT __restrict__
#else
#define BAGWISE_APART
#define BAGWISE_RESTRICT
#endif
static_assert(sizeof(float) == 4 && sizeof(double) == 8 && std::numeric_limits<float>::is_iec559, "IEEE 754 is needed");

namespace bagwise {

// Raised for files that are no models or not supported, and for items that do not fit a model.
class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

enum class Items { images, texts, table };

// An upright image of 8 bits: rows of `stride` bytes (0: without gaps), 1 (grey), 3 (RGB) or 4 (RGBA) bytes per pixel.
struct Image {
    const std::uint8_t *pixels = nullptr;
    int width = 0, height = 0, channels = 1;
    std::size_t stride = 0;
};

// A word of an item in one of its groups, and its part of a score.
struct Term {
    std::int32_t word, group;
    double weight;
};

// A part of an item and its part of a score: a square of an image with its upper left corner, a token of a text from
// byte `start` to `end`, or the column `word` of a table.
struct Place {
    double x, y, side;
    std::uint64_t start, end;
    std::int32_t word;
    double weight;
};

namespace detail {

using std::int32_t, std::int64_t, std::size_t, std::string, std::string_view, std::uint8_t, std::vector;

// Limits far above real models, as in bagwise.runtime; sides of images and smoothing are limited by this runtime.
constexpr int64_t kMostHeader = 1 << 22, kMostCells = 1 << 10, kMostGroups = 1 << 20, kMostTable = 1 << 25;
constexpr int64_t kMostWords = 0x7fffffff, kMostCount = int64_t(1) << 62, kMostBytes = 1 << 30;
constexpr int kDeepest = 64, kMostValues = 1 << 19, kMostParts = 16, kSchema = 1, kMostSide = 1 << 15;
constexpr double kLargest = 1e16, kLargestWeight = 1e37, kMostSmoothing = 1000;

// ---- helpers ----

inline bool begins_with(string_view text, string_view start) { return text.substr(0, start.size()) == start; }
inline bool ends_with(string_view text, string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}
inline bool has_only(string_view text, const char *accepted) { return text.find_first_not_of(accepted) == text.npos; }
template <class Range, class Test>
bool all_of(const Range &range, Test test) {
    return std::all_of(std::begin(range), std::end(range), test);
}

// The product of sizes, which memory must be there for: also where addresses have 32 bits, it does not wrap around.
template <class... Sizes>
size_t room_for(Sizes... sizes) {
    if ((1.0 * ... * static_cast<double>(sizes)) > static_cast<double>(PTRDIFF_MAX / 8)) throw std::bad_alloc();
    return (size_t{1} * ... * static_cast<size_t>(sizes));
}

// ---- UTF-8 ----

// Decode a character and go behind it. What is no UTF-8 is one U+FFFD for each part that could begin a character, as
// Python's errors="replace" has it, and `wrong` is set. Surrogates are wrong unless `surrogates`.
inline char32_t decode(string_view text, size_t &at, bool &wrong, bool surrogates = false) {
    const unsigned first = static_cast<unsigned char>(text[at++]);
    if (first < 0x80) return first;
    const int more = first < 0xc2 || first > 0xf4 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    // of the second byte: no overlong forms, surrogates, or numbers beyond U+10FFFF
    unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned high = first == 0xed && !surrogates ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    char32_t found = first & (0x3fu >> more);
    for (int k = 0; k < more; ++k, low = 0x80, high = 0xbf) {
        const unsigned next = at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
        if (next < low || next > high) return wrong = true, 0xfffd;
        found = found << 6 | (next & 0x3f);
        ++at;
    }
    return more ? found : (wrong = true, 0xfffd);
}

inline void encode(char32_t c, string &out) {
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    const unsigned marks[] = {0, 0xc0, 0xe0, 0xf0};
    out += static_cast<char>(marks[more] | c >> 6 * more);
    for (int k = more - 1; k >= 0; --k) out += static_cast<char>(0x80 | (c >> 6 * k & 0x3f));
}

inline bool is_utf8(string_view text) {
    bool wrong = false;
    for (size_t at = 0; at < text.size() && !wrong;) decode(text, at, wrong, true);
    return !wrong;
}

// ---- JSON ----

struct Json {
    enum Type { null, boolean, integer, number, string, list, object } type = null;
    int64_t whole = 0;  // of an integer; of a boolean 0 or 1
    double real = 0;    // of an integer or a number
    std::string text;
    vector<Json> items;         // of a list or an object
    vector<std::string> names;  // of the items of an object, ascending

    bool is_count(int64_t least = 0, int64_t most = kMostCount) const {
        return type == integer && least <= whole && whole <= most;
    }
    bool is_one_of(std::initializer_list<const char *> accepted) const {
        return type == string && std::any_of(accepted.begin(), accepted.end(), [&](auto one) { return text == one; });
    }
    const Json *find(string_view name) const {
        const auto found = std::lower_bound(names.begin(), names.end(), name);
        return found == names.end() || *found != name ? nullptr : &items[found - names.begin()];
    }
    const Json &at(string_view name) const {  // null if there is no such member
        static const Json nothing;
        const Json *found = find(name);
        return found ? *found : nothing;
    }
};

// ---- errors ----

struct Quoted {
    string_view text;
};

// A part of the message of an error. Messages are put together only if they are needed.
class Part {
  public:
    Part(const char *text) : text_(text) {}
    Part(string_view text) : text_(text) {}
    Part(const string &text) : text_(text) {}
    Part(const Quoted &quoted) : kind_('q'), text_(quoted.text) {}
    Part(const Json &json) : kind_('j'), json_(&json) {}
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    Part(T value) : kind_(std::is_same_v<T, char> ? 'c'
                          : std::is_integral_v<T> ? 'i'
                                                  : 'f') {
        if (std::is_integral_v<T>) whole_ = static_cast<long long>(value);
        else real_ = static_cast<double>(value);
    }
    void put(string &out) const {
        char digits[40];
        if (kind_ == 't') out += text_;
        if (kind_ == 'c') out += static_cast<char>(whole_);
        if (kind_ == 'i') std::snprintf(digits, sizeof digits, "%lld", whole_), out += digits;
        if (kind_ == 'f') std::snprintf(digits, sizeof digits, "%.9g", real_), out += digits;
        if (kind_ == 'j') put_json(out);
        if (kind_ != 'q') return;
        out += '"';
        for (const char c : text_.substr(0, 100)) out += c >= 0 && c < 0x20 ? ' ' : c;
        out += text_.size() > 100 ? "…\"" : "\"";
    }

  private:
    void put_json(string &out) const {
        const size_t start = out.size();
        if (json_->type == Json::null) out += "null";
        if (json_->type == Json::boolean) out += json_->whole ? "true" : "false";
        if (json_->type == Json::string) Part(Quoted{json_->text}).put(out);
        if (json_->type == Json::integer) Part(json_->whole).put(out);
        if (json_->type == Json::number) Part(json_->real).put(out);
        if (json_->type != Json::list && json_->type != Json::object) return;
        out += json_->type == Json::list ? '[' : '{';
        for (size_t k = 0; k < json_->items.size() && out.size() < start + 100; ++k) {
            if (k) out += ", ";
            if (json_->type == Json::object) Part(Quoted{json_->names[k]}).put(out), out += ": ";
            Part(json_->items[k]).put(out);
        }
        if (out.size() > start + 100) out.resize(start + 100), out += "…";
        out += json_->type == Json::list ? ']' : '}';
    }

    char kind_ = 't';
    string_view text_;
    const Json *json_ = nullptr;
    long long whole_ = 0;
    double real_ = 0;
};

[[noreturn]] BAGWISE_APART inline void fail_with(std::initializer_list<Part> parts) {
    string message;
    for (const Part &part : parts) part.put(message);
    throw Error(message);
}
template <class... Parts>
[[noreturn]] void fail(const Parts &...parts) {
    fail_with({Part(parts)...});
}
template <class... Parts>
void check(bool sound, const Parts &...parts) {
    if (!sound) fail_with({Part(parts)...});
}

class JsonParser {
  public:
    static Json parse(string_view text) {
        check(is_utf8(text), "its header is no JSON: it is not UTF-8.");
        JsonParser parser(text);
        Json found = parser.value(0);
        parser.space();
        if (parser.at_ != text.size()) parser.wrong("the end");
        check(found.type == Json::object, "its header is no JSON object.");
        return found;
    }

  private:
    explicit JsonParser(string_view text) : text_(text) {}

    [[noreturn]] void wrong(const char *wanted) const {
        fail("its header is no JSON: expected ", wanted, " at character ", at_, '.');
    }
    char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    void space() {
        while (next() == ' ' || next() == '\t' || next() == '\n' || next() == '\r') ++at_;
    }
    bool take(string_view word) {
        const bool there = text_.substr(at_, word.size()) == word;
        at_ += there ? word.size() : 0;
        return there;
    }

    Json value(int depth) {
        check(++n_values_ <= kMostValues, "its header has more than ", kMostValues, " values.");
        space();
        Json found;
        if (next() == '{' || next() == '[') {
            check(depth < kDeepest, "its header is nested in more than ", kDeepest, " lists and objects.");
            container(found, depth);
        } else if (next() == '"') {
            found.type = Json::string;
            found.text = string();
        } else if (take("true") || take("false")) {
            found.type = Json::boolean;
            found.whole = text_[at_ - 2] == 'u';
        } else if (!take("null")) {
            number(found);
        }
        return found;
    }

    void container(Json &found, int depth) {
        const bool named = text_[at_++] == '{';
        const char end = named ? '}' : ']';
        found.type = named ? Json::object : Json::list;
        vector<std::pair<std::string, Json>> members;
        space();
        if (next() != end) do {
                space();
                if (named && next() != '"') wrong("a name");
                std::string name = named ? string() : "";
                space();
                if (named && !take(":")) wrong("a colon");
                members.emplace_back(std::move(name), value(depth + 1));
                space();
            } while (take(","));
        if (next() != end) wrong(named ? "a comma or }" : "a comma or ]");
        ++at_;
        if (named) std::sort(members.begin(), members.end(), [](auto &a, auto &b) { return a.first < b.first; });
        for (auto &[name, held] : members) {
            check(!named || found.names.empty() || found.names.back() != name, "its header has ", Quoted{name},
                  " twice.");
            if (named) found.names.push_back(std::move(name));
            found.items.push_back(std::move(held));
        }
    }

    void number(Json &found) {
        long double value = 0, power = 0;
        int exponent = 0;
        const auto digits = [&](long double &sum, int each) {
            const size_t first = at_;
            for (; next() >= '0' && next() <= '9'; ++at_, exponent += each) sum = sum * 10 + (next() - '0');
            if (at_ == first) wrong("a value");
            return at_ - first;
        };
        const bool negative = take("-"), zero = next() == '0';
        const size_t n_digits = digits(value, 0);
        if (zero && n_digits > 1) wrong("a value");
        bool whole = n_digits < 19;  // longer ones are no counts
        if (take(".")) whole = false, digits(value, -1);
        if (take("e") || take("E")) {
            const bool small = !take("+") && take("-");
            whole = false, digits(power, 0);
            power = small ? -power : power;
        }
        power += exponent;
        value *= negative ? -1 : 1;
        value = power < 0 ? value / std::pow(10.0L, -power) : power > 0 ? value * std::pow(10.0L, power) : value;
        found.type = whole ? Json::integer : Json::number;
        found.real = static_cast<double>(value);
        found.whole = whole ? static_cast<int64_t>(value) : 0;
    }

    char32_t hex() {
        char32_t found = 0;
        for (int k = 0; k < 4; ++k, ++at_) {
            static constexpr char kDigits[] = "0123456789abcdef0123456789ABCDEF";
            if (!next() || !std::strchr(kDigits, next())) wrong("a hexadecimal digit");
            found = found * 16 + (std::strchr(kDigits, next()) - kDigits) % 16;
        }
        return found;
    }

    std::string string() {
        std::string found;
        for (++at_; next() != '"';) {
            if (static_cast<unsigned char>(next()) < 0x20) wrong("a character of a string");  // or the end of the text
            if (next() != '\\') {
                found += text_[at_++];
                continue;
            }
            ++at_;
            static constexpr char kEscapes[] = "\"\\/bfnrt", kMeant[] = "\"\\/\b\f\n\r\t";
            const char *known = next() ? std::strchr(kEscapes, next()) : nullptr;
            if (known) {
                found += kMeant[known - kEscapes];
                ++at_;
                continue;
            }
            if (!take("u")) wrong("an escaped character");
            char32_t code = hex();
            const size_t after = at_;
            if (code >= 0xd800 && code < 0xdc00 && take("\\u")) {
                const char32_t second = hex();
                if (second >= 0xdc00 && second < 0xe000) code = 0x10000 + ((code - 0xd800) << 10) + (second - 0xdc00);
                else at_ = after;  // a surrogate alone
            }
            encode(code, found);
        }
        ++at_;
        return found;
    }

    string_view text_;
    size_t at_ = 0;
    int n_values_ = 0;
};

// ---- files ----

// CRC-32, that of zlib, PNG and gzip, by tables for eight bytes at a time.
inline std::uint32_t crc32(const void *content, size_t size, std::uint32_t before = 0) {
    static const auto tables = [] {
        std::array<std::array<std::uint32_t, 256>, 8> made{};
        for (std::uint32_t k = 0; k < 256; ++k) {
            made[0][k] = k;
            for (int bit = 0; bit < 8; ++bit) made[0][k] = made[0][k] >> 1 ^ (made[0][k] & 1 ? 0xedb88320u : 0);
        }
        for (int t = 1; t < 8; ++t)
            for (int k = 0; k < 256; ++k) made[t][k] = made[t - 1][k] >> 8 ^ made[0][made[t - 1][k] & 0xff];
        return made;
    }();
    const auto *bytes = static_cast<const unsigned char *>(content);
    std::uint32_t sum = ~before;
    for (; size >= 8; size -= 8, bytes += 8) {
        std::uint32_t both[2];
        std::memcpy(both, bytes, 8);
        both[0] ^= sum;
        sum = 0;
        for (int k = 0; k < 8; ++k) sum ^= tables[7 - k][both[k / 4] >> 8 * (k % 4) & 0xff];
    }
    for (; size; --size) sum = tables[0][(sum ^ *bytes++) & 0xff] ^ sum >> 8;
    return ~sum;
}

// Read a file.
inline vector<unsigned char> read_file(const string &path) {
    namespace fs = std::filesystem;
    std::error_code none;
    const fs::path file = fs::u8path(path);
    const bool there = fs::is_regular_file(file, none);
    const std::uintmax_t size = there ? fs::file_size(file, none) : 0;
    check(!fs::is_directory(file, none), "it is a folder. Give the name of a file.");
    check(there && !none && size > 0, "there is no such file, or it is empty.");
    check(size <= kMostBytes, "it has ", size, " bytes; accepted: up to ", kMostBytes, '.');
    vector<unsigned char> content(size);
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> opened(std::fopen(file.string().c_str(), "rb"), std::fclose);
    check(opened && std::fread(content.data(), 1, size, opened.get()) == size, "it cannot be read.");
    return content;
}

// The header of a file and the places of its arrays, with all that can be checked before arrays are read.
class File {
  public:
    File(const unsigned char *content, size_t size) : data_(content), size_(size) {
        std::uint64_t length = 0;
        if (size > 8) std::memcpy(&length, content, 8);
        check(size > 8 && length > 0 && length <= std::min<std::uint64_t>(kMostHeader, size - 8),
              "it is cut short, or no safetensors file (", size, " bytes).");
        data_ += 8 + length, size_ -= 8 + length;
        const Json entries =
            JsonParser::parse({reinterpret_cast<const char *>(content) + 8, static_cast<size_t>(length)});
        const Json &about = entries.at("__metadata__");
        check(about.at("bagwise").type == Json::string, "it was not written by bagwise.");
        header = JsonParser::parse(about.at("bagwise").text);
        check_members();
        for (size_t k = 0; k < entries.items.size(); ++k)
            if (entries.names[k] != "__metadata__") add(entries.names[k], entries.items[k]);
        check_places();
        check_header();
        check_sizes();
        check_arrays();
        check_sums(about);
    }

    bool has(const string &name) const { return arrays_.count(name) != 0; }
    bool is(const string &name, string_view type) const {
        return has(name) && begins_with(arrays_.at(name).form, type);
    }
    int64_t width(const string &name) const { return has(name) ? arrays_.at(name).width : 0; }

    // The numbers of an array, whose type and shape are known to be right.
    template <class T>
    vector<T> get(const string &name) const {
        const Array &array = arrays_.at(name);
        vector<T> found((array.end - array.first) / sizeof(T));
        if (!found.empty()) std::memcpy(found.data(), data_ + array.first, array.end - array.first);
        return found;
    }
    static string codebook_name(size_t v) { return v ? "codebook_" + std::to_string(v) : "codebook"; }

    Json header;
    int64_t d = 0, n = 0, n_cells = 0, flat = 0, n_merges = 0;  // flat: 0 for null
    vector<int64_t> heads, vocabularies;                        // one vocabulary at least
    bool compact = false;                                       // with groups instead of merges

  private:
    struct Array {
        string form;  // such as F32 (12, 4)
        int64_t width, first, end;
    };
    static string form(const string &type, const vector<int64_t> &shape) {
        string text = type + " (";
        for (const int64_t one : shape) text += (&one == shape.data() ? "" : ", ") + std::to_string(one);
        return text + ")";
    }

    void check_members() {
        const Json &kind = header.at("kind"), &number = header.at("schema");
        check(kind.is_one_of({"bagwise.Model"}), "it holds ", kind, ", not \"bagwise.Model\".");
        check(number.is_count(kSchema, kSchema), "it was written by another version of bagwise: it has schema ", number,
              ", and this one reads ", kSchema, '.');
        static constexpr const char *kNeeded[] = {
            "classes",   "criterion", "descriptor", "heads",      "items",   "kind",   "library",   "n_words",
            "normalize", "options",   "path",       "provenance", "pyramid", "schema", "tokenizer", "vocabulary_size"};
        static constexpr const char *kOptional[] = {"calibration", "flattened", "group_names",  "norm",
                                                    "term",        "unedited",  "vocabularies", "weight_range"};
        check(!header.find("assignment"),
              "it assigns descriptors to several words, but this program to the nearest one alone; use an ONNX graph.");
        size_t n_known = 0;
        for (const char *name : kNeeded)
            check(header.find(name), "its header is not that of a model: it has no ", name, '.'), ++n_known;
        for (const char *name : kOptional) n_known += header.find(name) != nullptr;
        check(n_known == header.names.size(), "its header is not that of a model: it has other members.");
    }

    void add(const string &name, const Json &entry) {
        const Json &type = entry.at("dtype"), &shape = entry.at("shape"), &places = entry.at("data_offsets");
        const auto are_counts = [](const Json &held) {
            return held.type == Json::list && held.items.size() <= 2 &&
                   all_of(held.items, [](const Json &one) { return one.is_count(); });
        };
        int64_t size = type.is_one_of({"U8", "I8"})     ? 1
                       : type.is_one_of({"U16"})        ? 2
                       : type.is_one_of({"F32", "I32"}) ? 4
                       : type.is_one_of({"F64", "I64"}) ? 8
                                                        : 0;
        const bool sound =
            entry.type == Json::object && size && are_counts(shape) && are_counts(places) && places.items.size() == 2;
        check(sound, "its array ", Quoted{name}, " cannot be ", entry, '.');
        vector<int64_t> sides;
        for (const Json &one : shape.items) {
            sides.push_back(one.whole);
            size = one.whole && size > kMostCount / one.whole ? kMostCount : size * one.whole;
        }
        const int64_t first = places.items[0].whole, end = places.items[1].whole;
        check(first <= end && size == end - first, "its array ", Quoted{name}, ", ", form(type.text, sides),
              ", does not fill the bytes ", first, " to ", end, '.');
        arrays_[name] = {form(type.text, sides), sides.empty() ? 0 : sides.back(), first, end};
    }

    void check_places() const {
        vector<std::pair<int64_t, int64_t>> places;
        for (const auto &[name, array] : arrays_) places.emplace_back(array.first, array.end);
        std::sort(places.begin(), places.end());
        int64_t end = 0, rest = size_;
        for (const auto &[first, last] : places) {
            check(first == end, "its arrays overlap or leave gaps at byte ", end, '.');
            end = last;
        }
        check(end == rest, "its arrays end at byte ", end, " behind the header, but the file at ", rest, '.');
    }

    void check_member(bool sound, const char *name, const char *accepted) const {
        check(sound, "its ", name, " cannot be ", header.at(name), "; accepted: ", accepted, '.');
    }

    void check_header() {
        const Json &classes = header.at("classes"), &sizes = header.at("heads"), &steps = header.at("normalize"),
                   &parts = header.at("vocabularies");
        const Json &named = header.at("group_names"), &factors = header.at("calibration"),
                   &grids = header.at("pyramid"), &span = header.at("weight_range");
        check_member(header.at("vocabulary_size").is_count(1, kMostWords), "vocabulary_size", "1 to 2147483647 words");
        d = header.at("vocabulary_size").whole;
        n = header.at("n_words").is_count(1) ? header.at("n_words").whole : 0;
        check_member(header.at("items").is_one_of({"images", "videos", "texts", "table"}), "items",
                     "images, videos, texts, table");
        size_t width = 0;
        vector<string_view> names;
        for (const Json &one : classes.items) {
            names.push_back(one.text);
            width = std::max<size_t>(
                width, std::count_if(one.text.begin(), one.text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
        }
        std::sort(names.begin(), names.end());
        const bool differ = std::adjacent_find(names.begin(), names.end()) == names.end();
        check_member(classes.type == Json::list && differ &&
                         all_of(classes.items, [](const Json &one) { return one.type == Json::string; }),
                     "classes", "a list of different texts");
        check(width <= 10000 && width * names.size() <= kMostTable, "its ", names.size(),
              " classes have names of up to ", width, " characters; 10000 are accepted.");
        check_member(steps.type == Json::list && all_of(steps.items,
                                                        [](const Json &one) {
                                                            return one.is_one_of({"l1", "power", "l2"});
                                                        }),
                     "normalize", "a list out of l1, power, l2");
        bool sound = sizes.type == Json::list;
        for (const Json &one : sizes.items) {
            sound = sound && one.is_count(heads.empty() ? 1 : heads.back() + 1);
            heads.push_back(one.whole);
        }
        check_member(sound, "heads", "numbers of groups, ascending");
        check_member(!header.find("term") || header.at("term").is_one_of({"count", "log", "sqrt"}), "term",
                     "count, log, sqrt");
        check_member(header.at("norm").type == Json::null || header.at("norm").is_one_of({"l1", "l2"}), "norm",
                     "null, l1, l2");
        sound = named.type == Json::object || named.type == Json::null;
        for (size_t k = 0; k < named.names.size(); ++k)
            sound = sound && named.items[k].type == Json::string && !named.names[k].empty() &&
                    named.names[k].size() < 10 && has_only(named.names[k], "0123456789") &&
                    std::stoll(named.names[k]) < n;
        check_member(sound, "group_names", "null, or texts by numbers of groups below n_words");
        sound = factors.type == Json::object || factors.type == Json::null;
        for (size_t k = 0; k < factors.names.size(); ++k)
            sound = sound && factors.items[k].type == Json::number && factors.items[k].real > 0 &&
                    factors.items[k].real < kLargest &&
                    !all_of(heads, [&](int64_t size) { return std::to_string(size) != factors.names[k]; });
        check_member(sound, "calibration", "null, or numbers above 0 by sizes of heads");
        int64_t rest = d;
        sound = parts.type == Json::null ||
                (parts.type == Json::list && parts.items.size() > 1 && parts.items.size() <= kMostParts);
        for (const Json &one : parts.items) {
            sound = sound && one.is_count(1, rest);
            rest -= sound ? one.whole : 0;
            vocabularies.push_back(one.whole);
        }
        check(sound && (vocabularies.empty() || rest == 0), "its vocabularies of ", d, " words cannot be ", parts,
              "; accepted: null, or 2 to 16 numbers that add up to it.");
        sound = grids.type == Json::list;
        for (const Json &grid : grids.items) {
            sound = sound && grid.type == Json::list && grid.items.size() == 2 &&
                    all_of(grid.items, [](const Json &one) { return one.is_count(1, kMostCells); }) &&
                    n_cells <= kMostCells;
            n_cells += sound ? grid.items[0].whole * grid.items[1].whole : 0;
        }
        check_member(
            sound && n_cells >= 1 &&
                (n_cells == 1 || (has("codebook") && n_cells <= std::min(kMostCells, kMostTable / d))),
            "pyramid",
            "grids [rows, columns], at most 1024 cells and 2^25 cells times words; several cells need a codebook");
        sound = span.type == Json::list && span.items.size() == 2 &&
                all_of(span.items, [](const Json &one) { return one.type == Json::number; });
        check_member(
            span.type == Json::null || (sound && 0 < span.items[0].real && span.items[0].real <= span.items[1].real &&
                                        span.items[1].real < kLargest),
            "weight_range", "null, or [low, high] above 0");
    }

    void check_sizes() {
        const int64_t k = width("scores");
        const Json &flattened = header.at("flattened");
        check_member(flattened.type == Json::null || flattened.is_count(k + 1, std::min<int64_t>(d - 1, 1 << 16)),
                     "flattened",
                     "null, or a number of groups above that of its merges, below that of its words, up to 65536");
        flat = flattened.whole;
        compact = !flat && has("groups") && n >= 1 && n <= d && (heads.empty() || heads == vector<int64_t>{n});
        n_merges = flat ? d - flat + k : compact ? d - n : k;
        check(d - kMostGroups <= n_merges && n_merges < d, d, " words cannot have ", n_merges, " merges.");
        const auto fits = [&](int64_t size) { return size >= d - n_merges && size <= (flat ? flat : d); };
        check(fits(n) && all_of(heads, fits) && (header.at("classes").items.size() > 1 || heads.empty()), "its heads ",
              header.at("heads"), " or n_words ", header.at("n_words"), " do not suit ", d, " words, ", n_merges,
              " merges and ", header.at("classes").items.size(), " classes.");
    }

    // Check that types and shapes of the arrays agree with the header.
    void check_arrays() {
        const int64_t n_classes = header.at("classes").items.size(), k = width("scores");
        const bool texts = header.at("items").text == "texts", several = !vocabularies.empty();
        std::map<string, string> wanted;
        const auto optional = [&](const string &name, const string &one) {
            if (has(name)) wanted[name] = one;
        };
        const auto either = [&](const string &name, const string &scale, int64_t rows, int64_t columns) {
            const bool bytes = is(name, "I8");
            wanted[name] = form(bytes ? "I8" : "F32", {rows, columns});
            if (bytes) wanted[scale] = form("F32", {rows});
        };
        if (!compact) wanted = {{"merges", form("I32", {k, 2})}, {"scores", form("F64", {k})}};
        const string narrow = (flat ? flat : n) <= 256 ? "U8" : "U16";
        if (flat || compact) wanted["groups"] = form(narrow, {d});
        for (const int64_t size : heads) {
            const string name = "head_" + std::to_string(size);
            either(name + "_coef", name + "_scale", n_classes, n_cells * size);
            wanted[name + "_intercept"] = form("F32", {n_classes});
        }
        if (has("names")) wanted["names"] = form("U8", {width("names")}), wanted["name_offsets"] = form("I64", {d + 1});
        if (!several) vocabularies = {d};
        for (size_t v = 0; v < vocabularies.size(); ++v)
            if (several || has("codebook"))
                either(codebook_name(v), codebook_name(v) + "_scale", vocabularies[v],
                       std::max<int64_t>(1, width(codebook_name(v))));
        optional("word_totals", form("F64", {d}));
        const bool coded = header.at("weight_range").type != Json::null;
        if (coded) wanted["weight_codes"] = form("U8", {d});
        if (!coded) optional("word_weights", form("F32", {d}));
        optional("item_hashes", form("I64", {width("item_hashes")}));
        if (header.at("items").text == "table") optional("column_shift", form("F64", {d}));
        if (texts && !has("names") && has("hashes"))
            wanted["hashes"] = form("U16", {d}), wanted["hash_starts"] = form("I32", {257});
        for (const auto &[name, array] : arrays_)  // that only the library reads
            if (begins_with(name, "edits") || begins_with(name, "unedited_") || begins_with(name, "statistics"))
                wanted[name] = array.form;
        for (const auto &[name, array] : arrays_) {
            const auto right = wanted.find(name);
            check(right != wanted.end(), "its array ", Quoted{name}, " is ", array.form, ", expected none.");
            check(right->second == array.form, "its array ", Quoted{name}, " is ", array.form, ", expected ",
                  right->second, '.');
        }
        for (const auto &[name, right] : wanted)
            check(has(name), "its array ", Quoted{name}, " is not there, expected ", right, '.');
    }

    void check_sums(const Json &about) {
        const size_t n_sums = std::count_if(about.names.begin(), about.names.end(),
                                            [](const string &name) { return begins_with(name, "crc32."); });
        for (const auto &[name, array] : arrays_) {
            const Json *held = about.find("crc32." + name);
            check(held && n_sums == arrays_.size(), "it has ", n_sums,
                  " checksums, not one for each of its arrays such as ", Quoted{name}, '.');
            char digits[16];
            std::snprintf(digits, sizeof digits, "%08x",
                          static_cast<unsigned>(crc32(data_ + array.first, array.end - array.first)));
            check(held->is_one_of({digits}), "the checksum of its ", Quoted{name}, " is ", digits, ", expected ", *held,
                  "; its bytes are not those that were written.");
        }
    }

    const unsigned char *data_;
    size_t size_;
    std::map<string, Array> arrays_;
};

// ---- texts ----

// -- tables of Unicode, by unicode_tables.py --
// clang-format off
// Unicode 14.0.0: lengths of runs of characters outside and inside a set.
constexpr char kLetters[] =  // characters of words: str.isalnum() or _
    "1mgdwaXXw1lXdYXXZYXZXtX-XEgaikbdXXX4XbXYYaXXcXXZXXXqX2pX4he5cX1cYXc1f2dxaa1j1hrgaYX3ZXXlYdlYXmXX+z2vhXk1hfYaXbsaXf"
    "XZXtvdhbuXcn1g1w1sZXoXdgagXmaeYYYsXdXXZaZXmXjYXZaiYcYXecaYYsXdXYXYXY-"
    "aXXdgYZmfXZXsXdXYXbZXoXlYagfXheYYYsXdXYXbZX+YXZagXdhXXcZZXaZYXXXYZYZZZisXrjoeXZXtXmZXwZYXYYagedXXaeXZXtXgXbZX-"
    "YXYagXYnfXZX1fYXmXbZXgapXcboZuXfXXYd-gn1mXYidfg1dYXXXbXuXXXgXYfXYbXXfgYa1WX-qieX1axb3p1hqhccaaZXZYdZajiXXgc1cXXbXY"
    "1hXAjXaYdXXXaY1fXaY1XXaYdXXXaYlX1vXaY2ZkqZmm2sYcZJiYnXwb2hZhdojpkokjXZl1q1ZXaXZgcgsgc2vdbY1YXXb2cg-"
    "1d1eYbh1iawch1btf1r1hgcgjX2z1lneZg1f+j1uw1aygZ1nYfd1hYZ1faXcXYZXb6W2W8sYcY1cYcYeXXXXXXX-"
    "Y1rXdXXZZXdZaYcajbZXd3pYYcbhcj3bXaXYgXXZbcXXXXXXaXhYabbaXX1wMs1y2ksJs+13i7bcaZYfXY1cXXbXY1udXmtfdXdXdXdXdXdXdXd2mX"
    "ErZvfdbYba2scZX2wXab1hX2+Zag1W1mm1Wg+eXl1Wg1dlAW6EW2WLKj2Z1kY8jZyq1lm-"
    "Y2m1dfY3dY2WbYXXXbumXZXaXtjcg1qk1oygucZXXYX1cgtvzd1lyhcbXvX1ftZXeagctZXZ1oXXZYYbYXXXuZYhdZicYcYcfdXdX1hXkc3pjgcATa"
    "ita1n88aBkY3g1cdibbXXgXjXbXXXYXYX3i1XBho2WY1s1ei3qbX4dpgdwcwh2vZcYcYcYZ1ZiXwXpXYXlYk1Y3xi1ji1vnY7qzZ1nmxa1af+b1cg+"
    "Y1aaeXb1g4+Ygc1aa1aa1ee1qihXlXdXYXhXlXdXY2Z9tfsgeucX1gXf2bcYXX1iXYZXYtY-Y1cef1mpXYb1Xaw2c1uaqY1llaXZXzgft-"
    "X1W1WeXycbm1sgsYxbwtd2m2f1t1pj1pd1gig9c-"
    "X1gcY2k1eeshaxo1kyqti1rw+XYYXj1j1Wvdgf1algaXYXe1ZZXi1mkahhXXaqhoXv2qdXXXaXlXgd1lngheYYYsXdXYXbZXoXib4+1roabgbZ+1mq"
    "YXXeg5c1l1fa1a1mqXhg1c1hjXdg1sxriad5v1i3q2pieYXYeXYXulXXXkg2ceY1dmXXXyXg1edXrXh1kpXo2f8dfX1bnXlzb+3mdXYX1crXfgccXY"
    "X1WkXdg9sp5zXlr1hSw3c3ln6a2Ii3Xl11l3UnId8DvHvd-Xgc2lXgc+o1mmaigXdXrbpLm2t3f2hbX2Yj2WYXXy5Vue16s1gf8NdaXdXYX9Z1jZna"
    "eCi28a3hbjZfdg5Icq3iv4d2rX2dXYYXYYYaXiXXXdX2XXaYeXdXyXaXbXXZdXAqYvXvX-XvX-XvX-XvX-XvXeY1o1OW-FX1jgdYgaXAX+o1iag17c"
    "dXaXYXlX6bYf1m2adXagOt1xXZXa2i1jXl6YaXxXYXXYXXgXaXXXXcXaXXXXXXZXYXXYXXXXXXXXXXYXXYaXdXaXaXXXgXnbZXbXnIaj2NZg10c19N"
    "W1W41vd6+Y5KYk79n30-G+1FY4Qh";
constexpr char kSpaces[] =  // str.isspace()
    "fbkb3aXwX5E-X2B-hzYbX1lX3TWX";
constexpr char kCased[] =  // cased, and not ignorable
    "2Xwcw1lXgXaXbtX-X6ZXaa6mXx6WaYYZZXXcXXZXXXqX2pX4he5cX1cf1f2Ot1cXXbXY1hYZLW2sYc24Yfd1hYZ2W1i1-"
    "jX1Y3b8sYcY1cYcYeXXXXXXX-"
    "Y1rXdXXZZXdZaYcajbZXd8bXaXYgXXZbcXXXXXXaXcaXYabbaXn1WZYPn1q1Os3yY3dcaZYi1cXXbXU8o1koy4c2kXtZaX1xbYXXXbxYZXPr1hbfd2"
    "mJQWdib10fwcw15b2m3W1aa1a3qhXlXdXYXhXlXdXY1MZ1pj1p2Tj2WLBW2WPCW2rX2dXYYXYYYaXiXXXdX2XXaYeXdXyXaXbXXZdXAqYvXvX-XvX-"
    "XvX-XvX-XvXe1PqgXq2FX2a1Viwcwcw";
constexpr char kIgnorable[] =  // between a cased letter and a sigma
    "1dXcXhX1ZXXX2dXaXXXaXYYFt6WaYaXfYXX7xd6lXbX1n1jXXXYXYXX1iXhcghXX1ZXgrmX3beXgXa1XXXX+x2xh1whaXYXuu1hZ1iXdYce1f1w1tX"
    "XXaeaXZdgYjXlX1wXaaeXqYwXYY1vXaYaYYZZX+YZXhY1vXabXYaXqYscXX1wXYXXaeXdYhY+X1zXiX1oXZX1tXXZbZXadYhYzX1wXYXcXbYqYyY1v"
    "YaaeXqYzX2eXdZXX2wXYdhf3YXYffXXc2gYxXXXXX1tkXbXYbhX1afX3caXcXYYYvYaZmajXYYcXlX2+XJWZToZzY+Y+Y2WYXdeXYhZXbX1jb1pX2X"
    "Y1YX3sZaYfXcZ6xYYX1wXXdXXXXYecgYX1dXe-1na1mXXbXXbX1efiY1WaYYXZ1uXXYZXXZ1weYY2Wc2oZXjXdaXcXZY1o1-"
    "jX1Y3bDzXXZhZjZjZjYibeYgXYXYb1nbXgXXjXmj1p1X2ShY3nZ3zXlX3W1W1lXErX1aaZbbX2zc2zZROsX17Yc8kX3YaXgXXya2mYk1Y2kXtZ3dZZ"
    "YeXZXaXvYbX4tYwojX1cevh1kZ1mXYaYYnXrY2YcYYYYiXeX1ZXhX1pXXZYYbYXXxXkYbYXX3abfZ3vXYXaXJPmX4pnHzmZXim1YXYX5fXdXcXhX1Z"
    "XXX1lX1jY2ZXrZGXX7YX4rb10bcX1gXfIcZXYba1eZaX5bYHzaCZY4vh1na3xX1sl1fXYYgZ1naYYYXaXgX1oZ1abXe1+XiY1qfgaYX2-"
    "ZYXXYcX5WXZerY1vYZX1bdZb6ZeYZXXtX2qcXXaYXY7kacYXYxY2reYXXY3gXXXYcXX3bZYaXb8ZfXY8WYXXaX4maYYaX1Wg1ecYaeXfcYZ1kjXYCs"
    "dXcXX2osYdXYXY3wcZXXYXdXX2eYZXXXAxY59xfDLtb1xdfa10hX1-"
    "n2WYXYG0haXdXY34+YXa4Iy1kYtHWZfmYd+a4qZ1Tx1ta1oeXkXsbXl1AmdXnYdXYXb8bkBmX1za1FWd3je2LlbO30XX+3W4W7m";
constexpr char kLower[] =  // first, last, step, difference of their lower case
    "2XvX2W3csX2WYcX2W1Y1kYYaaYYZkYYZ1iYYYWX7pXaYYaWXDaXYYYYWXCyXWXYYXXCwXWXYZWX4+XWXCqXWXCsXWXYYWXCwXWXC+YWXDcXWXDYXWX"
    "YaWXDcXWXDgYWXDiXaYYYWXDqXWXYYWXDqZWXYYWXDqXWXYYXXDoXYYYYWXDsXWXYaWXYeWXaXWXYYWXaXWXYYWXaXmYYZmYYZWXaXYYYYWX6ZXWX3"
    "nX1cYYYWX8bYmYYeWXL2sXWXYYWXAdXWXL2mZWXYYWXCdXWX4gXWX4kXeYY9YYYYaWXYfWX7edWX2iYYX2gYWX4WYXX3+YmX2WYeX2W1aWXmfsYYcW"
    "X3vZWXYYWXlXWXYZYX8bXlX5WX-"
    "X2W1n1WYYg1qYYYWX+XiYYZ2+YYZ1bX3W2Qg1bXE6WYWXE6WcWXE6WMp2lX2BTWXbXm24x1gX5SXZYX5SXAX4qYYgWXER-"
    "Y2+YYgdXnfbXnhdXnfdXnfbXnicYnfdXnvdXnfdXnfdXnfXXnXXX4rXWXpiZX5jXWXpiXXnXXX6fjXXnXXX7XXWXliXX8XXXX7zXWXp9gWXELxaWXG"
    "B-XWXG4jdWX1u1klX1WqWXYPpvX1q1Pn1lX3W1nWXYYWXKVlXWX7EjXWXKUlZaYYYWXL1vXWXKVxXWXL1-XWXL1zYWXYZWXYfXXL3-"
    "X3YYYfYYYbWXYUAk1iYYqwYY4eiYYa1yYYhYYYYWX250fXeYYbWXYYWX2IInZYYYaoYYYWX2IKfXWX2IK-XWX2IKtXWX2IKZXWX2IKfYWX2IHbXWX2"
    "IIrXWX2IHhXWX1QWXkYYYWX3XXWX2IKdXWX253nXYYYdWXYcYYYzWXYLPivX2W16c1dX2m4f1ZX2m4zgX2kYkX2kYcX2kYXX2k1Nh1oX4W2Vk-"
    "X2WLCX-X2WULX1XX2a";
// clang-format on
// -- end of tables --

// Numbers of a table: digits in base 32, of which the last of each number stands in the second half of the alphabet.
inline vector<int32_t> unpacked(const char *text) {
    static constexpr char kDigits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-";
    vector<int32_t> found;
    for (int32_t number = 0; *text; ++text) {
        const int digit = static_cast<int>(std::strchr(kDigits, *text) - kDigits);
        number = number * 32 + digit % 32;
        if (digit >= 32) found.push_back(number), number = 0;
    }
    return found;
}

// A set of characters, from the lengths of runs outside and inside.
class Characters {
  public:
    explicit Characters(const char *table) : borders_(unpacked(table)) {
        for (size_t k = 1; k < borders_.size(); ++k) borders_[k] += borders_[k - 1];
    }
    bool has(char32_t c) const {
        return (std::upper_bound(borders_.begin(), borders_.end(), static_cast<int32_t>(c)) - borders_.begin()) % 2;
    }

  private:
    vector<int32_t> borders_;
};

class Unicode {
  public:
    Characters letters{kLetters}, spaces{kSpaces}, cased{kCased}, ignorable{kIgnorable};

    static const Unicode &get() {
        static const Unicode tables;
        return tables;
    }
    char32_t lower(char32_t c) const {
        if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
        const Run *run = std::lower_bound(runs_.data(), runs_.data() + runs_.size() - 1, static_cast<int32_t>(c),
                                          [](const Run &one, int32_t code) { return one.last < code; });
        const int32_t code = c, past = code - run->first;
        return past >= 0 && code <= run->last && past % run->step == 0 ? code + run->difference : c;
    }

  private:
    struct Run {
        int32_t first, last, step, difference;
    };
    Unicode() {
        const vector<int32_t> numbers = unpacked(kLower);
        for (size_t k = 0; k < numbers.size(); k += 4) {
            const int32_t first = numbers[k] + (k ? runs_.back().last : 0), coded = numbers[k + 3];
            runs_.push_back({first, first + numbers[k + 1], numbers[k + 2], coded % 2 ? -(coded / 2) : coded / 2});
        }
    }
    vector<Run> runs_;  // of capital letters that are as far from their lower case
};

// Texts with numbers, found by binary search.
class Names {
  public:
    Names() = default;
    Names(string text, vector<int64_t> offsets) : text_(std::move(text)), offsets_(std::move(offsets)) {
        for (size_t k = 0; k + 1 < offsets_.size(); ++k) order_.push_back(static_cast<int32_t>(k));
        std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) { return (*this)[a] < (*this)[b]; });
    }
    size_t size() const { return order_.size(); }
    string_view operator[](size_t k) const {
        return string_view(text_).substr(offsets_[k], offsets_[k + 1] - offsets_[k]);
    }
    int32_t find(string_view name) const {
        const auto less = [&](int32_t a, string_view b) { return (*this)[a] < b; };
        const auto found = std::lower_bound(order_.begin(), order_.end(), name, less);
        return found == order_.end() || (*this)[*found] != name ? -1 : *found;
    }

  private:
    string text_;
    vector<int64_t> offsets_;
    vector<int32_t> order_;
};

struct Token {
    size_t first, size;        // in the text in lower case
    std::uint64_t start, end;  // bytes of the original text
};

struct Tokenizer {
    bool lowercase = true, binary = false, by_spaces = false, by_characters = false;
    int shortest = 2, least = 1, most = 1;
    Names stop_words;

    explicit Tokenizer(const Json &options) {
        check(options.type == Json::object, "its tokenizer cannot be ", options, "; accepted: an object of options.");
        for (size_t k = 0; k < options.names.size(); ++k) {
            const string &name = options.names[k];
            const Json &held = options.items[k];
            const auto accept = [&](bool sound, const char *accepted) {
                check(sound, "its tokenizer has ", name, ' ', held,
                      ", which this runtime does not have; accepted: ", accepted, '.');
            };
            if (name == "analyzer") {
                accept(held.is_one_of({"word", "char"}), "\"word\", \"char\"");
                by_characters = held.text == "char";
            } else if (name == "strip_accents") {
                accept(held.type == Json::null, "null");
            } else if (name == "binary" || name == "lowercase") {
                accept(held.type == Json::boolean, "true or false");
                (name == "binary" ? binary : lowercase) = held.whole;
            } else if (name == "ngram_range") {
                const auto is_length = [](const Json &one) { return one.is_count(1, 20); };
                accept(held.type == Json::list && held.items.size() == 2 && all_of(held.items, is_length),
                       "[least, most] from 1 to 20");
                least = held.items[0].whole, most = held.items[1].whole;
            } else if (name == "token_pattern") {
                accept(held.type == Json::string && set_pattern(held.text),
                       R"((?u)\b\w\w+\b, \w+, \w\w+, \w{n,}, also between \b and with (?u), and \S+)");
            } else if (name == "stop_words") {
                const auto is_text = [](const Json &one) { return one.type == Json::string; };
                accept(held.type == Json::null || (held.type == Json::list && all_of(held.items, is_text)),
                       "null or a list of words");
                string all;
                vector<int64_t> offsets = {0};
                for (const Json &one : held.items) offsets.push_back((all += one.text).size());
                stop_words = Names(std::move(all), std::move(offsets));
            } else {
                fail("its tokenizer has the unknown option ", Quoted{name}, '.');
            }
        }
    }

    // Find the tokens of a text that are no stop words, or its characters, where several white spaces are one space;
    // `lowered` is the text that they are parts of.
    void split(string_view text, string &lowered, vector<Token> &tokens) const {
        const Unicode &unicode = Unicode::get();
        lowered.clear();
        tokens.clear();
        Token token{};
        int n_characters = 0;
        bool after_space = false;
        const auto add_character = [&](char32_t c, size_t start, size_t end) {
            const bool space = unicode.spaces.has(c);
            if (space && after_space) {
                lowered.replace(tokens.back().first, string::npos, " ");
                tokens.back().size = 1;
                return;
            }
            const size_t first = lowered.size();
            encode(c, lowered);
            tokens.push_back({first, lowered.size() - first, start, end});
            after_space = space;
        };
        const auto add = [&](char32_t c, size_t start, size_t end) {
            if (by_characters) return add_character(c, start, end);
            const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_';
            if (plain || (by_spaces ? !unicode.spaces.has(c) : c >= 0x80 && unicode.letters.has(c))) {
                if (!n_characters++) token.first = lowered.size(), token.start = start;
                token.end = end;
                encode(c, lowered);
            } else if (n_characters) {
                token.size = lowered.size() - token.first;
                const bool long_enough = n_characters >= shortest;
                if (long_enough && stop_words.find(string_view(lowered).substr(token.first)) < 0)
                    tokens.push_back(token);
                n_characters = 0;
            }
        };
        bool wrong = false, after_cased = false;
        for (size_t at = 0, start = 0; at < text.size(); start = at) {
            const char32_t c = decode(text, at, wrong);
            if (!lowercase) {
                add(c, start, at);
            } else if (c == 0x130) {  // the only letter that becomes two characters
                add('i', start, at), add(0x307, start, at);
            } else if (c == 0x3a3) {  // sigma has another form at the end of a word
                add(after_cased && !before_cased(text, at) ? 0x3c2 : 0x3c3, start, at);
            } else {
                add(unicode.lower(c), start, at);
            }
            if (c >= 'a' && c <= 'z') after_cased = true;
            else if (!unicode.ignorable.has(c)) after_cased = unicode.cased.has(c);
        }
        if (!by_characters) add(' ', text.size(), text.size());
    }

  private:
    // Whether the next character that is not ignorable is cased.
    static bool before_cased(string_view text, size_t at) {
        bool wrong = false;
        while (at < text.size()) {
            const char32_t c = decode(text, at, wrong);
            if (!Unicode::get().ignorable.has(c)) return Unicode::get().cased.has(c);
        }
        return false;
    }

    bool set_pattern(string_view pattern) {
        if (begins_with(pattern, "(?u)")) pattern.remove_prefix(4);
        by_spaces = pattern == "\\S+";
        if (begins_with(pattern, "\\b") && ends_with(pattern, "\\b") && pattern.size() > 4)
            pattern = pattern.substr(2, pattern.size() - 4);
        shortest = pattern == "\\w+" || by_spaces ? 1 : pattern == "\\w\\w+" ? 2 : 0;
        if (begins_with(pattern, "\\w{") && ends_with(pattern, ",}") && pattern.size() > 5 && pattern.size() < 8 && pattern[3] != '0') {
            const string digits(pattern.substr(3, pattern.size() - 5));
            shortest = has_only(digits, "0123456789") ? std::stoi(digits) : 0;
        }
        return shortest > 0;
    }
};

// ---- images ----

// Words in the form in which nearest ones are found fast. Vectors and words are shifted by the mean word, so that words
// far from the origin lose no digits. Inner loops have fixed bounds and no branches, so that compilers vectorise them.
class Codebook {
  public:
    static constexpr int kLanes = 16, kRows = 4;  // words and vectors that are compared at a time

    struct Scratch {
        vector<float> best, factors;
        vector<int32_t> words;
        vector<std::int16_t> whole;
    };

    // Words of float32, or of 8 bits with a scale for each.
    Codebook(const vector<float> &words, const vector<std::int8_t> &bytes, const vector<float> &scales, size_t n,
             size_t width)
        : width_(width),
          n_panels_((n + kLanes - 1) / kLanes),
          by_integers_(!bytes.empty() && width >= 64 && width <= 1024),
          mean_(width),
          norms_(n_panels_ * kLanes, std::numeric_limits<float>::infinity()) {
        const auto value = [&](size_t w, size_t k) {
            return bytes.empty() ? words[w * width + k] : bytes[w * width + k] * scales[w];
        };
        const size_t n_numbers = room_for(n_panels_, kLanes, width);
        (by_integers_ ? scales_ : factors_).resize(by_integers_ ? norms_.size() : n_numbers);
        integers_.resize(by_integers_ ? n_numbers : 0);
        for (size_t k = 0; k < width && !by_integers_; ++k) {
            double sum = 0;
            for (size_t w = 0; w < n; ++w) sum += value(w, k);
            mean_[k] = static_cast<float>(sum / n);
        }
        for (size_t w = 0; w < n; ++w) {
            norms_[w] = 0;
            for (size_t k = 0; k < width; ++k) {
                const float shifted = value(w, k) - mean_[k];
                norms_[w] += shifted * shifted;
                if (by_integers_) integers_[w * width + k] = bytes[w * width + k];
                else factors_[(w / kLanes * width + k) * kLanes + w % kLanes] = -2 * shifted;
            }
            if (by_integers_) scales_[w] = -2 * scales[w];
        }
    }

    // Write the nearest word of each of n vectors, of equally near ones the first. The vectors are changed; there must
    // be room for a multiple of kRows of them, and as many words.
    void nearest(float *vectors, size_t n, int32_t *words, Scratch &scratch) const {
        const size_t n_rows = (n + kRows - 1) / kRows * kRows;
        std::fill(vectors + n * width_, vectors + n_rows * width_, 0.0f);
        scratch.best.assign(n_rows, std::numeric_limits<float>::infinity());
        scratch.words.assign(n_rows, 0);  // also where no distance is finite
        if (by_integers_) to_integers(vectors, n_rows, scratch);
        for (size_t i = 0; i < n && !by_integers_; ++i)
            for (size_t k = 0; k < width_; ++k) vectors[i * width_ + k] -= mean_[k];
        if (width_ == 128) compare<128>(vectors, n_rows, scratch);
        else compare<0>(vectors, n_rows, scratch);
        std::copy(scratch.words.begin(), scratch.words.begin() + n, words);
    }

  private:
    using Products = float[kRows][kLanes];
    using Integers = int32_t[kRows][kLanes];

    template <size_t kWidth>
    void compare(const float *vectors, size_t n_rows, Scratch &scratch) const {
        Products found;
        Integers whole;
        for (size_t p = 0; p < n_panels_; ++p)
            for (size_t i = 0; i < n_rows; i += kRows) {
                if (by_integers_) {
                    products<kWidth>(&scratch.whole[i * width_], &integers_[p * kLanes * width_], width_, whole);
                    for (int r = 0; r < kRows; ++r)
                        for (int j = 0; j < kLanes; ++j)
                            found[r][j] =
                                static_cast<float>(whole[r][j]) * (scratch.factors[i + r] * scales_[p * kLanes + j]);
                } else {
                    products<kWidth>(vectors + i * width_, &factors_[p * kLanes * width_], width_, found);
                }
                keep_nearer(found, &norms_[p * kLanes], static_cast<int32_t>(p * kLanes), &scratch.best[i],
                            &scratch.words[i]);
            }
    }

    // found[r][j] = -2 x_r · w_j. In this form, and not inlined, g++ and clang keep all sums in vector registers.
    template <size_t kWidth>
    BAGWISE_APART static void products(const float *x, const float *panel, size_t given, Products &found) {
        const size_t width = kWidth ? kWidth : given;
        float a[kLanes] = {}, b[kLanes] = {}, c[kLanes] = {}, d[kLanes] = {};
        for (size_t k = 0; k < width; ++k) {
            const float p = x[k], q = x[width + k], r = x[2 * width + k], s = x[3 * width + k];
            const float *words = panel + k * kLanes;
            for (int j = 0; j < kLanes; ++j) {
                a[j] += p * words[j];
                b[j] += q * words[j];
                c[j] += r * words[j];
                d[j] += s * words[j];
            }
        }
        for (int j = 0; j < kLanes; ++j) found[0][j] = a[j], found[1][j] = b[j], found[2][j] = c[j], found[3][j] = d[j];
    }

    // The same for integers, rows of words: found[r][j] = x_r · w_j.
    template <size_t kWidth>
    BAGWISE_APART static void products(const std::int16_t *x, const std::int16_t *words, size_t given,
                                       Integers &found) {
        const size_t width = kWidth ? kWidth : given;
        for (int j = 0; j < kLanes; ++j, words += width) {
            int32_t a = 0, b = 0, c = 0, d = 0;
            const std::int16_t *p = x, *q = x + width, *r = x + 2 * width, *s = x + 3 * width;
            for (size_t k = 0; k < width; ++k) {
                a += p[k] * words[k];
                b += q[k] * words[k];
                c += r[k] * words[k];
                d += s[k] * words[k];
            }
            found[0][j] = a, found[1][j] = b, found[2][j] = c, found[3][j] = d;
        }
    }

    // Compare the smallest distance of each row with the smallest before, which is seldom larger.
    BAGWISE_APART static void keep_nearer(const Products &found, const float *norms, int32_t first, float *best,
                                          int32_t *words) {
        static_assert(kLanes == 16, "halves of lanes are compared down to four");
        for (int r = 0; r < kRows; ++r) {
            float distances[16], least[8];
            for (int j = 0; j < 16; ++j) distances[j] = found[r][j] + norms[j];
            for (int j = 0; j < 8; ++j) least[j] = distances[j] < distances[j + 8] ? distances[j] : distances[j + 8];
            for (int j = 0; j < 4; ++j) least[j] = least[j] < least[j + 4] ? least[j] : least[j + 4];
            const float smallest = std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
            if (!(smallest < best[r])) continue;
            best[r] = smallest;
            words[r] = first + static_cast<int32_t>(std::find(distances, distances + 16, smallest) - distances);
        }
    }

    // Round vectors to integers as large as sums of their products with words allow.
    void to_integers(const float *vectors, size_t n, Scratch &scratch) const {
        const float most = std::min(16383.0f, static_cast<float>(0x7fffffff / 127 / static_cast<int>(width_)));
        scratch.whole.resize(n * width_);
        scratch.factors.resize(n);
        for (size_t i = 0; i < n; ++i) {
            float largest = 0;
            for (size_t k = 0; k < width_; ++k) largest = std::max(largest, std::fabs(vectors[i * width_ + k]));
            scratch.factors[i] = largest / most;
            const float factor = largest > 0 ? most / largest : 0;
            for (size_t k = 0; k < width_; ++k) {
                const float scaled = vectors[i * width_ + k] * factor;
                scratch.whole[i * width_ + k] = static_cast<std::int16_t>(scaled + (scaled < 0 ? -0.5f : 0.5f));
            }
        }
    }

    size_t width_, n_panels_;
    bool by_integers_;
    vector<float> mean_, norms_, factors_, scales_;
    vector<std::int16_t> integers_;
};

// One scale of a descriptor: the size of its patches; for SIFT also the weights of pixels in its four cells, down or
// right, and those of the smoothing.
struct Scale {
    double size = 0;
    int n_taps = 0;
    std::array<int, 4> firsts{};
    vector<float> weights, gaussian;

    Scale(double side, double sigma, bool sift) : size(side) {
        const double cell = side / 4;
        n_taps = sift && side <= kMostSide ? static_cast<int>(std::ceil(2 * cell)) : 0;  // larger ones fit no image
        for (int a = 0; a < 4 && n_taps; ++a) {
            const double middle = (a - 1.5) * cell;
            firsts[a] = static_cast<int>(std::floor(middle - cell)) + 1;
            for (int t = 0; t < n_taps; ++t) {
                const double at = firsts[a] + t, far = at / (2 * cell);
                weights.push_back(static_cast<float>(std::max(0.0, 1 - std::fabs(at - middle) / cell) *
                                                     std::exp(-0.5 * (far * far))));
            }
        }
        vector<double> half;
        double sum = 0;
        for (int k = 0; k <= static_cast<int>(4 * sigma + 0.5) && sigma > 0; ++k) {
            half.push_back(std::exp(-0.5 * (k / sigma * (k / sigma))));
            sum += k ? 2 * half.back() : half.back();
        }
        for (const double one : half) gaussian.push_back(static_cast<float>(one / sum));
    }

    // How many patches fit a side, and where the first begins.
    std::pair<int, int> starts(int side, int step) const {
        const double spare = side - std::ceil(size);
        return spare < 0 ? std::pair(0, 0)
                         : std::pair(static_cast<int>(spare) / step + 1, static_cast<int>(spare) % step / 2);
    }
};

struct Descriptor {
    enum Kind { dense_sift, color_sift, color_cells, patches } kind = dense_sift;
    int step = 0, max_side = 0, n_channels = 1;
    bool is_sift = false, needs_color = false;
    string name, option;  // option: space of colours, or normalisation of patches
    vector<Scale> scales;
    size_t width = 0;

    explicit Descriptor(const Json &entry) {
        static constexpr char kAccepted[] = "; accepted: DenseSIFT, ColorSIFT, ColorCells, Patches.";
        check(entry.type != Json::null, "its descriptor is null: it takes vectors, but this runtime begins with pixels",
              kAccepted);
        const Json &given = entry.at("parameters");
        check(entry.at("name").type == Json::string && given.type == Json::object && entry.items.size() == 2,
              "its descriptor must have name, parameters; got ", entry, '.');
        static const std::map<string, Kind> kinds = {
            {"DenseSIFT", dense_sift}, {"ColorSIFT", color_sift}, {"ColorCells", color_cells}, {"Patches", patches}};
        name = entry.at("name").text;
        check(kinds.count(name), "its descriptor is ", Quoted{name}, ", which this runtime does not have", kAccepted);
        kind = kinds.at(name);
        is_sift = kind == dense_sift || kind == color_sift;
        step = integer(given, "step", 1);
        max_side = given.at("max_side").type == Json::null ? 0 : integer(given, "max_side", 3);
        const int patch = integer(given, kind == color_cells ? "cell" : "patch", is_sift ? 4 : 1);
        if (kind == color_sift) option = one_of(given, "space", {"opponent", "rg", "c", "rgb"});
        if (kind == patches) option = one_of(given, "normalize", {"mean", "standard", "l2", ""});
        needs_color = kind == color_sift || (kind == patches && one_of(given, "mode", {"grey", "rgb"}) == "rgb");
        n_channels = !needs_color ? 1 : option == "rg" ? 2 : 3;
        if (is_sift) add_scales(given, patch);
        else scales.emplace_back(patch, 0, false);
        width = is_sift ? 128 * n_channels : kind == color_cells ? 6 : static_cast<size_t>(patch) * patch * n_channels;
        const size_t n_wanted = kind == color_cells ? 3 : kind == color_sift ? 6 : 5;
        check(given.items.size() == n_wanted && given.find("max_side"), "its descriptor ", name,
              " has other parameters: ", given, '.');
    }

  private:
    void check_parameter(bool sound, const Json &given, const char *key, string_view accepted) const {
        check(sound, "its descriptor has ", key, " of ", name, ' ', given.at(key), "; accepted: ", accepted, '.');
    }
    int integer(const Json &given, const char *key, int least) const {
        check_parameter(given.at(key).is_count(least, 4096), given, key,
                        "an integer from " + std::to_string(least) + " to 4096");
        return static_cast<int>(given.at(key).whole);
    }
    string one_of(const Json &given, const char *key, std::initializer_list<const char *> accepted) const {
        string all;
        for (const char *one : accepted) {
            if (*one ? given.at(key).is_one_of({one}) : given.find(key) && given.at(key).type == Json::null) return one;
            all += string(all.empty() ? "" : ", ") + (*one ? one : "null");
        }
        check_parameter(false, given, key, all);
        return {};
    }
    void add_scales(const Json &given, int patch) {
        const Json &factors = given.at("scales"), &smoothing = given.at("smoothing");
        const auto is_number = [](const Json &one) {
            return (one.type == Json::integer || one.type == Json::number) && one.real >= 0 && one.real <= 1000;
        };
        check_parameter(is_number(smoothing), given, "smoothing", "a number from 0 to 1000");
        const bool sound = factors.type == Json::list && !factors.items.empty() && factors.items.size() <= 64;
        check_parameter(sound && all_of(factors.items, [&](const Json &one) { return is_number(one) && one.real > 0; }),
                        given, "scales", "a list of 1 to 64 numbers above 0, up to 1000");
        for (const Json &factor : factors.items) {
            check_parameter(smoothing.real * factor.real <= kMostSmoothing, given, "smoothing",
                            "up to 1000 pixels after scaling");
            scales.emplace_back(patch * factor.real, smoothing.real * factor.real, true);
        }
    }
};

// ---- models ----

// A model, as it is used.
struct Data {
    Items items = Items::images;
    vector<string> classes, steps;
    int32_t n_words = 0, n_groups = 0, n_cells = 1;
    vector<std::pair<int, int>> grids;
    string term = "count", norm;
    vector<int32_t> groups;  // of each word
    vector<float> weights, coef, intercept;
    vector<double> shift;
    double sharpness = 0;  // of probabilities; 0 if there are none
    vector<Descriptor> descriptors;
    vector<Codebook> codebooks;
    vector<int32_t> first_words;  // of vocabularies, and the end
    std::unique_ptr<Tokenizer> tokenizer;
    Names names;
    vector<std::uint16_t> hashes;
    vector<int32_t> hash_starts;
    std::map<int32_t, string> group_names;

    size_t n_columns() const { return static_cast<size_t>(n_cells) * n_words; }
    size_t n_features() const { return static_cast<size_t>(n_cells) * n_groups; }
    bool has_head() const { return !intercept.empty(); }

    // The number of a word of texts, -1 if it is not in the vocabulary.
    int32_t find(string_view word) const {
        if (hashes.empty()) return names.find(word);
        const std::uint32_t hash = crc32(word.data(), word.size()) & 0xffffff, low = hash & 0xffff;
        const auto end = hashes.begin() + hash_starts[(hash >> 16) + 1];
        const auto found = std::lower_bound(hashes.begin() + hash_starts[hash >> 16], end, low);
        return found == end || *found != low ? -1 : static_cast<int32_t>(found - hashes.begin());
    }
};

template <class T>
bool rises(const vector<T> &offsets, int64_t end) {
    return offsets.front() == 0 && offsets.back() == end && std::is_sorted(offsets.begin(), offsets.end());
}

class Loader {
  public:
    static std::shared_ptr<const Data> load(const unsigned char *content, size_t size, int n_groups) {
        Loader loader(content, size);
        loader.fill(n_groups);
        return std::move(loader.data_);
    }

  private:
    Loader(const unsigned char *content, size_t size)
        : file_(content, size), header_(file_.header), data_(std::make_shared<Data>()) {}

    void fill(int n_groups) {
        const string &items = header_.at("items").text;
        check(items != "videos",
              "its items are videos, which this runtime does not describe; it takes images, texts and table.");
        data_->items = items == "images" ? Items::images : items == "texts" ? Items::texts : Items::table;
        data_->n_words = static_cast<int32_t>(file_.d);
        data_->n_cells = static_cast<int32_t>(file_.n_cells);
        data_->n_groups = static_cast<int32_t>(n_groups ? n_groups : file_.n);
        for (const Json &one : header_.at("classes").items) data_->classes.push_back(one.text);
        for (const Json &one : header_.at("normalize").items) data_->steps.push_back(one.text);
        for (const Json &one : header_.at("pyramid").items)
            data_->grids.emplace_back(one.items[0].whole, one.items[1].whole);
        if (header_.find("term")) data_->term = header_.at("term").text;
        data_->norm = header_.at("norm").text;
        const Json &named = header_.at("group_names");
        for (size_t k = 0; k < named.items.size() && data_->n_groups == file_.n; ++k)
            data_->group_names[std::stoi(named.names[k])] = named.items[k].text;
        data_->first_words = {0};
        for (const int64_t size : file_.vocabularies)
            data_->first_words.push_back(static_cast<int32_t>(data_->first_words.back() + size));
        set_codebooks();
        set_names();
        set_weights();
        set_groups();
        set_heads();
    }

    // The numbers of an array, which must be below a limit.
    template <class T>
    vector<T> numbers(const string &name, double most, double least = -std::numeric_limits<double>::infinity()) const {
        vector<T> found = file_.get<T>(name);
        for (const T one : found)
            check(std::fabs(one) < most && one >= least, "its ", name, " has the number ", one,
                  "; accepted: numbers below ", most, least == 0 ? ", not negative." : ".");
        return found;
    }
    // Numbers of 8 bits, and the scales of their rows.
    std::pair<vector<std::int8_t>, vector<float>> bytes(const string &name, const string &scale) const {
        auto found = std::pair(file_.get<std::int8_t>(name), file_.get<float>(scale));
        for (const std::int8_t one : found.first)
            check(one != -128, "its ", name, " has the number -128; accepted: -127 to 127.");
        for (const float one : found.second)
            check(one >= 1e-30f && one <= 1e13f, "its ", scale, " has the number ", one, "; accepted: 1e-30 to 1e13.");
        return found;
    }

    void set_codebooks() {
        const bool images = data_->items == Items::images, several = file_.vocabularies.size() > 1;
        check(images || !file_.has("codebook"), "it has a codebook, but its items are ", header_.at("items"), '.');
        const Json &given = header_.at("descriptor");
        check(!images || !several || given.type == Json::null || given.items.size() == file_.vocabularies.size(),
              "its descriptor must be a list, one for each vocabulary; got ", given, '.');
        for (size_t v = 0; v < file_.vocabularies.size() && images; ++v) {
            data_->descriptors.emplace_back(several && given.type == Json::list ? given.items[v] : given);
            const string name = File::codebook_name(v), scale = name + "_scale";
            check(file_.has(name), "it has no ", name, ", but its items are images.");
            const size_t n = file_.vocabularies[v], width = file_.width(name), right = data_->descriptors[v].width;
            check(width == right, "its ", name, " has ", width, " columns, but ", data_->descriptors[v].name, " gives ",
                  right, " numbers.");
            const bool small = file_.is(name, "I8");
            const auto [values, scales] = small ? bytes(name, scale) : std::pair<vector<std::int8_t>, vector<float>>();
            data_->codebooks.emplace_back(small ? vector<float>() : numbers<float>(name, kLargest), values, scales, n,
                                          width);
        }
    }

    void set_names() {
        const bool texts = data_->items == Items::texts, named = file_.has("names"), hashed = file_.has("hashes");
        check(!texts || named || hashed, "it is a model of texts without names or hashes of words.");
        check(data_->items != Items::images || !named, "words of images have no names, but it has some.");
        if (texts) data_->tokenizer = std::make_unique<Tokenizer>(header_.at("tokenizer"));
        if (named) {
            const vector<char> letters = file_.get<char>("names");
            vector<int64_t> offsets = file_.get<int64_t>("name_offsets");
            check(rises(offsets, letters.size()),
                  "the offsets of its names do not rise from 0 to the number of their bytes.");
            data_->names = Names(string(letters.begin(), letters.end()), std::move(offsets));
            for (int32_t k = 0; k < data_->n_words; ++k) {
                check(is_utf8(data_->names[k]), "the name of its word ", k, " is not UTF-8.");
                check(!texts || data_->names.find(data_->names[k]) == k, "its names must be unique, but ",
                      Quoted{data_->names[k]}, " occurs more than once.");
            }
        }
        if (hashed) {
            data_->hashes = file_.get<std::uint16_t>("hashes");
            data_->hash_starts = file_.get<int32_t>("hash_starts");
            check(rises(data_->hash_starts, file_.d), "its hash_starts do not rise from 0 to ", file_.d, '.');
            for (size_t k = 0; k < 256; ++k)
                for (int32_t w = data_->hash_starts[k] + 1; w < data_->hash_starts[k + 1]; ++w)
                    check(data_->hashes[w] > data_->hashes[w - 1], "its hashes do not rise at word ", w, '.');
        }
    }

    void set_weights() {
        if (file_.has("word_weights")) data_->weights = numbers<float>("word_weights", kLargestWeight, 0);
        if (file_.has("column_shift")) data_->shift = numbers<double>("column_shift", kLargestWeight);
        if (!file_.has("weight_codes")) return;
        const double least = header_.at("weight_range").items[0].real, most = header_.at("weight_range").items[1].real;
        float known[256] = {};
        for (int k = 1; k < 256; ++k)
            known[k] =
                static_cast<float>(std::exp(std::log(least) + (std::log(most) - std::log(least)) / 254 * (k - 1)));
        known[1] = static_cast<float>(least), known[255] = static_cast<float>(most);  // without rounding
        for (const uint8_t code : file_.get<uint8_t>("weight_codes")) data_->weights.push_back(known[code]);
    }

    vector<int32_t> small_numbers(const string &name) const {
        if (file_.is(name, "I32")) return file_.get<int32_t>(name);
        if (file_.is(name, "U8")) {
            const vector<uint8_t> found = file_.get<uint8_t>(name);
            return {found.begin(), found.end()};
        }
        const vector<std::uint16_t> found = file_.get<std::uint16_t>(name);
        return {found.begin(), found.end()};
    }

    // Apply merges: each word is its own group or that of the word that absorbed it, which comes before it.
    void set_groups() {
        const int64_t d = file_.d, n = data_->n_groups, least = std::max<int64_t>(1, d - file_.n_merges),
                      most = file_.flat ? file_.flat : d;
        check(n == file_.n || !file_.compact, "it is compact: it always has ", file_.n, " groups, not ", n, '.');
        check(least <= n && n <= most, "it can be cut at ", least, " to ", most, " groups, got ", n, '.');
        vector<int32_t> root(d), first, table(d);
        vector<bool> absorbed(d);
        const vector<int32_t> groups = file_.has("groups") ? small_numbers("groups") : vector<int32_t>();
        for (int32_t w = 0; w < d; ++w) {
            const size_t group = groups.empty() ? first.size() : groups[w];
            check(group <= first.size(), "its groups are not numbered by their first words, see word ", w, '.');
            if (group == first.size()) first.push_back(w);
            root[w] = first[group];
            absorbed[w] = root[w] != w;
        }
        const int64_t n_given = file_.flat ? file_.flat : file_.compact ? file_.n : d;
        check(static_cast<int64_t>(first.size()) == n_given, "its groups are ", first.size(), ", expected ", n_given,
              '.');
        const vector<int32_t> merges = file_.has("merges") ? file_.get<int32_t>("merges") : vector<int32_t>();
        for (size_t k = 0; k < merges.size(); k += 2) {
            const int32_t s = merges[k], t = merges[k + 1];
            check(s >= 0 && s < t && t < d, "its merges have ", s, " and ", t,
                  ", words that do not exist or not in this order.");
            check(!absorbed[s] && !absorbed[t], "its merges have ", s, " and ", t,
                  ", of which one was absorbed before: they are no hierarchy.");
            absorbed[t] = true;
            if (static_cast<int64_t>(k / 2) < n_given - n) root[t] = s;
        }
        for (int32_t w = 0, next = 0; w < d; ++w) table[w] = root[w] == w ? next++ : table[root[w]];
        data_->groups = std::move(table);
    }

    void set_heads() {
        for (const int64_t size : file_.heads) {
            const string name = "head_" + std::to_string(size);
            vector<float> coef, intercept = numbers<float>(name + "_intercept", kLargestWeight);
            if (file_.is(name + "_coef", "I8")) {
                const auto [values, scales] = bytes(name + "_coef", name + "_scale");
                for (size_t k = 0; k < values.size(); ++k)
                    coef.push_back(values[k] * scales[k / (values.size() / scales.size())]);
            } else {
                coef = numbers<float>(name + "_coef", kLargestWeight);
            }
            if (size != data_->n_groups) continue;
            data_->coef = std::move(coef), data_->intercept = std::move(intercept);
            data_->sharpness = header_.at("calibration").at(std::to_string(size)).real;
        }
    }

    File file_;
    const Json &header_;
    std::shared_ptr<Data> data_;
};

// 8-bit pixels, grey or RGB.
struct Pixels {
    const uint8_t *first = nullptr;
    int width = 0, height = 0, channels = 1, step = 1;  // step: bytes from pixel to pixel
    size_t stride = 0;
    const uint8_t *at(int x, int y) const { return first + y * stride + x * step; }
};

// Shrink by area averaging: each new pixel is the mean of the rectangle that it covers, rounded as OpenCV rounds it.
class Shrinker {
  public:
    static std::pair<int, int> size(int width, int height, int max_side) {
        const int64_t longest = std::max(width, height);
        if (max_side == 0 || longest <= max_side || std::min(width, height) == 0) return {width, height};
        const auto side = [&](int64_t a) {
            return static_cast<int>(std::max<int64_t>(1, (2 * a * max_side + longest) / (2 * longest)));
        };
        return {side(width), side(height)};
    }

    Pixels shrink(const Pixels &image, int width, int height) {
        const int n = width * image.channels;
        out_.resize(static_cast<size_t>(n) * height);
        if (image.width % width == 0 && image.height % height == 0) by_whole_pixels(image, width, height);
        else by_parts(image, width, height);
        return {out_.data(), width, height, image.channels, image.channels, static_cast<size_t>(n)};
    }

  private:
    struct Part {
        int from, to;
        float share;
    };

    void by_whole_pixels(const Pixels &image, int width, int height) {
        const int across = image.width / width, down = image.height / height;
        uint8_t *out = out_.data();
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x)
                for (int c = 0; c < image.channels; ++c) {
                    int64_t sum = 0;
                    for (int i = 0; i < down; ++i)
                        for (int j = 0; j < across; ++j) sum += image.at(x * across + j, y * down + i)[c];
                    const bool by_four = across == 2 && down == 2;  // halves are rounded up
                    *out++ = by_four ? static_cast<uint8_t>((sum + 2) >> 2)
                                     : rounded(static_cast<float>(sum) * (1.0f / static_cast<float>(across * down)));
                }
    }

    void by_parts(const Pixels &image, int width, int height) {
        share_out(image.width, width, across_);
        share_out(image.height, height, down_);
        const size_t n = static_cast<size_t>(width) * image.channels;
        sums_.assign(n, 0);
        int held = -1;
        uint8_t *out = out_.data();
        for (size_t k = 0; k < down_.size(); ++k) {
            const Part &part = down_[k];
            if (part.from != held) {
                line_.assign(n, 0);
                for (const Part &one : across_)
                    for (int c = 0; c < image.channels; ++c)
                        line_[one.to * image.channels + c] += one.share * image.at(one.from, part.from)[c];
            }
            held = part.from;
            for (size_t x = 0; x < n; ++x) sums_[x] += part.share * line_[x];
            if (k + 1 < down_.size() && down_[k + 1].to == part.to) continue;
            for (size_t x = 0; x < n; ++x) *out++ = rounded(sums_[x]), sums_[x] = 0;
        }
    }

    // Which pixels of a side make which new ones, with their shares; shares below a thousandth of a pixel are left out.
    static void share_out(int side, int new_side, vector<Part> &parts) {
        parts.clear();
        const double scale = static_cast<double>(side) / new_side;
        for (int to = 0; to < new_side; ++to) {
            const double start = to * scale, end = start + scale, covered = std::min(scale, side - start);
            const int last = std::min(static_cast<int>(std::floor(end)), side - 1),
                      first = std::min(static_cast<int>(std::ceil(start)), last);
            if (first - start > 1e-3) parts.push_back({first - 1, to, static_cast<float>((first - start) / covered)});
            for (int from = first; from < last; ++from) parts.push_back({from, to, static_cast<float>(1 / covered)});
            if (end - last > 1e-3)
                parts.push_back({last, to, static_cast<float>(std::min({end - last, 1.0, covered}) / covered)});
        }
    }
    static uint8_t rounded(float value) {
        return static_cast<uint8_t>(std::min(255L, std::max(0L, std::lrintf(value))));
    }

    vector<Part> across_, down_;
    vector<float> line_, sums_;
    vector<uint8_t> out_;
};

// The patches of one scale of a descriptor in an image.
struct Grid {
    int n_rows = 0, n_columns = 0, top = 0, left = 0;
    size_t first_patch = 0;
    double offset = 0;  // from the first pixel of a patch to its centre
};

// What one thread needs to find the words of rows of patches.
class Describer {
  public:
    void describe(const Descriptor &descriptor, const Scale &scale, const Codebook &codebook, int32_t first_word,
                  const Pixels &image, const vector<float> &channels, const Grid &grid, int begin, int end,
                  int32_t *words) {
        vectors_.resize(room_for(grid.n_columns + Codebook::kRows, descriptor.width));
        width_ = image.width, height_ = image.height, plane_ = static_cast<size_t>(width_) * height_;
        next_ = 0;
        next_smooth_.fill(0);
        for (int i = begin; i < end; ++i) {
            const int top = grid.top + i * descriptor.step;
            if (descriptor.is_sift) sift(descriptor, scale, channels.data(), top, grid);
            for (int k = 0; k < grid.n_columns && !descriptor.is_sift; ++k) {
                const int left = grid.left + k * descriptor.step;
                float *out = &vectors_[k * descriptor.width];
                if (descriptor.kind == Descriptor::color_cells)
                    color_cell(image, left, top, static_cast<int>(scale.size), out);
                else patch(descriptor, channels.data(), left, top, out);
            }
            int32_t *own = words + grid.first_patch + static_cast<size_t>(i) * grid.n_columns;
            codebook.nearest(vectors_.data(), grid.n_columns, own, scratch_);
            for (int k = 0; k < grid.n_columns; ++k) own[k] += first_word;
        }
    }

  private:
    // Means of red, green and blue, and their standard deviations; grey counts as three equal channels.
    static void color_cell(const Pixels &image, int left, int top, int cell, float *out) {
        const double n = static_cast<double>(cell) * cell;
        for (int c = 0; c < 3; ++c) {
            const int from = std::min(c, image.channels - 1), first = image.at(left, top)[from];
            int64_t total = 0, squares = 0;
            for (int y = top; y < top + cell; ++y)
                for (int x = left; x < left + cell; ++x) {
                    const int value = image.at(x, y)[from] - first;
                    total += value, squares += value * value;
                }
            const double mean = total / n;
            out[c] = static_cast<float>(first + mean);
            out[3 + c] = static_cast<float>(std::sqrt(std::max(squares / n - mean * mean, 0.0)));
        }
    }

    void patch(const Descriptor &descriptor, const float *channels, int left, int top, float *out) const {
        const int side = static_cast<int>(descriptor.scales[0].size);
        const string &how = descriptor.option;
        double sum = 0, largest = 1, square = 0;
        for (int c = 0, m = 0; c < descriptor.n_channels; ++c)
            for (int y = top; y < top + side; ++y)
                for (int x = left; x < left + side; ++x, ++m) {
                    out[m] = channels[c * plane_ + static_cast<size_t>(y) * width_ + x];
                    sum += out[m];
                    largest = std::max<double>(largest, out[m]);
                }
        if (how.empty()) return;
        const double n = descriptor.width, mean = how == "l2" ? 0 : sum / n;
        for (size_t m = 0; m < descriptor.width; ++m) square += (out[m] - mean) * (out[m] - mean);
        const double size = how == "mean" ? 1 : std::sqrt(square) / (how == "standard" ? std::sqrt(n) : 1);
        const bool flat = how != "mean" && size <= 1e-8 * largest;
        for (size_t m = 0; m < descriptor.width; ++m) out[m] = flat ? 0 : static_cast<float>((out[m] - mean) / size);
    }

    // Describe a row of patches by SIFT. Only those rows of oriented gradients are kept that patches of this row touch.
    void sift(const Descriptor &descriptor, const Scale &scale, const float *channels, int top, const Grid &grid) {
        const int half = static_cast<int>(scale.size) / 2, middle = top + half,
                  n_ring = scale.firsts[3] + scale.n_taps - scale.firsts[0];
        const int from = std::max(0, middle + scale.firsts[0]),
                  to = std::min(height_, middle + scale.firsts[3] + scale.n_taps);
        const size_t line = static_cast<size_t>(width_) * 8, ring = room_for(line, n_ring);
        ring_.resize(room_for(ring, descriptor.n_channels));
        for (int c = 0; c < descriptor.n_channels; ++c) {
            float *planes = &ring_[ring * c];
            for (int y = std::max(next_, from); y < to; ++y)
                orient(scale, channels + plane_ * c, c, y, planes + line * (y % n_ring));
            for (int a = 0; a < 4; ++a) {
                line_.assign(line, 0);
                for (int t = 0; t < scale.n_taps; ++t) {
                    const int y = middle + scale.firsts[a] + t;
                    if (y < 0 || y >= height_) continue;
                    const float weight = scale.weights[a * scale.n_taps + t], *row = planes + line * (y % n_ring);
                    float *sums = line_.data();
                    for (size_t k = 0; k < line; ++k) sums[k] += weight * row[k];
                }
                for (int k = 0; k < grid.n_columns; ++k)
                    sum_columns(scale, grid.left + k * descriptor.step + half,
                                &vectors_[k * descriptor.width + 128 * c + 32 * a]);
            }
            for (int k = 0; k < grid.n_columns; ++k) normalize(&vectors_[k * descriptor.width + 128 * c]);
        }
        next_ = std::max(next_, to);
    }

    // Sum over the columns of the four cells around a centre, in each of eight directions.
    void sum_columns(const Scale &scale, int centre, float *out) const {
        for (int b = 0; b < 4; ++b, out += 8) {
            const int start = centre + scale.firsts[b], end = std::min(scale.n_taps, width_ - start);
            const float *weights = &scale.weights[b * scale.n_taps];
            float sums[8] = {};
            for (int t = std::max(0, -start); t < end; ++t)
                for (int o = 0; o < 8; ++o) sums[o] += weights[t] * line_[8 * (start + t) + o];
            std::memcpy(out, sums, sizeof sums);
        }
    }

    // Scale to length 1, cut at 0.2, scale to length 1 again; vectors of flat patches become zero.
    static void normalize(float *vector) {
        double total = 0;
        for (int k = 0; k < 128; ++k) total += static_cast<double>(vector[k]) * vector[k];
        const float largest = static_cast<float>(0.2 * std::sqrt(total));
        const bool flat = std::sqrt(total) < 1e-8;
        total = 0;
        for (int k = 0; k < 128; ++k) {
            vector[k] = std::min(vector[k], largest);
            total += static_cast<double>(vector[k]) * vector[k];
        }
        const float factor = flat ? 0 : static_cast<float>(1 / std::sqrt(total));
        for (int k = 0; k < 128; ++k) vector[k] *= factor;
    }

    // Divide the norm of the gradient of each pixel of a row between the two nearest of eight directions.
    void orient(const Scale &scale, const float *channel, int c, int y, float *out) {
        std::fill(out, out + static_cast<size_t>(width_) * 8, 0.0f);
        if (y == 0 || y == height_ - 1) return;
        squares_.resize(width_), turns_.resize(width_);
        const float *above = smoothed(scale, channel, c, y - 1), *row = smoothed(scale, channel, c, y),
                    *below = smoothed(scale, channel, c, y + 1);
        polar(row, above, below, width_, squares_.data(), turns_.data());
        for (int x = 1; x < width_ - 1; ++x) {
            const int whole = static_cast<int>(turns_[x]);
            const float norm = std::sqrt(squares_[x]), share = norm * (turns_[x] - static_cast<float>(whole));
            out[8 * x + (whole & 7)] = norm - share;
            out[8 * x + ((whole + 1) & 7)] = share;
        }
    }

    // Squared norm and direction of the gradient along a row; directions in eighths of a turn, from right to up. The
    // arctangent is a polynomial (Abramowitz and Stegun, 4.4.49) and both sides of each choice are computed, so that
    // the loop can be vectorised.
    BAGWISE_APART static void polar(const float *row, const float *above, const float *below, int width,
                                    float *BAGWISE_RESTRICT squares, float *BAGWISE_RESTRICT turns) {
        constexpr float kEighth = static_cast<float>(8 / (2 * 3.14159265358979323846));
        for (int x = 1; x < width - 1; ++x) {
            const float right = row[x + 1] - row[x - 1], up = above[x] - below[x];
            const float across = std::fabs(right), along = std::fabs(up);
            const float small = std::min(across, along), large = std::max(across, along);
            const float slope = small / std::max(large, 1e-30f), s = slope * slope;
            float angle = -0.0752896400f + s * (0.0429096138f + s * (-0.0161657367f + s * 0.0028662257f));
            angle = 0.1999355085f + s * (-0.1420889944f + s * (0.1065626393f + s * angle));
            angle = slope * (1.0f + s * (-0.3333314528f + s * angle)) * kEighth;
            const float flat = along < across ? 1.0f : -1.0f, east = right >= 0 ? 1.0f : -1.0f,
                        north = up >= 0 ? 1.0f : -1.0f;
            const float turn =
                2 * (1 - east) + east * (1 - flat + flat * angle);  // 2 - angle where it is not flat, ...
            turns[x] = 4 * (1 - north) + north * turn;
            squares[x] = right * right + up * up;
        }
    }

    static int mirrored(int i, int n) {
        i = n == 1 ? 0 : std::abs(i) % (2 * n - 2);
        return i < n ? i : 2 * n - 2 - i;
    }

    // A row of a channel, smoothed by the Gaussian of a scale; the last three of each channel are kept.
    const float *smoothed(const Scale &scale, const float *channel, int c, int y) {
        const auto source = [&](int k) { return channel + static_cast<size_t>(mirrored(k, height_)) * width_; };
        const int radius = static_cast<int>(scale.gaussian.size()) - 1;
        if (radius < 1) return source(y);
        smooth_.resize(static_cast<size_t>(width_) * 9);
        padded_.resize(width_ + 2 * radius);
        float *out = &smooth_[static_cast<size_t>(width_) * (3 * c + y % 3)], *inner = &padded_[radius];
        if (y < next_smooth_[c]) return out;
        next_smooth_[c] = y + 1;
        for (int x = 0; x < width_; ++x) inner[x] = scale.gaussian[0] * source(y)[x];
        for (int k = 1; k <= radius; ++k) {
            const float *above = source(y - k), *below = source(y + k), weight = scale.gaussian[k];
            for (int x = 0; x < width_; ++x) inner[x] += weight * (above[x] + below[x]);
        }
        for (int k = 1; k <= radius; ++k)
            inner[-k] = inner[mirrored(-k, width_)], inner[width_ - 1 + k] = inner[mirrored(width_ - 1 + k, width_)];
        for (int x = 0; x < width_; ++x) out[x] = scale.gaussian[0] * inner[x];
        for (int k = 1; k <= radius; ++k) {
            const float weight = scale.gaussian[k];
            for (int x = 0; x < width_; ++x) out[x] += weight * (inner[x - k] + inner[x + k]);
        }
        return out;
    }

    vector<float> vectors_, ring_, line_, squares_, turns_, smooth_, padded_;
    int width_ = 0, height_ = 0, next_ = 0;  // next_: row whose gradients come next
    size_t plane_ = 0;
    std::array<int, 3> next_smooth_{};  // the same of smoothed rows, by channel
    Codebook::Scratch scratch_;
};

// Threads that wait for work. The caller is the first of them.
class Threads {
  public:
#ifdef BAGWISE_NO_THREADS
    explicit Threads(int) {}
    int n() const { return 1; }
    template <class Work>
    void run(const Work &work) {
        work(0);
    }
#else
    explicit Threads(int n) : n_(n) {
        try {
            for (int t = 1; t < n; ++t) threads_.emplace_back([this, t] { wait(t); });
        } catch (const std::exception &error) {
            stop();
            fail("Of ", n, " threads only ", threads_.size() + 1, " could be started: ", error.what(), '.');
        }
    }
    Threads(const Threads &) = delete;
    Threads &operator=(const Threads &) = delete;
    ~Threads() { stop(); }
    int n() const { return n_; }

    // Call work(t) for t from 0 to n - 1.
    template <class Work>
    void run(const Work &work) {
        start([](const void *context, int t) { (*static_cast<const Work *>(context))(t); }, &work);
        call(0);
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return n_busy_ == 0; });
        if (std::exchange(failed_, false)) throw std::bad_alloc();
    }

  private:
    void stop() {
        start(nullptr, nullptr);
        for (std::thread &one : threads_) one.join();
    }
    void start(void (*job)(const void *, int), const void *context) {
        std::lock_guard<std::mutex> lock(mutex_);
        job_ = job, context_ = context, n_busy_ = n_ - 1;
        ++round_;
        begin_.notify_all();
    }
    void call(int t) {
        try {
            job_(context_, t);
        } catch (...) {  // bad_alloc, or length_error where addresses have 32 bits
            std::lock_guard<std::mutex> lock(mutex_);
            failed_ = true;
        }
    }
    void wait(int t) {
        for (unsigned seen = 0;;) {
            std::unique_lock<std::mutex> lock(mutex_);
            begin_.wait(lock, [&] { return round_ != seen; });
            seen = round_;
            if (!job_) return;
            lock.unlock();
            call(t);
            lock.lock();
            if (--n_busy_ == 0) done_.notify_one();
        }
    }
    std::mutex mutex_;
    std::condition_variable begin_, done_;
    void (*job_)(const void *, int) = nullptr;
    const void *context_ = nullptr;
    int n_, n_busy_ = 0;
    unsigned round_ = 0;
    bool failed_ = false;
    vector<std::thread> threads_;
#endif
};

}  // namespace detail

// A model: cheap to copy, never changed, for any number of threads.
class Model {
  public:
    // Read a model from a file. `n_groups` is the number of groups to cut it at, 0 for that of the file.
    static Model load(const std::string &path, int n_groups = 0) {
        return named(path, [&] {
            const auto content = detail::read_file(path);
            return detail::Loader::load(content.data(), content.size(), n_groups);
        });
    }
    // Read a model from the bytes of a file, which are not needed afterwards.
    static Model from_memory(const void *content, std::size_t size, int n_groups = 0) {
        const auto *bytes = static_cast<const unsigned char *>(content);
        return named("The model in memory", [&] { return detail::Loader::load(bytes, size, n_groups); });
    }

    Items items() const { return data_->items; }
    const std::vector<std::string> &classes() const { return data_->classes; }
    int n_groups() const { return data_->n_groups; }
    int n_words() const { return data_->n_words; }
    int n_features() const { return static_cast<int>(data_->n_features()); }
    bool has_classifier() const { return data_->has_head(); }
    bool has_probabilities() const { return data_->sharpness > 0; }
    bool needs_color() const {
        return !detail::all_of(data_->descriptors, [](const auto &one) { return !one.needs_color; });
    }
    // The name of a word, if words have names; and that given to a group, or null.
    std::string_view word_name(int word) const {
        return word >= 0 && word < static_cast<int>(data_->names.size()) ? data_->names[word] : std::string_view();
    }
    const std::string *group_name(int group) const {
        const auto found = data_->group_names.find(group);
        return found == data_->group_names.end() ? nullptr : &found->second;
    }
    const detail::Data &data() const { return *data_; }

  private:
    explicit Model(std::shared_ptr<const detail::Data> data) : data_(std::move(data)) {}
    template <class Load>
    static Model named(const std::string &where, Load load) {
        try {
            return Model(load());
        } catch (const Error &error) {
            throw Error(where + " cannot be read as a model: " + error.what());
        } catch (const std::bad_alloc &) {
            throw Error(where + " cannot be read as a model: there is not enough memory.");
        }
    }
    std::shared_ptr<const detail::Data> data_;
};

// Classifies items, one after the other. One thread uses it at a time; `n_threads` threads work on each image.
class Workspace {
  public:
    explicit Workspace(const Model &model, int n_threads = 1)
        : model_(model),
          data_(model_.data()),
          threads_(std::clamp(n_threads, 1, 256)),
          describers_(threads_.n()),
          slots_(data_.items == Items::table ? 0 : data_.n_columns()),
          sums_(data_.n_features()),
          scores_(data_.has_head() ? data_.classes.size() : 0),
          features_(data_.n_features()) {}

    const Model &model() const { return model_; }

    // Return the number of the class of an image; 0 without a classifier.
    int classify(const Image &image) {
        check_items(Items::images, "an image");
        const std::size_t row = static_cast<std::size_t>(std::max(image.width, 0)) * std::max(image.channels, 0);
        const std::size_t stride = image.stride ? image.stride : row;
        const bool sound =
            std::min(image.width, image.height) >= 0 && std::max(image.width, image.height) <= detail::kMostSide;
        const bool known = image.channels == 1 || image.channels == 3 || image.channels == 4;
        detail::check(sound && known && stride >= row && (image.pixels || row * image.height == 0),
                      "An image has 1, 3 or 4 channels, sides of up to ", detail::kMostSide,
                      " pixels and rows that do not overlap; got ", image.width, " x ", image.height, " x ",
                      image.channels, ", stride ", stride, '.');
        detail::check(!model_.needs_color() || image.channels > 1,
                      "The descriptor of this model needs RGB images, got a grey one.");
        image_ = {image.pixels, image.width, image.height, image.channels == 1 ? 1 : 3, image.channels, stride};
        try {
            count_patches();
        } catch (...) {  // there is nothing to explain
            sizes_.clear();
            clear_counts();
            throw;
        }
        return finish(false);
    }

    // Return the number of the class of a text in UTF-8; other bytes separate words.
    int classify_text(std::string_view text) {
        check_items(Items::texts, "a text");
        clear_counts();
        data_.tokenizer->split(text, lowered_, tokens_);
        occurrences_.clear();
        const char *between = data_.tokenizer->by_characters ? "" : " ";
        for (std::size_t n = data_.tokenizer->least; n <= static_cast<std::size_t>(data_.tokenizer->most); ++n)
            for (std::size_t a = 0; a + n <= tokens_.size(); ++a) {
                joined_.assign(lowered_, tokens_[a].first, tokens_[a].size);
                for (std::size_t k = a + 1; k < a + n; ++k)
                    joined_.append(between).append(lowered_, tokens_[k].first, tokens_[k].size);
                const std::int32_t word = data_.find(joined_);
                if (word < 0) continue;
                count(word);
                occurrences_.push_back({a, n, word});
            }
        return finish(data_.tokenizer->binary);
    }

    // Return the number of the class of a row of a table.
    int classify_row(const double *values, std::size_t n) {
        check_items(Items::table, "a row");
        detail::check(n == static_cast<std::size_t>(data_.n_words), "A row has ", data_.n_words,
                      " values, one per column; got ", n, '.');
        entries_.clear();
        for (std::size_t k = 0; k < n; ++k) {
            detail::check(std::isfinite(values[k]), "A row must hold finite numbers, but column ", k, " does not.");
            const double value = values[k] - (data_.shift.empty() ? 0 : data_.shift[k]);
            if (value != 0) entries_.push_back({k, 0, value, 0});
        }
        return finish(false);
    }

    // Of the last item: features of groups, scores of classes.
    const std::vector<float> &features() const { return features_; }
    const std::vector<double> &scores() const { return scores_; }

    // Write the numbers of the up to n best classes, best first, of equally good ones the first; returns how many.
    int top(int n, std::int32_t *classes) const {
        const int most = std::clamp(n, 0, static_cast<int>(scores_.size()));
        for (int k = 0; k < most; ++k) {
            classes[k] = -1;
            for (std::int32_t c = 0; c < static_cast<std::int32_t>(scores_.size()); ++c)
                if (std::find(classes, classes + k, c) == classes + k &&
                    (classes[k] < 0 || scores_[c] > scores_[classes[k]]))
                    classes[k] = c;
        }
        return most;
    }

    // Write calibrated probabilities of all classes.
    void probabilities(double *out) const {
        detail::check(model_.has_probabilities(), "This model has no calibration for ", data_.n_groups,
                      " groups: it comes from cross-validation.");
        const double largest = *std::max_element(scores_.begin(), scores_.end());
        double sum = 0;
        for (std::size_t c = 0; c < scores_.size(); ++c)
            sum += out[c] = std::exp(data_.sharpness * (scores_[c] - largest));
        for (std::size_t c = 0; c < scores_.size(); ++c) out[c] /= sum;
    }

    // Explain the score of class k of the last item: intercept and weights of groups, of terms or of places add up to
    // it.
    void explain(int k) {
        detail::check(data_.has_head(), "This model has no classifier for ", data_.n_groups, " groups.");
        detail::check(k >= 0 && k < static_cast<int>(scores_.size()), "There are classes 0 to ", scores_.size() - 1,
                      "; got ", k, '.');
        const std::size_t n = data_.n_groups, d = data_.n_words;
        const float *coef = &data_.coef[k * features_.size()];
        intercept_ = data_.intercept[k];
        group_weights_.assign(n, 0);
        for (std::size_t f = 0; f < features_.size(); ++f)
            group_weights_[f % n] += static_cast<double>(coef[f]) * features_[f];
        terms_.clear();
        for (Entry &one : entries_) one.weight = 0;
        const auto &groups = data_.groups;
        sharing_.assign(sums_.size(), 0);
        for (const Entry &one : entries_) sharing_[one.column / d * n + groups[one.column % d]] += one.value != 0;
        for (Entry &one : entries_) {
            const std::int32_t word = static_cast<std::int32_t>(one.column % d);
            const std::size_t f = one.column / d * n + groups[word];
            if (one.value == 0) continue;
            // values of a group that cancel each other share its weight evenly: it is 0 but for rounding
            const double share = sums_[f] == 0 ? 1.0 / sharing_[f] : one.value / sums_[f];
            terms_.push_back({word, groups[word], static_cast<double>(coef[f]) * features_[f] * share});
            one.weight += terms_.back().weight;
        }
        std::sort(terms_.begin(), terms_.end(),
                  [](const Term &a, const Term &b) { return std::tie(a.word, a.group) < std::tie(b.word, b.group); });
        std::size_t kept = 0;
        for (const Term &one : terms_) {  // those of several cells are one
            if (kept && terms_[kept - 1].word == one.word && terms_[kept - 1].group == one.group)
                terms_[kept - 1].weight += one.weight;
            else terms_[kept++] = one;
        }
        terms_.resize(kept);
        find_places();
    }
    double intercept() const { return intercept_; }
    const std::vector<double> &group_weights() const { return group_weights_; }
    const std::vector<Term> &terms() const { return terms_; }     // by word, then group
    const std::vector<Place> &places() const { return places_; }  // in the order of the item

  private:
    struct Entry {
        std::size_t column;    // cell times number of words, plus word
        std::uint32_t count;   // how often the word occurs in the cell
        double value, weight;  // after weighting; part of a score
    };
    struct Occurrence {
        std::size_t token, n;
        std::int32_t word;
    };

    void check_items(Items wanted, const char *got) const {
        static constexpr const char *kNames[] = {"images", "texts", "rows of a table"};
        detail::check(data_.items == wanted, "This model takes ", kNames[static_cast<int>(data_.items)], ", got ", got,
                      '.');
    }

    void count_patches() {
        lay_out();
        detail::Pixels shrunk = image_;
        for (std::size_t v = 0; v < data_.descriptors.size(); ++v) {
            const auto [width, height] = sizes_[v];
            const bool whole = width == image_.width && height == image_.height;
            if (v == 0 || sizes_[v] != sizes_[v - 1]) shrunk = whole ? image_ : shrinker_.shrink(image_, width, height);
            find_words(v, shrunk);
        }
        clear_counts();
        for_patches([&](std::size_t, std::size_t, std::size_t number, float x, float y) {
            for_cells(x, y, [&](std::size_t cell) { count(cell * data_.n_words + words_[number]); });
        });
    }

    // Find the size that the image is described at, and the patches, for each descriptor.
    void lay_out() {
        grids_.clear();
        sizes_.clear();
        std::size_t n_patches = 0;
        for (const detail::Descriptor &one : data_.descriptors) {
            sizes_.push_back(detail::Shrinker::size(image_.width, image_.height, one.max_side));
            for (const detail::Scale &scale : one.scales) {
                detail::Grid grid;
                std::tie(grid.n_columns, grid.left) = scale.starts(sizes_.back().first, one.step);
                std::tie(grid.n_rows, grid.top) = scale.starts(sizes_.back().second, one.step);
                grid.first_patch = n_patches;
                grid.offset = one.is_sift ? static_cast<int>(scale.size) / 2 + 0.5 : scale.size / 2;
                n_patches += static_cast<std::size_t>(grid.n_rows) * grid.n_columns;
                grids_.push_back(grid);
            }
        }
        words_.resize(n_patches);
    }

    void find_words(std::size_t v, const detail::Pixels &image) {
        const detail::Descriptor &descriptor = data_.descriptors[v];
        if (descriptor.kind != detail::Descriptor::color_cells) make_channels(descriptor, image);
        std::size_t first = 0;
        for (std::size_t k = 0; k < v; ++k) first += data_.descriptors[k].scales.size();
        threads_.run([&](int t) {
            for (std::size_t s = 0; s < descriptor.scales.size(); ++s) {
                const detail::Grid &grid = grids_[first + s];
                const auto border = [&](std::int64_t k) { return static_cast<int>(grid.n_rows * k / threads_.n()); };
                if (grid.n_columns)
                    describers_[t].describe(descriptor, descriptor.scales[s], data_.codebooks[v], data_.first_words[v],
                                            image, channels_, grid, border(t), border(t + 1), words_.data());
            }
        });
    }

    // Convert pixels to the channels that a descriptor describes.
    void make_channels(const detail::Descriptor &descriptor, const detail::Pixels &image) {
        const std::size_t plane = static_cast<std::size_t>(image.width) * image.height;
        channels_.resize(detail::room_for(plane, descriptor.n_channels));
        const bool opponent = descriptor.option == "opponent" || descriptor.option == "c";
        float *out = channels_.data();
        for (int y = 0; y < image.height; ++y) {
            const std::uint8_t *pixel = image.at(0, y);
            for (int x = 0; x < image.width; ++x, pixel += image.step, ++out) {
                if (descriptor.n_channels == 1) {
                    *out = static_cast<float>(
                        image.channels == 1
                            ? *pixel
                            : (19595u * pixel[0] + 38470u * pixel[1] + 7471u * pixel[2] + 32768u) >> 16);
                    continue;
                }
                const double red = pixel[0], green = pixel[1], blue = pixel[2], sum = red + green + blue;
                double found[3] = {red, green, blue};
                if (opponent)
                    found[0] = (red - green) / std::sqrt(2.0), found[1] = (red + green - 2 * blue) / std::sqrt(6.0),
                    found[2] = sum / std::sqrt(3.0);
                const double by = descriptor.option == "rg" ? sum : descriptor.option == "c" ? found[2] : 1;
                for (int c = 0; c < 2; ++c) found[c] = by != 0 ? found[c] / by : 0;
                for (int c = 0; c < descriptor.n_channels; ++c) out[plane * c] = static_cast<float>(found[c]);
            }
        }
    }

    // Call a function with the descriptor, scale, number and centre of each patch.
    template <class Function>
    void for_patches(Function function) const {
        std::size_t number = 0, g = 0;
        for (std::size_t v = 0; v < sizes_.size(); ++v)
            for (std::size_t s = 0; s < data_.descriptors[v].scales.size(); ++s, ++g)
                for (int i = 0; i < grids_[g].n_rows; ++i)
                    for (int j = 0; j < grids_[g].n_columns; ++j, ++number) {
                        const int step = data_.descriptors[v].step;
                        const double x = grids_[g].left + j * step + grids_[g].offset,
                                     y = grids_[g].top + i * step + grids_[g].offset;
                        function(v, s, number, static_cast<float>(x / sizes_[v].first),
                                 static_cast<float>(y / sizes_[v].second));
                    }
    }
    // Call a function with the cells of the pyramid that a point of the unit square is in.
    template <class Function>
    void for_cells(float x, float y, Function function) const {
        std::size_t first = 0;
        for (const auto &[rows, columns] : data_.grids) {
            const int row = std::min(static_cast<int>(y * static_cast<float>(rows)), rows - 1);
            function(first + row * columns + std::min(static_cast<int>(x * static_cast<float>(columns)), columns - 1));
            first += rows * columns;
        }
    }

    void clear_counts() {
        for (const Entry &one : entries_) slots_[one.column] = 0;
        entries_.clear();
    }
    void count(std::size_t column) {
        if (slots_[column] == 0) {
            entries_.push_back({column, 0, 0, 0});
            slots_[column] = static_cast<std::uint32_t>(entries_.size());
        }
        ++entries_[slots_[column] - 1].count;
    }

    // From the counts of words to features, scores and the class.
    int finish(bool binary) {
        for (Entry &one : entries_)
            if (one.count) one.value = binary ? 1 : one.count;
        weight_words();
        const std::size_t n = data_.n_groups, d = data_.n_words;
        std::fill(sums_.begin(), sums_.end(), 0);
        for (const Entry &one : entries_) sums_[one.column / d * n + data_.groups[one.column % d]] += one.value;
        normalized_ = sums_;
        for (const std::string &step : data_.steps) {
            const auto each = [&](auto function) { std::for_each(normalized_.begin(), normalized_.end(), function); };
            if (step == "power") each([](double &one) { one = std::copysign(std::sqrt(std::fabs(one)), one); });
            else divide_by_norm(step, each);
        }
        for (std::size_t f = 0; f < features_.size(); ++f) features_[f] = static_cast<float>(normalized_[f]);
        std::size_t best = 0;
        for (std::size_t c = 0; c < scores_.size(); ++c) {
            scores_[c] = 0;
            for (std::size_t f = 0; f < features_.size(); ++f)
                scores_[c] += static_cast<double>(data_.coef[c * features_.size() + f]) * features_[f];
            scores_[c] += data_.intercept[c];
            if (scores_[c] > scores_[best]) best = c;
        }
        return static_cast<int>(best);
    }

    void weight_words() {
        for (Entry &one : entries_) {
            const double size = std::fabs(one.value);
            if (data_.term == "sqrt") one.value = std::copysign(std::sqrt(size), one.value);
            if (data_.term == "log" && size > 1) one.value = std::copysign(1 + std::log(size), one.value);
            if (!data_.weights.empty()) one.value *= data_.weights[one.column % data_.n_words];
        }
        for (std::size_t v = 0; v + 1 < data_.first_words.size() && !data_.norm.empty(); ++v)
            divide_by_norm(data_.norm, [&](auto function) {
                for (Entry &one : entries_) {
                    const auto word = static_cast<std::int32_t>(one.column % data_.n_words);
                    if (word >= data_.first_words[v] && word < data_.first_words[v + 1]) function(one.value);
                }
            });
    }

    // Divide numbers by their norm; by the largest first, so that squares neither overflow nor vanish.
    template <class ForEach>
    static void divide_by_norm(const std::string &norm, ForEach for_each) {
        double largest = 0, sum = 0;
        for_each([&](double &one) { largest = std::max(largest, std::fabs(one)); });
        if (!(largest > 0)) return;
        for_each([&](double &one) { one /= largest, sum += norm == "l1" ? std::fabs(one) : one * one; });
        const double by = norm == "l1" ? sum : std::sqrt(sum);
        for_each([&](double &one) { one /= by; });
    }

    // Divide the weight of each word among its patches or tokens.
    void find_places() {
        places_.clear();
        if (data_.items == Items::table)
            for (const Entry &one : entries_)
                if (one.value != 0)
                    places_.push_back({0, 0, 0, 0, 0, static_cast<std::int32_t>(one.column), one.weight});
        for_patches([&](std::size_t v, std::size_t s, std::size_t number, float x, float y) {
            const double larger = std::max(image_.width, image_.height) /
                                  static_cast<double>(std::max(sizes_[v].first, sizes_[v].second));
            const double side = data_.descriptors[v].scales[s].size * larger;
            places_.push_back({static_cast<double>(x) * image_.width - side / 2,
                               static_cast<double>(y) * image_.height - side / 2, side, 0, 0, words_[number], 0});
            for_cells(x, y, [&](std::size_t cell) {
                const Entry &own = entries_[slots_[cell * data_.n_words + words_[number]] - 1];
                places_.back().weight += own.weight / own.count;
            });
        });
        if (data_.items != Items::texts) return;
        for (const detail::Token &one : tokens_) places_.push_back({0, 0, 0, one.start, one.end, -2, 0});
        for (const Occurrence &one : occurrences_) {
            const Entry &own = entries_[slots_[one.word] - 1];
            for (std::size_t k = one.token; k < one.token + one.n && own.value != 0; ++k) {
                places_[k].word = -1;
                places_[k].weight += own.weight / own.count / one.n;
            }
        }
        places_.erase(std::remove_if(places_.begin(), places_.end(), [](const Place &one) { return one.word == -2; }),
                      places_.end());
    }

    Model model_;
    const detail::Data &data_;
    detail::Threads threads_;
    std::vector<detail::Describer> describers_;
    detail::Pixels image_;
    detail::Shrinker shrinker_;
    std::vector<std::pair<int, int>> sizes_;  // that the image is described at, by descriptor
    std::vector<detail::Grid> grids_;         // by descriptor and scale
    std::vector<float> channels_;
    std::vector<std::int32_t> words_;  // of patches
    std::string lowered_, joined_;
    std::vector<detail::Token> tokens_;
    std::vector<Occurrence> occurrences_;
    std::vector<std::uint32_t> slots_;  // of columns: 0, or the number of their entry plus one
    std::vector<Entry> entries_;
    std::vector<double> sums_, normalized_, scores_, group_weights_;
    std::vector<float> features_;
    std::vector<std::uint32_t> sharing_;
    double intercept_ = 0;
    std::vector<Term> terms_;
    std::vector<Place> places_;
};

}  // namespace bagwise

#endif
