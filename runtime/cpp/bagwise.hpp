// bagwise.hpp: models of bagwise on devices, from pixels, texts or numbers to classes. C++17, the standard library alone.
//
//     bagwise::Model model = bagwise::Model::load("scenes.bagwise");
//     bagwise::Workspace workspace(model);                                // one per thread
//     int k = workspace.classify({pixels, width, height, 3});             // 8-bit grey (1), RGB (3) or RGBA (4)
//     std::puts(model.classes()[k].c_str());
//
// It computes what bagwise.Model computes (docs/model-file.md of bagwise has the file and the steps), and checks files as
// bagwise.runtime does. What it does not support it refuses when it loads a model, by a bagwise::Error that says what.
// Nothing is allocated for items that are no larger than those before. Define BAGWISE_NO_THREADS to leave std::thread out.
#ifndef BAGWISE_HPP
#define BAGWISE_HPP

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

// A part of an item and its part of a score: a square of an image with its upper left corner, a token of a text from byte
// `start` to `end`, or the column `word` of a table.
struct Place {
    double x, y, side;
    std::uint64_t start, end;
    std::int32_t word;
    double weight;
};

namespace detail {

// Limits far above real models, as in bagwise.runtime; and those of this runtime.
constexpr std::int64_t kMostHeader = 1 << 22, kMostCells = 1 << 10, kMostGroups = 1 << 20, kMostTable = 1 << 25;
constexpr std::int64_t kMostWords = 0x7fffffff, kMostCount = std::int64_t(1) << 62;
constexpr int kDeepest = 64, kMostValues = 1 << 19, kMostParts = 16, kSchema = 3, kLongestName = 10000;
constexpr int kMostSide = 1 << 15;      // pixels of a side of an image
constexpr double kMostSmoothing = 1000;  // standard deviation in pixels
constexpr double kLargest = 1e16, kLargestWeight = 1e37;

[[noreturn]] inline void fail(const std::string &message) { throw Error(message); }

#define BAGWISE_CHECK(sound, ...) \
    do {                          \
        if (!(sound)) ::bagwise::detail::fail(__VA_ARGS__); \
    } while (false)

inline std::string in_quotes(std::string_view text) {
    std::string shown(text.substr(0, 100));
    for (char &c : shown)
        if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    return '"' + shown + (text.size() > 100 ? "…" : "") + '"';
}

// ---- UTF-8 ----

constexpr char32_t kWrong = 0xfffd;

// Decode a character and go behind it. What is no UTF-8 is one U+FFFD for each part that could begin a character, as
// Python's errors="replace" has it; `wrong` is set. Surrogates are wrong unless `surrogates`.
inline char32_t decode(std::string_view text, std::size_t &at, bool &wrong, bool surrogates = false) {
    const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
    const unsigned first = byte(at++);
    if (first < 0x80) return first;
    const int more = first >= 0xc2 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xf0 && first < 0xf5 ? 3 : 0;
    unsigned low = 0x80, high = 0xbf;  // of the second byte: no overlong forms, surrogates, or numbers beyond U+10FFFF
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed && !surrogates) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    char32_t found = more == 1 ? first & 0x1f : more == 2 ? first & 0x0f : first & 0x07;
    for (int k = 0; k < more; ++k) {
        if (at == text.size() || byte(at) < low || byte(at) > high) {
            wrong = true;
            return kWrong;
        }
        found = found << 6 | (byte(at++) & 0x3f);
        low = 0x80, high = 0xbf;
    }
    if (more == 0) wrong = true;
    return more == 0 ? kWrong : found;
}

inline void encode(char32_t c, std::string &out) {
    if (c < 0x80) {
        out += static_cast<char>(c);
        return;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    out += static_cast<char>((more == 1 ? 0xc0u : more == 2 ? 0xe0u : 0xf0u) | (c >> (6 * more)));
    for (int k = more - 1; k >= 0; --k) out += static_cast<char>(0x80u | ((c >> (6 * k)) & 0x3f));
}

inline bool is_utf8(std::string_view text) {
    bool wrong = false;
    for (std::size_t at = 0; at < text.size() && !wrong;) decode(text, at, wrong, true);
    return !wrong;
}

// ---- JSON ----

struct Json {
    enum Type { null, boolean, integer, number, string, list, object };
    Type type = null;
    std::int64_t whole = 0;  // of an integer; of a boolean 0 or 1
    double real = 0;         // of an integer or a number
    std::string text;
    std::vector<Json> items;         // of a list or an object
    std::vector<std::string> names;  // of the items of an object, ascending

    bool is_count(std::int64_t least = 0, std::int64_t most = kMostCount) const {
        return type == integer && least <= whole && whole <= most;
    }
    bool is_number() const { return type == integer || type == number; }
    const Json *find(std::string_view name) const {
        const auto found = std::lower_bound(names.begin(), names.end(), name);
        return found == names.end() || *found != name ? nullptr : &items[static_cast<std::size_t>(found - names.begin())];
    }
    const Json &at(std::string_view name) const {
        static const Json nothing;
        const Json *found = find(name);
        return found ? *found : nothing;
    }
    // As text, for errors.
    std::string shown(int depth = 0) const {
        if (type == null || type == boolean) return type == null ? "null" : whole ? "true" : "false";
        if (type == string) return in_quotes(text);
        if (type == integer) return std::to_string(whole);
        if (type == number) {
            char digits[32];
            std::snprintf(digits, sizeof digits, "%.9g", real);
            return digits;
        }
        std::string inside;
        for (std::size_t k = 0; k < items.size() && inside.size() < 100; ++k) {
            inside += k ? ", " : "";
            inside += depth > 3 ? "…" : (type == object ? in_quotes(names[k]) + ": " : "") + items[k].shown(depth + 1);
        }
        if (inside.size() >= 100) inside = inside.substr(0, 100) + "…";
        return (type == list ? '[' : '{') + inside + (type == list ? ']' : '}');
    }
};

class JsonParser {
  public:
    static Json parse(std::string_view text) {
        BAGWISE_CHECK(is_utf8(text), "its header is no JSON: it is not UTF-8.");
        JsonParser parser(text);
        Json found = parser.value(0);
        parser.space();
        if (parser.at_ != text.size()) parser.wrong("the end");
        BAGWISE_CHECK(found.type == Json::object, "its header is no JSON object.");
        return found;
    }

  private:
    explicit JsonParser(std::string_view text) : text_(text) {}

    [[noreturn]] void wrong(const char *wanted) const {
        fail("its header is no JSON: expected " + std::string(wanted) + " at character " + std::to_string(at_) + '.');
    }
    char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    void space() {
        while (at_ < text_.size() && std::strchr(" \t\n\r", text_[at_]) && text_[at_]) ++at_;
    }
    bool take(std::string_view word) {
        const bool there = text_.substr(at_, word.size()) == word;
        at_ += there ? word.size() : 0;
        return there;
    }

    Json value(int depth) {
        BAGWISE_CHECK(++n_values_ <= kMostValues, "its header has more than " + std::to_string(kMostValues) + " values.");
        space();
        Json found;
        if (next() == '{' || next() == '[') {
            BAGWISE_CHECK(depth < kDeepest, "its header is nested in more than " + std::to_string(kDeepest) + " lists and objects.");
            found.type = next() == '{' ? Json::object : Json::list;
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
        const bool named = found.type == Json::object;
        const char end = named ? '}' : ']';
        ++at_;
        space();
        std::vector<std::pair<std::string, Json>> members;
        if (next() != end) {
            do {
                std::string name;
                space();
                if (named) {
                    if (next() != '"') wrong("a name");
                    name = string();
                    space();
                    if (!take(":")) wrong("a colon");
                    members.emplace_back(std::move(name), value(depth + 1));
                } else {
                    found.items.push_back(value(depth + 1));
                }
                space();
            } while (take(","));
        }
        if (next() != end) wrong(named ? "a comma or }" : "a comma or ]");
        ++at_;
        std::sort(members.begin(), members.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
        for (auto &[name, held] : members) {
            BAGWISE_CHECK(found.names.empty() || found.names.back() != name, "its header has the member " + in_quotes(name) + " twice.");
            found.names.push_back(std::move(name));
            found.items.push_back(std::move(held));
        }
    }

    void number(Json &found) {
        const std::size_t start = at_;
        const auto digits = [&] {
            const std::size_t first = at_;
            while (next() >= '0' && next() <= '9') ++at_;
            return at_ - first;
        };
        take("-");
        const bool zero = next() == '0';
        const std::size_t n_digits = digits();
        if (n_digits == 0 || (zero && n_digits > 1)) wrong("a value");
        bool whole = true;
        if (take(".")) {
            whole = false;
            if (digits() == 0) wrong("a digit");
        }
        if (next() == 'e' || next() == 'E') {
            whole = false;
            ++at_;
            if (!take("+")) take("-");
            if (digits() == 0) wrong("a digit");
        }
        const std::string held(text_.substr(start, at_ - start));
        found.type = Json::number;
        found.real = parsed(held);
        if (whole && n_digits < 19) {  // longer ones are no counts
            found.type = Json::integer;
            found.whole = std::strtoll(held.c_str(), nullptr, 10);
        }
    }

    // strtod with the point as decimal sign, whatever the locale.
    static double parsed(const std::string &held) {
        char *end = nullptr;
        const double found = std::strtod(held.c_str(), &end);
        if (*end == '\0') return found;
        std::string local = held;
        char sign[32];
        std::snprintf(sign, sizeof sign, "%.1f", 0.5);
        local.replace(static_cast<std::size_t>(end - held.c_str()), 1, std::string(sign + 1, std::strlen(sign) - 2));
        return std::strtod(local.c_str(), nullptr);
    }

    char32_t hex() {
        char32_t found = 0;
        for (int k = 0; k < 4; ++k, ++at_) {
            const char c = next();
            const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
            if (digit < 0) wrong("four hexadecimal digits");
            found = found * 16 + static_cast<char32_t>(digit);
        }
        return found;
    }

    std::string string() {
        std::string found;
        ++at_;
        while (next() != '"') {
            if (static_cast<unsigned char>(next()) < 0x20) wrong("a character of a string");  // or the end of the text
            if (next() != '\\') {
                found += text_[at_++];
                continue;
            }
            ++at_;
            static constexpr char kEscapes[] = "\"\\/bfnrt", kMeant[] = "\"\\/\b\f\n\r\t";
            const char c = next();
            const char *known = c ? std::strchr(kEscapes, c) : nullptr;
            if (known) {
                found += kMeant[known - kEscapes];
                ++at_;
                continue;
            }
            if (!take("u")) wrong("an escaped character");
            char32_t code = hex();
            const std::size_t after = at_;
            if (code >= 0xd800 && code < 0xdc00 && take("\\u")) {
                const char32_t second = hex();
                if (second >= 0xdc00 && second < 0xe000)
                    code = 0x10000 + ((code - 0xd800) << 10) + (second - 0xdc00);
                else
                    at_ = after;
            }
            encode(code, found);
        }
        ++at_;
        return found;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    int n_values_ = 0;
};

// ---- checksums ----

// Tables of CRC-32 (that of zlib, PNG and gzip) for eight bytes at a time.
struct Crc32 {
    std::uint32_t table[8][256] = {};
    constexpr Crc32() {
        for (std::uint32_t k = 0; k < 256; ++k) {
            std::uint32_t c = k;
            for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
            table[0][k] = c;
        }
        for (int t = 1; t < 8; ++t)
            for (std::uint32_t k = 0; k < 256; ++k)
                table[t][k] = table[t - 1][k] >> 8 ^ table[0][table[t - 1][k] & 0xff];
    }
};

inline std::uint32_t crc32(const void *content, std::size_t size, std::uint32_t before = 0) {
    static constexpr Crc32 crc;
    const auto *bytes = static_cast<const unsigned char *>(content);
    std::uint32_t c = ~before;
    for (; size >= 8; size -= 8, bytes += 8) {
        std::uint32_t low, high;
        std::memcpy(&low, bytes, 4);
        std::memcpy(&high, bytes + 4, 4);
        low ^= c;
        c = crc.table[7][low & 0xff] ^ crc.table[6][low >> 8 & 0xff] ^ crc.table[5][low >> 16 & 0xff] ^
            crc.table[4][low >> 24] ^ crc.table[3][high & 0xff] ^ crc.table[2][high >> 8 & 0xff] ^
            crc.table[1][high >> 16 & 0xff] ^ crc.table[0][high >> 24];
    }
    for (; size; --size) c = crc.table[0][(c ^ *bytes++) & 0xff] ^ c >> 8;
    return ~c;
}

// ---- the file ----

// The bytes of a model, in memory or in a file.
class Source {
  public:
    Source(const void *content, std::size_t size) : content_(static_cast<const unsigned char *>(content)), size_(size) {}
    explicit Source(const std::string &path) {
        namespace fs = std::filesystem;
        std::error_code none;
        fs::path file = fs::u8path(path);
        const bool folder = fs::is_directory(file, none);  // of an earlier version
        if (folder) file /= "model.safetensors";
        BAGWISE_CHECK(!(folder && fs::is_symlink(file, none)), "model.safetensors is a link. Put the file itself there.");
        const bool there = fs::is_regular_file(file, none);
        size_ = there ? fs::file_size(file, none) : 0;
        const std::string name = in_quotes(file.filename().u8string());
        BAGWISE_CHECK(there && !none && size_ > 0, (folder ? "it is a folder, in which " : "") + ("there is no file " + name) + ", or it is empty.");
        BAGWISE_CHECK(size_ < static_cast<std::uint64_t>(std::numeric_limits<long>::max()), "it is too large for this machine.");
        file_.reset(std::fopen(file.string().c_str(), "rb"));
        BAGWISE_CHECK(file_ != nullptr, "it cannot be opened.");
    }

    std::uint64_t size() const { return size_; }
    void read(std::uint64_t first, void *out, std::size_t n) {
        if (n == 0) return;
        if (content_) {
            std::memcpy(out, content_ + first, n);
            return;
        }
        const bool there = std::fseek(file_.get(), static_cast<long>(first), SEEK_SET) == 0;
        BAGWISE_CHECK(there && std::fread(out, 1, n, file_.get()) == n, "it cannot be read, or became shorter meanwhile.");
    }

  private:
    struct Close {
        void operator()(std::FILE *file) const { std::fclose(file); }
    };
    const unsigned char *content_ = nullptr;
    std::uint64_t size_ = 0;
    std::unique_ptr<std::FILE, Close> file_;
};

struct Form {
    std::string type;
    std::vector<std::int64_t> shape;
    bool operator==(const Form &other) const { return type == other.type && shape == other.shape; }
    std::int64_t last() const { return shape.empty() ? 0 : shape.back(); }
    std::string shown() const {
        std::string text = type + " (";
        for (std::size_t k = 0; k < shape.size(); ++k) text += (k ? ", " : "") + std::to_string(shape[k]);
        return text + ")";
    }
};

inline std::size_t item_size(std::string_view type) {
    if (type == "U8" || type == "I8") return 1;
    if (type == "U16") return 2;
    if (type == "F32" || type == "I32") return 4;
    return type == "F64" || type == "I64" ? 8 : 0;
}

inline bool begins_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

// The header of a file and the places of its arrays, with all that can be checked before arrays are read.
class File {
  public:
    explicit File(Source source) : source_(std::move(source)) {
        const std::uint64_t size = source_.size();
        std::uint64_t length = 0;
        if (size > 8) source_.read(0, &length, 8);
        const bool sound = length > 0 && length <= static_cast<std::uint64_t>(kMostHeader) && length <= size - 8;
        BAGWISE_CHECK(size > 8 && sound, "it is cut short, or no safetensors file (" + std::to_string(size) + " bytes).");
        start_ = 8 + length;
        std::string text(length, '\0');
        source_.read(8, &text[0], length);
        const Json entries = JsonParser::parse(text);
        const Json &about = entries.at("__metadata__");
        const bool ours = about.type == Json::object && about.at("bagwise").type == Json::string;
        BAGWISE_CHECK(ours, "it was not written by bagwise.");
        header = JsonParser::parse(about.at("bagwise").text);
        check_kind();
        for (std::size_t k = 0; k < entries.items.size(); ++k)
            if (entries.names[k] != "__metadata__") add(entries.names[k], entries.items[k]);
        check_places();
        check_layout();
        check_sums(about);
    }

    bool has(const std::string &name) const { return arrays_.count(name) != 0; }
    const Form &form(const std::string &name) const { return arrays_.at(name).form; }

    // The numbers of an array, whose type and shape are known to be right.
    template <class T>
    std::vector<T> get(const std::string &name) {
        const Array &array = arrays_.at(name);
        std::vector<T> found(static_cast<std::size_t>((array.end - array.first) / static_cast<std::int64_t>(sizeof(T))));
        source_.read(start_ + static_cast<std::uint64_t>(array.first), found.data(), found.size() * sizeof(T));
        return found;
    }

    Json header;
    std::int64_t d = 0, n = 0, cells = 0, flat = 0;  // flat: 0 for null
    int schema = 0;
    std::vector<std::int64_t> heads, vocabularies;

  private:
    struct Array {
        Form form;
        std::int64_t first, end;
    };

    void check_kind() {
        BAGWISE_CHECK(header.at("kind").type == Json::string && header.at("kind").text == "bagwise.Model",
              "it holds " + header.at("kind").shown() + ", not \"bagwise.Model\".");
        const Json &number = header.at("schema");
        BAGWISE_CHECK(!number.is_count(kSchema + 1), "it was written by a newer bagwise, schema " + number.shown() +
                                                 "; this one reads up to " + std::to_string(kSchema) + ": upgrade.");
        static const std::vector<std::string> needed = {"classes", "criterion", "descriptor", "heads", "items", "kind",
            "library", "n_words", "normalize", "options", "path", "provenance", "pyramid", "schema", "tokenizer", "vocabulary_size"};
        static const std::vector<std::string> optional = {"calibration", "flattened", "group_names", "norm", "term",
            "unedited", "vocabularies", "weight_range"};
        BAGWISE_CHECK(number.is_count(1), "its header is not that of a model: schema is " + number.shown() + '.');
        schema = static_cast<int>(number.whole);
        for (const std::string &name : needed)
            BAGWISE_CHECK(header.find(name) != nullptr, "its header is not that of a model: it has no " + name + '.');
        for (const std::string &name : header.names) {
            const bool known = std::binary_search(needed.begin(), needed.end(), name);
            const bool newer = schema > 1 && std::binary_search(optional.begin(), optional.end(), name);
            BAGWISE_CHECK(known || newer, "its header is not that of a model: schema " + number.shown() + " has no " + in_quotes(name) + '.');
        }
    }

    void add(const std::string &name, const Json &entry) {
        const Json &type = entry.at("dtype"), &shape = entry.at("shape"), &places = entry.at("data_offsets");
        const auto counts = [](const Json &held) {
            return held.type == Json::list && held.items.size() <= 2 &&
                   std::all_of(held.items.begin(), held.items.end(), [](const Json &one) { return one.is_count(); });
        };
        const bool known = type.type == Json::string && item_size(type.text) && (type.text != "I8" || schema > 2);
        const bool sound = entry.type == Json::object && known && counts(shape) && counts(places) && places.items.size() == 2;
        BAGWISE_CHECK(sound, "its array " + in_quotes(name) + " cannot be " + entry.shown() + '.');
        Array array{{type.text, {}}, places.items[0].whole, places.items[1].whole};
        std::int64_t size = static_cast<std::int64_t>(item_size(type.text));
        bool fits = true;
        for (const Json &one : shape.items) {
            array.form.shape.push_back(one.whole);
            fits = fits && (one.whole == 0 || size <= kMostCount / one.whole);
            size = fits ? size * one.whole : 0;
        }
        BAGWISE_CHECK(fits && array.first <= array.end && size == array.end - array.first,
              "its array " + in_quotes(name) + ", " + array.form.shown() + ", does not fill the bytes " +
                  std::to_string(array.first) + " to " + std::to_string(array.end) + '.');
        arrays_.emplace(name, std::move(array));
    }

    void check_places() {
        std::vector<std::pair<std::int64_t, std::int64_t>> places;
        for (const auto &[name, array] : arrays_) places.emplace_back(array.first, array.end);
        std::sort(places.begin(), places.end());
        std::int64_t end = 0;
        for (const auto &[first, last] : places) {
            BAGWISE_CHECK(first == end, "its arrays overlap or leave gaps at byte " + std::to_string(end) + '.');
            end = last;
        }
        const auto rest = static_cast<std::int64_t>(source_.size() - start_);
        BAGWISE_CHECK(end == rest, "its arrays end at byte " + std::to_string(end) + " behind the header, but the file at " + std::to_string(rest) + '.');
    }

    [[noreturn]] void wrong(const char *name, const std::string &allowed) const {
        fail("its " + std::string(name) + " cannot be " + header.at(name).shown() + "; accepted: " + allowed + '.');
    }

    bool is_one_of(const char *name, std::initializer_list<const char *> accepted) const {
        const Json &held = header.at(name);
        return held.type == Json::string &&
               std::any_of(accepted.begin(), accepted.end(), [&](const char *one) { return held.text == one; });
    }

    void check_header() {
        if (!header.at("vocabulary_size").is_count(1, kMostWords)) wrong("vocabulary_size", "1 to 2147483647 words");
        d = header.at("vocabulary_size").whole;
        if (!is_one_of("items", {"images", "videos", "texts", "table"})) wrong("items", "images, videos, texts, table");
        const Json &classes = header.at("classes"), &steps = header.at("normalize"), &sizes = header.at("heads");
        bool sound = classes.type == Json::list;
        std::size_t width = 0;
        std::vector<std::string_view> names;
        for (const Json &one : classes.items) {
            sound = sound && one.type == Json::string;
            std::size_t n_characters = 0;
            for (char c : one.text) n_characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
            width = std::max(width, n_characters);
            names.push_back(one.text);
        }
        std::sort(names.begin(), names.end());
        sound = sound && std::adjacent_find(names.begin(), names.end()) == names.end();
        if (!sound) wrong("classes", "a list of different texts");
        BAGWISE_CHECK(width <= kLongestName && width * names.size() <= static_cast<std::size_t>(kMostTable),
              "its " + std::to_string(names.size()) + " classes have names of up to " + std::to_string(width) +
                  " characters; 10000 are accepted.");
        const auto is_step = [](const Json &one) { return one.type == Json::string && (one.text == "l1" || one.text == "power" || one.text == "l2"); };
        sound = steps.type == Json::list && std::all_of(steps.items.begin(), steps.items.end(), is_step);
        if (!sound) wrong("normalize", "a list out of l1, power, l2");
        sound = sizes.type == Json::list;
        for (const Json &one : sizes.items) {
            sound = sound && one.is_count(1) && (heads.empty() || heads.back() < one.whole);
            heads.push_back(one.whole);
        }
        if (!sound) wrong("heads", "numbers of groups, ascending: others do not suit");
        if (header.find("term") && !is_one_of("term", {"count", "log", "sqrt"})) wrong("term", "count, log, sqrt");
        if (header.at("norm").type != Json::null && !is_one_of("norm", {"l1", "l2"})) wrong("norm", "null, l1, l2");
    }

    void check_options() {
        const Json &named = header.at("group_names"), &factors = header.at("calibration"), &parts = header.at("vocabularies");
        bool sound = named.type == Json::object || named.type == Json::null;
        for (std::size_t k = 0; k < named.items.size() && sound; ++k) {
            const std::string &name = named.type == Json::object ? named.names[k] : std::string();
            const bool digits = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
            sound = digits && named.items[k].type == Json::string && std::stoll(name) < n;
        }
        if (!sound) wrong("group_names", "null, or texts by numbers of groups below n_words");
        sound = factors.type == Json::object || factors.type == Json::null;
        for (std::size_t k = 0; k < factors.items.size() && sound; ++k) {
            const Json &one = factors.items[k];
            const auto is_head = [&](std::int64_t size) { return std::to_string(size) == factors.names[k]; };
            sound = one.type == Json::number && one.real > 0 && one.real < kLargest && std::any_of(heads.begin(), heads.end(), is_head);
        }
        if (!sound) wrong("calibration", "null, or numbers above 0 by sizes of heads");
        std::int64_t sum = 0;
        sound = parts.type == Json::null || (parts.type == Json::list && parts.items.size() > 1 && parts.items.size() <= kMostParts);
        for (const Json &one : parts.items) {
            sound = sound && one.is_count(1, d);
            vocabularies.push_back(one.whole);
            sum += sound ? one.whole : 0;
        }
        if (!sound || (parts.type != Json::null && sum != d))
            fail("its vocabularies of " + std::to_string(d) + " words cannot be " + parts.shown() + "; accepted: null, or 2 to 16 numbers that add up to it.");
        const Json &grids = header.at("pyramid");
        sound = grids.type == Json::list;
        for (const Json &grid : grids.items) {
            sound = sound && grid.type == Json::list && grid.items.size() == 2 && grid.items[0].is_count(1, kMostCells) && grid.items[1].is_count(1, kMostCells);
            cells += sound && cells <= kMostCells ? grid.items[0].whole * grid.items[1].whole : 0;
        }
        sound = sound && (cells == 1 || (has("codebook") && cells > 1 && cells <= std::min(kMostCells, kMostTable / d)));
        if (!sound) wrong("pyramid", "grids [rows, columns], at most 1024 cells and 2^25 cells times words; several cells need a codebook");
    }

    // Check that types and shapes of the arrays agree with the header.
    void check_layout() {
        check_header();
        n = header.at("n_words").is_count(1) ? header.at("n_words").whole : 0;
        check_options();
        const auto length = [&](const std::string &name) { return has(name) ? form(name).last() : 0; };
        const std::int64_t k = length("scores");
        const Json &flattened = header.at("flattened");
        const bool sound = flattened.type == Json::null || flattened.is_count(k + 1, std::min<std::int64_t>(d - 1, 1 << 16));
        if (!sound) wrong("flattened", "null, or a number of groups above that of its merges, below that of its words, up to 65536");
        flat = flattened.whole;
        const bool one_head = heads.empty() || (heads.size() == 1 && heads[0] == n);
        const bool compact = schema > 1 && has("groups") && n >= 1 && n <= d && one_head;
        const std::int64_t m = flat ? d - flat + k : compact ? d - n : k;
        BAGWISE_CHECK(d - kMostGroups <= m && m < d, std::to_string(d) + " words cannot have " + std::to_string(m) + " merges.");
        const auto fits = [&](std::int64_t size) { return size >= d - m && size <= (flat ? flat : d); };
        const std::int64_t n_classes = static_cast<std::int64_t>(header.at("classes").items.size());
        BAGWISE_CHECK(fits(n) && std::all_of(heads.begin(), heads.end(), fits) && (n_classes > 1 || heads.empty()),
              "its heads " + header.at("heads").shown() + " or n_words " + header.at("n_words").shown() + " do not suit " +
                  std::to_string(d) + " words, " + std::to_string(m) + " merges and " + std::to_string(n_classes) + " classes.");
        std::map<std::string, Form> wanted;
        if (flat || !compact) wanted = {{"merges", {"I32", {k, 2}}}, {"scores", {"F64", {k}}}};
        const std::string narrow = (flat ? flat : n) <= 256 ? "U8" : "U16";
        if (flat || compact) wanted["groups"] = {narrow, {d}};
        const auto either = [&](const std::string &name, const std::string &scale, std::int64_t rows, std::int64_t columns) {
            const bool bytes = has(name) && form(name).type == "I8";  // only in schema 3
            wanted[name] = {bytes ? "I8" : "F32", {rows, columns}};
            if (bytes) wanted[scale] = {"F32", {rows}};
        };
        for (const std::int64_t size : heads) {
            const std::string name = "head_" + std::to_string(size);
            either(name + "_coef", name + "_scale", n_classes, cells * size);
            wanted[name + "_intercept"] = {"F32", {n_classes}};
        }
        if (has("names")) wanted["names"] = {"U8", {length("names")}}, wanted["name_offsets"] = {"I64", {d + 1}};
        const std::vector<std::int64_t> sizes = vocabularies.empty() ? std::vector<std::int64_t>{d} : vocabularies;
        for (std::size_t v = 0; v < sizes.size(); ++v)
            if (!vocabularies.empty() || has(codebook_name(v)))
                either(codebook_name(v), codebook_name(v) + "_scale", sizes[v], std::max<std::int64_t>(1, length(codebook_name(v))));
        const auto optional = [&](const std::string &name, const Form &one) {
            if (has(name)) wanted[name] = one;
        };
        optional("word_totals", {"F64", {d}});
        const Json &span = header.at("weight_range");
        const bool ratio = span.type == Json::list && span.items.size() == 2 && span.items[0].type == Json::number && span.items[1].type == Json::number;
        if (span.type != Json::null && !(ratio && 0 < span.items[0].real && span.items[0].real <= span.items[1].real && span.items[1].real < kLargest))
            wrong("weight_range", "null, or [low, high] above 0");
        if (ratio) wanted["weight_codes"] = {"U8", {d}};
        if (schema > 1) {
            if (!ratio) optional("word_weights", {"F32", {d}});
            optional("item_hashes", {"I64", {length("item_hashes")}});
            if (header.at("items").text == "table") optional("column_shift", {"F64", {d}});
            const std::int64_t n_tables = has("tables") && !form("tables").shape.empty() ? form("tables").shape[0] : 0;
            optional("tables", {flat || compact ? narrow : "I32", {std::min<std::int64_t>(std::max<std::int64_t>(n_tables, 2), kMostParts), d}});
            if (header.at("items").text == "texts" && !has("names") && has("hashes"))
                wanted["hashes"] = {"U16", {d}}, wanted["hash_starts"] = {"I32", {257}};
            for (const auto &[name, array] : arrays_)  // that only the library reads
                if (begins_with(name, "edits") || begins_with(name, "unedited_") || begins_with(name, "statistics")) wanted[name] = array.form;
        }
        for (const auto &[name, array] : arrays_) {
            const auto right = wanted.find(name);
            BAGWISE_CHECK(right != wanted.end() && right->second == array.form, "its array " + in_quotes(name) + " is " + array.form.shown() +
                      ", expected " + (right == wanted.end() ? "none" : right->second.shown()) + '.');
        }
        for (const auto &[name, right] : wanted)
            BAGWISE_CHECK(has(name), "its array " + in_quotes(name) + " is not there, expected " + right.shown() + '.');
    }

    void check_sums(const Json &about) {
        std::size_t n_sums = 0;
        for (const std::string &name : about.names) n_sums += begins_with(name, "crc32.");
        if (n_sums == 0) return;  // of an earlier version
        std::vector<char> block(1 << 16);
        for (const auto &[name, array] : arrays_) {
            const Json *held = about.find("crc32." + name);
            BAGWISE_CHECK(held && n_sums == arrays_.size(), "it has " + std::to_string(n_sums) + " checksums, not one for each of its arrays such as " + in_quotes(name) + '.');
            std::uint32_t sum = 0;
            for (std::int64_t at = array.first; at < array.end;) {
                const auto some = static_cast<std::size_t>(std::min<std::int64_t>(array.end - at, static_cast<std::int64_t>(block.size())));
                source_.read(start_ + static_cast<std::uint64_t>(at), block.data(), some);
                sum = crc32(block.data(), some, sum);
                at += static_cast<std::int64_t>(some);
            }
            char digits[16];
            std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(sum));
            BAGWISE_CHECK(held->type == Json::string && held->text == digits, "the checksum of its " + in_quotes(name) + " is " + digits + ", expected " +
                      held->shown() + "; its bytes are not those that were written.");
        }
    }

  public:
    static std::string codebook_name(std::size_t v) { return v ? "codebook_" + std::to_string(v) : "codebook"; }

  private:
    Source source_;
    std::uint64_t start_ = 0;
    std::map<std::string, Array> arrays_;
};

// ---- words of texts ----

// -- tables of Unicode, by unicode_tables.py --
// Unicode 14.0.0. Runs of characters that are not in the set, then in it, and so on.
constexpr std::uint16_t kLetters[] = {  // characters of words: str.isalnum() or _
    48, 10, 7, 26, 4, 1, 1, 26, 47, 1, 7, 2, 1, 1, 3, 2, 1, 3, 1, 23, 1, 31, 1, 458, 4, 12, 14, 5, 7, 1, 1, 1, 129, 5,
    1, 2, 2, 4, 1, 1, 6, 1, 1, 3, 1, 1, 1, 20, 1, 83, 1, 139, 8, 166, 1, 38, 2, 1, 6, 41, 71, 27, 4, 4, 45, 43, 21, 10,
    4, 2, 1, 99, 1, 1, 15, 2, 7, 15, 2, 1, 16, 1, 1, 30, 29, 89, 11, 1, 14, 43, 9, 2, 4, 1, 5, 22, 4, 1, 9, 1, 3, 1, 23,
    25, 7, 11, 5, 24, 1, 6, 17, 42, 58, 54, 3, 1, 18, 1, 7, 10, 4, 10, 1, 16, 4, 8, 2, 2, 2, 22, 1, 7, 1, 1, 3, 4, 3, 1,
    16, 1, 13, 2, 1, 3, 4, 12, 2, 6, 2, 1, 8, 6, 4, 2, 2, 22, 1, 7, 1, 2, 1, 2, 1, 2, 31, 4, 1, 1, 7, 10, 2, 3, 16, 9,
    1, 3, 1, 22, 1, 7, 1, 2, 1, 5, 3, 1, 18, 1, 15, 2, 4, 10, 9, 1, 11, 8, 2, 2, 2, 22, 1, 7, 1, 2, 1, 5, 3, 1, 30, 2,
    1, 3, 4, 10, 1, 7, 11, 1, 1, 6, 3, 3, 1, 4, 3, 2, 1, 1, 1, 2, 3, 2, 3, 3, 3, 12, 22, 1, 21, 13, 18, 8, 1, 3, 1, 23,
    1, 16, 3, 1, 26, 3, 2, 1, 2, 2, 4, 10, 8, 7, 1, 1, 4, 8, 1, 3, 1, 23, 1, 10, 1, 5, 3, 1, 31, 2, 1, 2, 4, 10, 1, 2,
    17, 9, 1, 3, 1, 41, 2, 1, 16, 1, 5, 3, 1, 10, 4, 19, 1, 6, 5, 18, 3, 24, 1, 9, 1, 1, 2, 7, 31, 10, 17, 48, 1, 2, 12,
    7, 9, 10, 39, 2, 1, 1, 1, 5, 1, 24, 1, 1, 1, 10, 1, 2, 9, 1, 2, 5, 1, 1, 9, 10, 2, 4, 32, 1, 31, 20, 12, 8, 1, 36,
    27, 5, 115, 43, 20, 11, 6, 6, 4, 4, 3, 1, 3, 2, 7, 3, 4, 13, 12, 1, 1, 10, 6, 38, 1, 1, 5, 1, 2, 43, 1, 333, 1, 4,
    2, 7, 1, 1, 1, 4, 2, 41, 1, 4, 2, 33, 1, 4, 2, 7, 1, 1, 1, 4, 2, 15, 1, 57, 1, 4, 2, 67, 14, 20, 3, 16, 16, 86, 2,
    6, 3, 620, 2, 17, 1, 26, 5, 75, 3, 11, 7, 18, 13, 19, 14, 18, 14, 13, 1, 3, 15, 52, 35, 1, 4, 1, 3, 10, 6, 10, 22,
    10, 6, 89, 7, 5, 2, 34, 1, 1, 5, 70, 10, 31, 39, 40, 2, 5, 11, 44, 4, 26, 6, 11, 37, 23, 9, 53, 43, 10, 6, 10, 13,
    1, 93, 47, 17, 8, 3, 10, 41, 30, 13, 56, 26, 36, 28, 10, 3, 49, 2, 9, 7, 43, 2, 3, 41, 4, 1, 6, 1, 2, 3, 1, 5, 192,
    64, 278, 2, 6, 2, 38, 2, 6, 2, 8, 1, 1, 1, 1, 1, 1, 1, 31, 2, 53, 1, 7, 1, 1, 3, 3, 1, 7, 3, 4, 2, 6, 4, 13, 5, 3,
    1, 7, 115, 2, 2, 6, 5, 11, 6, 13, 101, 1, 4, 1, 2, 10, 1, 1, 3, 5, 6, 1, 1, 1, 1, 1, 1, 4, 1, 11, 2, 4, 5, 5, 4, 1,
    1, 58, 726, 60, 78, 22, 630, 30, 1132, 229, 6, 4, 3, 2, 9, 1, 2, 38, 1, 1, 5, 1, 2, 56, 7, 1, 16, 23, 9, 7, 1, 7, 1,
    7, 1, 7, 1, 7, 1, 7, 1, 7, 1, 7, 80, 1, 469, 3, 25, 9, 7, 5, 2, 5, 4, 86, 6, 3, 1, 90, 1, 4, 5, 43, 1, 94, 3, 4, 10,
    32, 48, 16, 32, 10, 30, 8, 1, 15, 32, 10, 39, 15, 320, 6592, 64, 22157, 67, 46, 2, 269, 3, 28, 20, 47, 16, 31, 2,
    80, 39, 9, 2, 103, 2, 64, 5, 2, 1, 1, 1, 5, 24, 16, 1, 3, 1, 4, 1, 23, 13, 6, 10, 52, 14, 50, 28, 10, 24, 6, 3, 1,
    1, 2, 1, 38, 10, 23, 25, 29, 7, 47, 28, 11, 6, 5, 1, 25, 1, 41, 23, 3, 1, 8, 4, 10, 6, 23, 3, 1, 3, 50, 1, 1, 3, 2,
    2, 5, 2, 1, 1, 1, 24, 3, 2, 11, 7, 3, 12, 6, 2, 6, 2, 6, 9, 7, 1, 7, 1, 43, 1, 14, 6, 115, 13, 10, 6, 11172, 12, 23,
    4, 49, 8452, 366, 2, 106, 38, 7, 12, 5, 5, 1, 1, 10, 1, 13, 1, 5, 1, 1, 1, 2, 1, 2, 1, 108, 33, 363, 18, 64, 2, 54,
    40, 12, 116, 5, 1, 135, 19, 10, 7, 26, 6, 26, 11, 89, 3, 6, 2, 6, 2, 6, 2, 3, 35, 12, 1, 26, 1, 19, 1, 2, 1, 15, 2,
    14, 34, 123, 12, 45, 12, 57, 17, 2, 244, 29, 3, 49, 16, 27, 4, 36, 9, 30, 5, 38, 10, 30, 2, 36, 4, 8, 1, 5, 42, 158,
    2, 10, 6, 36, 4, 36, 4, 40, 8, 52, 12, 11, 1, 15, 1, 7, 1, 2, 1, 11, 1, 15, 1, 7, 1, 2, 67, 311, 9, 22, 10, 8, 24,
    6, 1, 42, 1, 9, 69, 6, 2, 1, 1, 44, 1, 2, 3, 1, 2, 23, 2, 31, 2, 38, 8, 9, 48, 19, 1, 2, 5, 33, 4, 26, 70, 56, 4,
    20, 2, 47, 15, 4, 1, 3, 1, 29, 10, 9, 23, 31, 1, 32, 32, 8, 1, 28, 6, 5, 16, 54, 10, 22, 2, 27, 5, 26, 23, 7, 80,
    73, 55, 51, 13, 51, 7, 42, 12, 10, 294, 31, 1, 42, 6, 2, 78, 40, 8, 22, 11, 4, 27, 18, 46, 28, 20, 23, 12, 53, 26,
    30, 1, 2, 2, 1, 13, 45, 32, 25, 7, 10, 9, 36, 15, 10, 4, 1, 2, 1, 8, 35, 3, 1, 12, 48, 14, 4, 11, 11, 1, 1, 4, 20,
    11, 18, 1, 25, 84, 7, 1, 1, 1, 4, 1, 15, 1, 10, 7, 47, 17, 10, 11, 8, 2, 2, 2, 22, 1, 7, 1, 2, 1, 5, 3, 1, 18, 1,
    12, 5, 158, 53, 18, 4, 5, 10, 5, 3, 30, 48, 20, 2, 1, 1, 8, 10, 166, 47, 41, 4, 36, 48, 20, 1, 11, 10, 38, 43, 13,
    1, 7, 10, 54, 27, 21, 12, 4, 7, 185, 44, 116, 83, 12, 8, 2, 1, 2, 8, 1, 2, 1, 24, 15, 1, 1, 1, 14, 10, 70, 8, 2, 39,
    16, 1, 1, 1, 28, 1, 10, 40, 7, 1, 21, 1, 11, 46, 19, 1, 18, 73, 263, 9, 1, 37, 17, 1, 15, 29, 5, 30, 112, 7, 1, 2,
    1, 38, 21, 1, 9, 10, 6, 6, 1, 2, 1, 32, 14, 1, 7, 10, 310, 19, 189, 1, 15, 21, 43, 922, 102, 111, 17, 196, 2636, 97,
    15, 1071, 4049, 583, 8633, 569, 7, 31, 1, 10, 6, 79, 1, 10, 6, 30, 18, 48, 16, 4, 12, 10, 1, 7, 1, 21, 5, 19, 688,
    87, 105, 75, 5, 1, 66, 13, 64, 2, 1, 1, 28, 6136, 8, 1238, 42, 9, 8935, 4, 1, 7, 1, 2, 1, 291, 45, 3, 17, 4, 8, 396,
    2308, 107, 5, 13, 3, 9, 7, 10, 5702, 20, 108, 25, 135, 85, 1, 71, 1, 2, 2, 1, 2, 2, 2, 4, 1, 12, 1, 1, 1, 7, 1, 65,
    1, 4, 2, 8, 1, 7, 1, 28, 1, 4, 1, 5, 1, 1, 3, 7, 1, 340, 2, 25, 1, 25, 1, 31, 1, 25, 1, 31, 1, 25, 1, 31, 1, 25, 1,
    31, 1, 25, 1, 8, 2, 50, 1792, 31, 481, 45, 10, 7, 2, 10, 4, 1, 321, 30, 18, 44, 4, 10, 1254, 7, 1, 4, 1, 2, 1, 15,
    1, 197, 2, 9, 48, 68, 7, 1, 4, 10, 791, 59, 1, 3, 1, 4, 76, 45, 1, 15, 194, 4, 1, 27, 1, 2, 1, 1, 2, 1, 1, 10, 1, 4,
    1, 1, 1, 1, 6, 1, 4, 1, 1, 1, 1, 1, 1, 3, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 2, 4, 1, 7, 1, 4, 1,
    4, 1, 1, 1, 10, 1, 17, 5, 3, 1, 5, 1, 17, 580, 13, 2787, 10, 1030, 42720, 32, 4153, 7, 222, 2, 5762, 14, 7473, 3103,
    542, 1506, 4939
};
constexpr std::uint16_t kSpaces[] = {  // str.isspace()
    9, 5, 14, 5, 100, 1, 26, 1, 5599, 1, 2431, 11, 29, 2, 5, 1, 47, 1, 4000, 1
};
constexpr std::uint16_t kCased[] = {  // cased, and not ignorable
    65, 26, 6, 26, 47, 1, 10, 1, 4, 1, 5, 23, 1, 31, 1, 195, 1, 4, 4, 208, 1, 27, 192, 4, 2, 2, 3, 3, 1, 1, 6, 1, 1, 3,
    1, 1, 1, 20, 1, 83, 1, 139, 8, 166, 1, 38, 9, 41, 2839, 38, 1, 1, 5, 1, 2, 43, 2, 3, 672, 86, 2, 6, 2178, 9, 7, 43,
    2, 3, 64, 44, 63, 13, 1, 34, 101, 278, 2, 6, 2, 38, 2, 6, 2, 8, 1, 1, 1, 1, 1, 1, 1, 31, 2, 53, 1, 7, 1, 1, 3, 3, 1,
    7, 3, 4, 2, 6, 4, 13, 5, 3, 1, 7, 261, 1, 4, 1, 2, 10, 1, 1, 3, 5, 6, 1, 1, 1, 1, 1, 1, 4, 1, 6, 4, 1, 2, 4, 5, 5,
    4, 1, 17, 32, 3, 2, 817, 52, 1814, 124, 2, 103, 6, 4, 3, 2, 12, 38, 1, 1, 5, 1, 30994, 46, 18, 28, 134, 78, 1, 23,
    3, 4, 1, 59, 5, 2, 1, 1, 1, 5, 27, 2, 3, 1, 821, 43, 5, 9, 7, 80, 20288, 7, 12, 5, 1033, 26, 6, 26, 1189, 80, 96,
    36, 4, 36, 116, 11, 1, 15, 1, 7, 1, 2, 1, 11, 1, 15, 1, 7, 1, 2, 1731, 51, 13, 51, 2989, 64, 21856, 64, 25984, 85,
    1, 71, 1, 2, 2, 1, 2, 2, 2, 4, 1, 12, 1, 1, 1, 7, 1, 65, 1, 4, 2, 8, 1, 7, 1, 28, 1, 4, 1, 5, 1, 1, 3, 7, 1, 340, 2,
    25, 1, 25, 1, 31, 1, 25, 1, 31, 1, 25, 1, 31, 1, 25, 1, 31, 1, 25, 1, 8, 1844, 10, 1, 20, 2529, 68, 2028, 26, 6, 26,
    6, 26
};
constexpr std::uint16_t kIgnorable[] = {  // between a cased letter and a sigma
    39, 1, 6, 1, 11, 1, 35, 1, 1, 1, 71, 1, 4, 1, 1, 1, 4, 1, 2, 2, 503, 192, 4, 2, 4, 1, 9, 2, 1, 1, 251, 7, 207, 1, 5,
    1, 49, 45, 1, 1, 1, 2, 1, 2, 1, 1, 44, 1, 11, 6, 10, 11, 1, 1, 35, 1, 10, 21, 16, 1, 101, 8, 1, 10, 1, 4, 33, 1, 1,
    1, 30, 27, 91, 11, 58, 11, 4, 1, 2, 1, 24, 24, 43, 3, 44, 1, 7, 2, 6, 8, 41, 58, 55, 1, 1, 1, 4, 8, 4, 1, 3, 7, 10,
    2, 13, 1, 15, 1, 58, 1, 4, 4, 8, 1, 20, 2, 26, 1, 2, 2, 57, 1, 4, 2, 4, 2, 2, 3, 3, 1, 30, 2, 3, 1, 11, 2, 57, 1, 4,
    5, 1, 2, 4, 1, 20, 2, 22, 6, 1, 1, 58, 1, 2, 1, 1, 4, 8, 1, 7, 2, 11, 2, 30, 1, 61, 1, 12, 1, 50, 1, 3, 1, 55, 1, 1,
    3, 5, 3, 1, 4, 7, 2, 11, 2, 29, 1, 58, 1, 2, 1, 6, 1, 5, 2, 20, 2, 28, 2, 57, 2, 4, 4, 8, 1, 20, 2, 29, 1, 72, 1, 7,
    3, 1, 1, 90, 1, 2, 7, 11, 9, 98, 1, 2, 9, 9, 1, 1, 6, 74, 2, 27, 1, 1, 1, 1, 1, 55, 14, 1, 5, 1, 2, 5, 11, 1, 36, 9,
    1, 102, 4, 1, 6, 1, 2, 2, 2, 25, 2, 4, 3, 16, 4, 13, 1, 2, 2, 6, 1, 15, 1, 94, 1, 608, 3, 946, 3, 29, 2, 30, 2, 30,
    2, 64, 2, 1, 7, 8, 1, 2, 11, 3, 1, 5, 1, 45, 5, 51, 1, 65, 2, 34, 1, 118, 3, 4, 2, 9, 1, 6, 3, 219, 2, 2, 1, 58, 1,
    1, 7, 1, 1, 1, 1, 2, 8, 6, 10, 2, 1, 39, 1, 8, 31, 49, 4, 48, 1, 1, 5, 1, 1, 5, 1, 40, 9, 12, 2, 32, 4, 2, 2, 1, 3,
    56, 1, 1, 2, 3, 1, 1, 3, 58, 8, 2, 2, 64, 6, 82, 3, 1, 13, 1, 7, 4, 1, 6, 1, 3, 2, 50, 63, 13, 1, 34, 101, 445, 1,
    1, 3, 11, 3, 13, 3, 13, 3, 13, 2, 12, 5, 8, 2, 10, 1, 2, 1, 2, 5, 49, 5, 1, 10, 1, 1, 13, 1, 16, 13, 51, 33, 2955,
    2, 113, 3, 125, 1, 15, 1, 96, 32, 47, 1, 469, 1, 36, 4, 3, 5, 5, 1, 93, 6, 93, 3, 28438, 1, 1250, 6, 270, 1, 98, 4,
    1, 10, 1, 1, 28, 4, 80, 2, 14, 34, 78, 1, 23, 3, 103, 3, 3, 2, 8, 1, 3, 1, 4, 1, 25, 2, 5, 1, 151, 2, 26, 18, 13, 1,
    38, 8, 25, 11, 46, 3, 48, 1, 2, 4, 2, 2, 17, 1, 21, 2, 66, 6, 2, 2, 2, 2, 12, 1, 8, 1, 35, 1, 11, 1, 51, 1, 1, 3, 2,
    2, 5, 2, 1, 1, 27, 1, 14, 2, 5, 2, 1, 1, 100, 5, 9, 3, 121, 1, 2, 1, 4, 1, 20272, 1, 147, 17, 573, 16, 3, 1, 12, 16,
    34, 1, 2, 1, 169, 1, 7, 1, 6, 1, 11, 1, 35, 1, 1, 1, 47, 1, 45, 2, 67, 1, 21, 3, 513, 1, 226, 1, 149, 5, 1029, 6, 1,
    42, 1, 9, 582, 3, 1, 2, 5, 4, 40, 3, 4, 1, 165, 2, 573, 4, 387, 2, 153, 11, 49, 4, 123, 1, 54, 15, 41, 1, 2, 2, 10,
    3, 49, 4, 2, 2, 2, 1, 4, 1, 10, 1, 50, 3, 36, 5, 1, 8, 62, 1, 12, 2, 52, 9, 10, 4, 2, 1, 95, 3, 2, 1, 1, 2, 6, 1,
    160, 1, 3, 8, 21, 2, 57, 2, 3, 1, 37, 7, 3, 5, 195, 8, 2, 3, 1, 1, 23, 1, 84, 6, 1, 1, 4, 2, 1, 2, 238, 4, 6, 2, 1,
    2, 27, 2, 85, 8, 2, 1, 1, 2, 106, 1, 1, 1, 2, 6, 1, 1, 101, 3, 2, 4, 1, 5, 259, 9, 1, 2, 256, 2, 1, 1, 4, 1, 144, 4,
    2, 2, 4, 1, 32, 10, 40, 6, 2, 4, 8, 1, 9, 6, 2, 3, 46, 13, 1, 2, 406, 7, 1, 6, 1, 1, 82, 22, 2, 7, 1, 2, 1, 2, 122,
    6, 3, 1, 1, 2, 1, 7, 1, 1, 72, 2, 3, 1, 1, 1, 347, 2, 5435, 9, 14007, 5, 59, 7, 9, 4, 1035, 1, 63, 17, 64, 2, 1, 2,
    16395, 4, 1, 7, 1, 2, 3230, 2, 1, 4, 4700, 46, 2, 23, 544, 3, 9, 16, 2, 7, 30, 4, 148, 3, 1979, 55, 4, 50, 8, 1, 14,
    1, 22, 5, 1, 15, 1360, 7, 1, 17, 2, 7, 1, 2, 1, 5, 261, 14, 368, 1, 61, 4, 1504, 7, 109, 8, 2735, 5, 65535, 0,
    65535, 0, 65535, 0, 65535, 0, 65535, 0, 65535, 0, 65535, 0, 65535, 0, 65535, 0, 65535, 0, 65535, 0, 65535, 0, 3085,
    1, 30, 96, 128, 240
};
constexpr std::int32_t kLower[] = {  // first, last, step, difference
    65, 90, 1, 32, 192, 214, 1, 32, 216, 222, 1, 32, 256, 302, 2, 1, 306, 310, 2, 1, 313, 327, 2, 1, 330, 374, 2, 1,
    376, 376, 1, -121, 377, 381, 2, 1, 385, 385, 1, 210, 386, 388, 2, 1, 390, 390, 1, 206, 391, 391, 1, 1, 393, 394, 1,
    205, 395, 395, 1, 1, 398, 398, 1, 79, 399, 399, 1, 202, 400, 400, 1, 203, 401, 401, 1, 1, 403, 403, 1, 205, 404,
    404, 1, 207, 406, 406, 1, 211, 407, 407, 1, 209, 408, 408, 1, 1, 412, 412, 1, 211, 413, 413, 1, 213, 415, 415, 1,
    214, 416, 420, 2, 1, 422, 422, 1, 218, 423, 423, 1, 1, 425, 425, 1, 218, 428, 428, 1, 1, 430, 430, 1, 218, 431, 431,
    1, 1, 433, 434, 1, 217, 435, 437, 2, 1, 439, 439, 1, 219, 440, 440, 1, 1, 444, 444, 1, 1, 452, 452, 1, 2, 453, 453,
    1, 1, 455, 455, 1, 2, 456, 456, 1, 1, 458, 458, 1, 2, 459, 475, 2, 1, 478, 494, 2, 1, 497, 497, 1, 2, 498, 500, 2,
    1, 502, 502, 1, -97, 503, 503, 1, -56, 504, 542, 2, 1, 544, 544, 1, -130, 546, 562, 2, 1, 570, 570, 1, 10795, 571,
    571, 1, 1, 573, 573, 1, -163, 574, 574, 1, 10792, 577, 577, 1, 1, 579, 579, 1, -195, 580, 580, 1, 69, 581, 581, 1,
    71, 582, 590, 2, 1, 880, 882, 2, 1, 886, 886, 1, 1, 895, 895, 1, 116, 902, 902, 1, 38, 904, 906, 1, 37, 908, 908, 1,
    64, 910, 911, 1, 63, 913, 929, 1, 32, 931, 939, 1, 32, 975, 975, 1, 8, 984, 1006, 2, 1, 1012, 1012, 1, -60, 1015,
    1015, 1, 1, 1017, 1017, 1, -7, 1018, 1018, 1, 1, 1021, 1023, 1, -130, 1024, 1039, 1, 80, 1040, 1071, 1, 32, 1120,
    1152, 2, 1, 1162, 1214, 2, 1, 1216, 1216, 1, 15, 1217, 1229, 2, 1, 1232, 1326, 2, 1, 1329, 1366, 1, 48, 4256, 4293,
    1, 7264, 4295, 4295, 1, 7264, 4301, 4301, 1, 7264, 5024, 5103, 1, 38864, 5104, 5109, 1, 8, 7312, 7354, 1, -3008,
    7357, 7359, 1, -3008, 7680, 7828, 2, 1, 7838, 7838, 1, -7615, 7840, 7934, 2, 1, 7944, 7951, 1, -8, 7960, 7965, 1,
    -8, 7976, 7983, 1, -8, 7992, 7999, 1, -8, 8008, 8013, 1, -8, 8025, 8031, 2, -8, 8040, 8047, 1, -8, 8072, 8079, 1,
    -8, 8088, 8095, 1, -8, 8104, 8111, 1, -8, 8120, 8121, 1, -8, 8122, 8123, 1, -74, 8124, 8124, 1, -9, 8136, 8139, 1,
    -86, 8140, 8140, 1, -9, 8152, 8153, 1, -8, 8154, 8155, 1, -100, 8168, 8169, 1, -8, 8170, 8171, 1, -112, 8172, 8172,
    1, -7, 8184, 8185, 1, -128, 8186, 8187, 1, -126, 8188, 8188, 1, -9, 8486, 8486, 1, -7517, 8490, 8490, 1, -8383,
    8491, 8491, 1, -8262, 8498, 8498, 1, 28, 8544, 8559, 1, 16, 8579, 8579, 1, 1, 9398, 9423, 1, 26, 11264, 11311, 1,
    48, 11360, 11360, 1, 1, 11362, 11362, 1, -10743, 11363, 11363, 1, -3814, 11364, 11364, 1, -10727, 11367, 11371, 2,
    1, 11373, 11373, 1, -10780, 11374, 11374, 1, -10749, 11375, 11375, 1, -10783, 11376, 11376, 1, -10782, 11378, 11378,
    1, 1, 11381, 11381, 1, 1, 11390, 11391, 1, -10815, 11392, 11490, 2, 1, 11499, 11501, 2, 1, 11506, 11506, 1, 1,
    42560, 42604, 2, 1, 42624, 42650, 2, 1, 42786, 42798, 2, 1, 42802, 42862, 2, 1, 42873, 42875, 2, 1, 42877, 42877, 1,
    -35332, 42878, 42886, 2, 1, 42891, 42891, 1, 1, 42893, 42893, 1, -42280, 42896, 42898, 2, 1, 42902, 42920, 2, 1,
    42922, 42922, 1, -42308, 42923, 42923, 1, -42319, 42924, 42924, 1, -42315, 42925, 42925, 1, -42305, 42926, 42926, 1,
    -42308, 42928, 42928, 1, -42258, 42929, 42929, 1, -42282, 42930, 42930, 1, -42261, 42931, 42931, 1, 928, 42932,
    42946, 2, 1, 42948, 42948, 1, -48, 42949, 42949, 1, -42307, 42950, 42950, 1, -35384, 42951, 42953, 2, 1, 42960,
    42960, 1, 1, 42966, 42968, 2, 1, 42997, 42997, 1, 1, 65313, 65338, 1, 32, 66560, 66599, 1, 40, 66736, 66771, 1, 40,
    66928, 66938, 1, 39, 66940, 66954, 1, 39, 66956, 66962, 1, 39, 66964, 66965, 1, 39, 68736, 68786, 1, 64, 71840,
    71871, 1, 32, 93760, 93791, 1, 32, 125184, 125217, 1, 34
};
// -- end of tables --

// A set of characters, from a table of runs.
class Characters {
  public:
    template <std::size_t n>
    explicit Characters(const std::uint16_t (&runs)[n]) {
        char32_t at = 0;
        for (std::size_t k = 0; k < n; ++k) borders_.push_back(at += runs[k]);
    }
    bool has(char32_t c) const {
        return (std::upper_bound(borders_.begin(), borders_.end(), c) - borders_.begin()) % 2 == 1;
    }

  private:
    std::vector<char32_t> borders_;  // where characters are in the set from, not from, and so on
};

struct Unicode {
    Characters letters{kLetters}, spaces{kSpaces}, cased{kCased}, ignorable{kIgnorable};
    static const Unicode &get() {
        static const Unicode tables;
        return tables;
    }
    static char32_t lower(char32_t c) {
        constexpr std::size_t kRuns = sizeof kLower / sizeof *kLower / 4;
        if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
        std::size_t low = 0, high = kRuns;  // of the first run that ends at c or later
        while (low < high) {
            const std::size_t middle = (low + high) / 2;
            if (static_cast<char32_t>(kLower[4 * middle + 1]) < c)
                low = middle + 1;
            else
                high = middle;
        }
        const std::int32_t *run = kLower + 4 * std::min(low, kRuns - 1), code = static_cast<std::int32_t>(c);
        const bool inside = code >= run[0] && code <= run[1] && (code - run[0]) % run[2] == 0;
        return inside ? static_cast<char32_t>(code + run[3]) : c;
    }
};

// Texts with numbers, found by binary search.
class Names {
  public:
    Names() = default;
    Names(std::string text, std::vector<std::int64_t> offsets) : text_(std::move(text)), offsets_(std::move(offsets)) {
        order_.resize(offsets_.size() - 1);
        for (std::size_t k = 0; k < order_.size(); ++k) order_[k] = static_cast<std::int32_t>(k);
        std::sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) { return (*this)[a] < (*this)[b]; });
    }
    bool empty() const { return order_.empty(); }
    std::string_view operator[](std::int32_t k) const {
        const auto first = static_cast<std::size_t>(offsets_[static_cast<std::size_t>(k)]);
        return std::string_view(text_).substr(first, static_cast<std::size_t>(offsets_[static_cast<std::size_t>(k) + 1]) - first);
    }
    std::int32_t find(std::string_view name) const {
        const auto less = [&](std::int32_t a, std::string_view b) { return (*this)[a] < b; };
        const auto found = std::lower_bound(order_.begin(), order_.end(), name, less);
        return found == order_.end() || (*this)[*found] != name ? -1 : *found;
    }
    // The first name that occurs twice, or null.
    const std::int32_t *repeated() const {
        const auto found = std::adjacent_find(order_.begin(), order_.end(), [&](auto a, auto b) { return (*this)[a] == (*this)[b]; });
        return found == order_.end() ? nullptr : &*found;
    }

  private:
    std::string text_;
    std::vector<std::int64_t> offsets_;
    std::vector<std::int32_t> order_;
};

struct Token {
    std::size_t first, size;   // in the text in lower case
    std::uint64_t start, end;  // bytes of the original text
};

struct Tokenizer {
    bool lowercase = true, binary = false, by_spaces = false;
    int shortest = 2, least = 1, most = 1;
    Names stop_words;

    explicit Tokenizer(const Json &options) {
        static const std::vector<std::string> known = {"analyzer", "binary", "lowercase", "ngram_range", "stop_words", "strip_accents", "token_pattern"};
        BAGWISE_CHECK(options.type == Json::object, "its tokenizer cannot be " + options.shown() + "; accepted: an object of options.");
        for (std::size_t k = 0; k < options.names.size(); ++k) {
            const std::string &name = options.names[k];
            const Json &held = options.items[k];
            const bool text = held.type == Json::string, null = held.type == Json::null;
            const auto refuse = [&](const char *accepted) {
                fail("its tokenizer has " + name + ' ' + held.shown() + ", which this runtime does not have; accepted: " + accepted + '.');
            };
            BAGWISE_CHECK(std::binary_search(known.begin(), known.end(), name), "its tokenizer has the unknown option " + in_quotes(name) + '.');
            if (name == "analyzer" && !(text && held.text == "word")) refuse("\"word\"");
            if (name == "strip_accents" && !null) refuse("null");
            if (name == "binary" || name == "lowercase") {
                if (held.type != Json::boolean) refuse("true or false");
                (name == "binary" ? binary : lowercase) = held.whole != 0;
            }
            if (name == "ngram_range") {
                const bool sound = held.type == Json::list && held.items.size() == 2 && held.items[0].is_count(1, 20) && held.items[1].is_count(1, 20);
                if (!sound) refuse("[least, most] from 1 to 20");
                least = static_cast<int>(held.items[0].whole), most = static_cast<int>(held.items[1].whole);
            }
            if (name == "token_pattern" && !(text && set_pattern(held.text)))
                refuse("(?u)\\b\\w\\w+\\b, \\w+, \\w\\w+, \\w{n,}, also between \\b and with (?u), and \\S+");
            if (name == "stop_words" && !null) {
                const auto is_text = [](const Json &one) { return one.type == Json::string; };
                if (held.type != Json::list || !std::all_of(held.items.begin(), held.items.end(), is_text)) refuse("null or a list of words");
                std::string all;
                std::vector<std::int64_t> offsets = {0};
                for (const Json &one : held.items) offsets.push_back(static_cast<std::int64_t>((all += one.text).size()));
                stop_words = Names(std::move(all), std::move(offsets));
            }
        }
    }

    // Find the tokens of a text that are no stop words; `lowered` is the text that they are parts of.
    void split(std::string_view text, std::string &lowered, std::vector<Token> &tokens) const {
        const Unicode &unicode = Unicode::get();
        lowered.clear();
        tokens.clear();
        Token token{0, 0, 0, 0};
        int n_characters = 0;
        const auto close = [&] {
            token.size = lowered.size() - token.first;
            const std::string_view found = std::string_view(lowered).substr(token.first, token.size);
            if (n_characters >= shortest && stop_words.find(found) < 0)
                tokens.push_back(token);
            else
                lowered.resize(token.first);
            n_characters = 0;
        };
        const auto add = [&](char32_t c, std::size_t start, std::size_t end) {
            const bool word = c < 0x80 && !by_spaces ? (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_'
                              : by_spaces            ? !unicode.spaces.has(c)
                                                     : unicode.letters.has(c);
            if (!word) {
                if (n_characters) close();
                return;
            }
            if (!n_characters++) token.first = lowered.size(), token.start = start;
            token.end = end;
            encode(c, lowered);
        };
        bool wrong = false, after_cased = false;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t start = at;
            const char32_t c = decode(text, at, wrong);
            if (!lowercase) {
                add(c, start, at);
                continue;
            }
            if (c == 0x130) {  // the only letter that becomes two characters
                add('i', start, at);
                add(0x307, start, at);
            } else if (c == 0x3a3) {
                add(after_cased && !before_cased(text, at) ? 0x3c2 : 0x3c3, start, at);
            } else {
                add(Unicode::lower(c), start, at);
            }
            if (c < 0x80 ? c != '\'' && c != '.' && c != ':' && c != '^' && c != '`' : !unicode.ignorable.has(c))
                after_cased = c < 0x80 ? (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') : unicode.cased.has(c);
        }
        if (n_characters) close();
    }

  private:
    // Whether the next character that is not ignorable is cased: then a sigma is not the last of its word.
    static bool before_cased(std::string_view text, std::size_t at) {
        bool wrong = false;
        while (at < text.size()) {
            const char32_t c = decode(text, at, wrong);
            if (!Unicode::get().ignorable.has(c)) return Unicode::get().cased.has(c);
        }
        return false;
    }

    bool set_pattern(std::string_view pattern) {
        if (begins_with(pattern, "(?u)")) pattern.remove_prefix(4);
        by_spaces = pattern == "\\S+";
        shortest = 1;
        if (by_spaces) return true;
        const bool borders = begins_with(pattern, "\\b") && pattern.size() > 4 && pattern.substr(pattern.size() - 2) == "\\b";
        if (borders) pattern = pattern.substr(2, pattern.size() - 4);
        if (pattern == "\\w+") return true;
        shortest = 2;
        if (pattern == "\\w\\w+") return true;
        const bool counted = begins_with(pattern, "\\w{") && pattern.size() > 5 && pattern.size() < 9 && pattern.substr(pattern.size() - 2) == ",}";
        const std::string_view digits = counted ? pattern.substr(3, pattern.size() - 5) : std::string_view();
        shortest = counted && digits.find_first_not_of("0123456789") == std::string_view::npos ? std::stoi(std::string(digits)) : 0;
        return shortest > 0;
    }
};

// ---- words of images ----

// Words in the form in which nearest ones are found fast. Vectors and words are shifted by the mean word, so that words
// far from the origin lose no digits. The loops are plain, with fixed bounds inside, so that compilers vectorise them.
class Codebook {
  public:
    static constexpr int kLanes = 16, kRows = 4;  // words and vectors that are compared at a time

    struct Scratch {
        std::vector<float> best;
        std::vector<std::int32_t> panels;
        std::vector<std::int16_t> whole;
        std::vector<float> factors;
    };

    // `bytes` and `scales` instead of `words` if they are of 8 bits.
    Codebook(const std::vector<float> &words, const std::vector<std::int8_t> &bytes, const std::vector<float> &scales, std::size_t n, std::size_t width)
        : n_(n), width_(width), n_panels_((n + kLanes - 1) / kLanes), by_integers_(!bytes.empty() && width >= 64 && width <= 1024) {
        norms_.assign(n_panels_ * kLanes, std::numeric_limits<float>::infinity());
        if (by_integers_) {
            integers_.assign(n_panels_ * kLanes * width, 0);
            scales_.assign(n_panels_ * kLanes, 0);
            for (std::size_t w = 0; w < n; ++w) {
                double norm = 0;
                for (std::size_t k = 0; k < width; ++k) {
                    integers_[w * width + k] = bytes[w * width + k];
                    norm += static_cast<double>(bytes[w * width + k]) * bytes[w * width + k];
                }
                norms_[w] = static_cast<float>(norm * scales[w] * scales[w]);
                scales_[w] = -2 * scales[w];
            }
            return;
        }
        const auto value = [&](std::size_t w, std::size_t k) { return bytes.empty() ? words[w * width + k] : bytes[w * width + k] * scales[w]; };
        mean_.assign(width, 0);
        for (std::size_t k = 0; k < width; ++k) {
            double sum = 0;
            for (std::size_t w = 0; w < n; ++w) sum += value(w, k);
            mean_[k] = static_cast<float>(sum / static_cast<double>(n));
        }
        factors_.assign(n_panels_ * kLanes * width, 0);
        for (std::size_t w = 0; w < n; ++w) {
            float norm = 0;
            for (std::size_t k = 0; k < width; ++k) {
                const float shifted = value(w, k) - mean_[k];
                norm += shifted * shifted;
                factors_[(w / kLanes * width + k) * kLanes + w % kLanes] = -2 * shifted;
            }
            norms_[w] = norm;
        }
    }

    std::size_t width() const { return width_; }
    std::size_t n_words() const { return n_; }

    // Write the nearest word of each of n vectors, of equally near ones the first. The vectors are changed; there must be
    // room for a multiple of kRows of them.
    void nearest(float *vectors, std::size_t n, std::int32_t first, std::int32_t *words, Scratch &scratch) const {
        const std::size_t n_rows = (n + kRows - 1) / kRows * kRows;
        std::fill(vectors + n * width_, vectors + n_rows * width_, 0.0f);
        scratch.best.assign(n_rows * kLanes, std::numeric_limits<float>::infinity());
        scratch.panels.assign(n_rows * kLanes, 0);
        if (by_integers_)
            to_integers(vectors, n_rows, scratch);
        else
            for (std::size_t i = 0; i < n; ++i)
                for (std::size_t k = 0; k < width_; ++k) vectors[i * width_ + k] -= mean_[k];
        for (std::size_t p = 0; p < n_panels_; ++p)
            for (std::size_t i = 0; i < n_rows; i += kRows) {
                float found[kRows][kLanes];
                if (by_integers_)
                    integer_products(scratch.whole.data() + i * width_, integers_.data() + p * kLanes * width_, scratch.factors.data() + i, scales_.data() + p * kLanes, found);
                else
                    products(vectors + i * width_, factors_.data() + p * kLanes * width_, found);
                keep_nearer(found, norms_.data() + p * kLanes, static_cast<std::int32_t>(p), scratch.best.data() + i * kLanes, scratch.panels.data() + i * kLanes);
            }
        for (std::size_t i = 0; i < n; ++i) {
            float best = std::numeric_limits<float>::infinity();
            std::int32_t word = 0;
            for (int j = 0; j < kLanes; ++j) {
                const float distance = scratch.best[i * kLanes + static_cast<std::size_t>(j)];
                const std::int32_t number = scratch.panels[i * kLanes + static_cast<std::size_t>(j)] * kLanes + j;
                if (distance < best || (distance == best && number < word)) best = distance, word = number;
            }
            words[i] = first + word;
        }
    }

  private:
    // found[r][j] = -2 x_r · w_j
    void products(const float *x, const float *panel, float (&found)[kRows][kLanes]) const {
        float sums[kRows][kLanes] = {};
        for (std::size_t k = 0; k < width_; ++k)
            for (int r = 0; r < kRows; ++r) {
                const float value = x[static_cast<std::size_t>(r) * width_ + k];
                for (int j = 0; j < kLanes; ++j) sums[r][j] += value * panel[k * kLanes + static_cast<std::size_t>(j)];
            }
        for (int r = 0; r < kRows; ++r)
            for (int j = 0; j < kLanes; ++j) found[r][j] = sums[r][j];
    }

    // The same for words and vectors of integers.
    void integer_products(const std::int16_t *x, const std::int16_t *words, const float *factors, const float *scales, float (&found)[kRows][kLanes]) const {
        std::int32_t sums[kRows][kLanes];
        for (int j = 0; j < kLanes; ++j)
            for (int r = 0; r < kRows; ++r) {
                const std::int16_t *a = x + static_cast<std::size_t>(r) * width_, *b = words + static_cast<std::size_t>(j) * width_;
                std::int32_t sum = 0;
                for (std::size_t k = 0; k < width_; ++k) sum += a[k] * b[k];
                sums[r][j] = sum;
            }
        for (int r = 0; r < kRows; ++r)
            for (int j = 0; j < kLanes; ++j) found[r][j] = static_cast<float>(sums[r][j]) * (factors[r] * scales[j]);
    }

    static void keep_nearer(const float (&found)[kRows][kLanes], const float *norms, std::int32_t number, float *best, std::int32_t *panels) {
        for (int r = 0; r < kRows; ++r)
            for (int j = 0; j < kLanes; ++j) {
                const float distance = found[r][j] + norms[j];
                const bool nearer = distance < best[r * kLanes + j];
                best[r * kLanes + j] = nearer ? distance : best[r * kLanes + j];
                panels[r * kLanes + j] = nearer ? number : panels[r * kLanes + j];
            }
    }

    // Round vectors to integers, as large as sums of products of 32 bits allow.
    void to_integers(const float *vectors, std::size_t n, Scratch &scratch) const {
        const float most = std::min(16383.0f, static_cast<float>(0x7fffffff / 127 / static_cast<int>(width_)));
        scratch.whole.resize(n * width_);
        scratch.factors.resize(n);
        for (std::size_t i = 0; i < n; ++i) {
            const float *vector = vectors + i * width_;
            float largest = 0;
            for (std::size_t k = 0; k < width_; ++k) largest = std::max(largest, std::fabs(vector[k]));
            scratch.factors[i] = largest / most;
            const float factor = largest > 0 ? most / largest : 0;
            for (std::size_t k = 0; k < width_; ++k) {
                const float scaled = vector[k] * factor;
                scratch.whole[i * width_ + k] = static_cast<std::int16_t>(scaled + (scaled < 0 ? -0.5f : 0.5f));
            }
        }
    }

    std::size_t n_, width_, n_panels_;
    bool by_integers_;
    std::vector<float> mean_, norms_, factors_, scales_;
    std::vector<std::int16_t> integers_;
};

// One scale of a descriptor: the size of its patches, and for SIFT the weights of pixels in its four cells, down or right,
// and of the smoothing.
struct Scale {
    double size = 0;
    int n_taps = 0;
    std::array<int, 4> firsts{};
    std::vector<float> weights, gaussian;

    // The patches of an image side: how many, and the first.
    std::pair<int, int> starts(int side, int step) const {
        const double spare = side - std::ceil(size);
        if (spare < 0) return {0, 0};
        const int whole = static_cast<int>(spare);
        return {whole / step + 1, whole % step / 2};
    }
};

struct Descriptor {
    enum Kind { dense_sift, color_sift, color_cells, patches };
    Kind kind = dense_sift;
    int step = 0, max_side = 0;
    std::string option;  // space of colours, or normalisation of patches
    std::vector<Scale> scales;
    int n_channels = 1;
    std::size_t width = 0;
    bool needs_color = false;

    explicit Descriptor(const Json &entry) {
        static constexpr char kKnown[] = "; accepted: DenseSIFT, ColorSIFT, ColorCells, Patches.";
        BAGWISE_CHECK(entry.type != Json::null, std::string("its descriptor is null: it takes vectors, but this runtime begins with pixels") + kKnown);
        const Json &name = entry.at("name"), &given = entry.at("parameters");
        const bool sound = entry.type == Json::object && entry.items.size() == 2 && name.type == Json::string && given.type == Json::object;
        BAGWISE_CHECK(sound, "its descriptor must have name, parameters; got " + entry.shown() + '.');
        name_ = name.text;
        static const std::map<std::string, Kind> known = {{"DenseSIFT", dense_sift}, {"ColorSIFT", color_sift}, {"ColorCells", color_cells}, {"Patches", patches}};
        BAGWISE_CHECK(known.count(name_), "its descriptor is " + in_quotes(name_) + ", which this runtime does not have" + kKnown);
        kind = known.at(name_);
        const bool sift = kind == dense_sift || kind == color_sift;
        step = integer(given, "step", 1, 4096);
        max_side = given.at("max_side").type == Json::null ? 0 : integer(given, "max_side", 3, 4096);
        const int patch = integer(given, kind == color_cells ? "cell" : "patch", sift ? 4 : 1, 4096);
        if (kind == color_sift) option = one_of(given, "space", {"opponent", "rg", "c", "rgb"});
        if (kind == patches) {
            option = one_of(given, given.find("normalization") ? "normalization" : "normalize", {"mean", "standard", "l2", ""});
            needs_color = one_of(given, "mode", {"grey", "rgb"}) == "rgb";
        }
        needs_color = needs_color || kind == color_sift;
        n_channels = !needs_color ? 1 : option == "rg" ? 2 : 3;
        if (sift) {
            make_scales(given, patch);
        } else {
            scales.emplace_back();
            scales[0].size = patch;
        }
        const auto area = static_cast<std::size_t>(patch) * static_cast<std::size_t>(patch);
        width = sift ? 128 * static_cast<std::size_t>(n_channels) : kind == color_cells ? 6 : area * static_cast<std::size_t>(n_channels);
        const std::size_t n_wanted = sift ? (kind == color_sift ? 5 : 4) : kind == patches ? 4 : 2;
        BAGWISE_CHECK(given.items.size() == n_wanted + (given.find("max_side") != nullptr), "its descriptor " + name_ + " has other parameters: " + given.shown() + '.');
    }

    const std::string &name() const { return name_; }

  private:
    [[noreturn]] void wrong(const Json &given, const std::string &key, const std::string &accepted) const {
        fail("its descriptor has " + key + " of " + name_ + ' ' + given.at(key).shown() + "; accepted: " + accepted + '.');
    }
    int integer(const Json &given, const std::string &key, int least, int most) const {
        if (!given.at(key).is_count(least, most)) wrong(given, key, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
        return static_cast<int>(given.at(key).whole);
    }
    std::string one_of(const Json &given, const std::string &key, std::initializer_list<const char *> accepted) const {
        const Json &held = given.at(key);
        std::string all;
        for (const char *one : accepted) {
            if (*one ? held.type == Json::string && held.text == one : held.type == Json::null && given.find(key)) return one;
            all += (all.empty() ? "" : ", ") + std::string(*one ? one : "null");
        }
        wrong(given, key, all);
    }

    void make_scales(const Json &given, int patch) {
        const Json &factors = given.at("scales"), &smoothing = given.at("smoothing");
        const auto is_factor = [](const Json &one) { return one.is_number() && one.real > 0 && one.real <= 1000; };
        const bool sound = factors.type == Json::list && !factors.items.empty() && factors.items.size() <= 64 && std::all_of(factors.items.begin(), factors.items.end(), is_factor);
        if (!sound) wrong(given, "scales", "a list of 1 to 64 numbers above 0, up to 1000");
        if (!smoothing.is_number() || !(smoothing.real >= 0 && smoothing.real <= 1000)) wrong(given, "smoothing", "a number from 0 to 1000");
        for (const Json &factor : factors.items) {
            Scale scale;
            scale.size = patch * factor.real;
            const double sigma = smoothing.real * factor.real, cell = scale.size / 4;
            if (sigma > kMostSmoothing) wrong(given, "smoothing", "up to 1000 pixels after scaling");
            if (scale.size <= kMostSide) {  // larger ones fit no image
                scale.n_taps = static_cast<int>(std::ceil(2 * cell));
                for (int a = 0; a < 4; ++a) {
                    const double middle = (a - 1.5) * cell;
                    scale.firsts[static_cast<std::size_t>(a)] = static_cast<int>(std::floor(middle - cell)) + 1;
                    for (int t = 0; t < scale.n_taps; ++t) {
                        const double at = scale.firsts[static_cast<std::size_t>(a)] + t, far = at / (2 * cell);
                        scale.weights.push_back(static_cast<float>(std::max(0.0, 1.0 - std::fabs(at - middle) / cell) * std::exp(-0.5 * (far * far))));
                    }
                }
            }
            if (sigma > 0) {
                std::vector<double> half;
                double sum = 0;
                for (int k = 0; k <= static_cast<int>(4 * sigma + 0.5); ++k) {
                    half.push_back(std::exp(-0.5 * (k / sigma * (k / sigma))));
                    sum += k ? 2 * half.back() : half.back();
                }
                for (const double one : half) scale.gaussian.push_back(static_cast<float>(one / sum));
            }
            scales.push_back(std::move(scale));
        }
    }

    std::string name_;
};

// ---- models ----

// A model, as it is used.
struct Data {
    Items items = Items::images;
    std::vector<std::string> classes;
    std::int32_t n_words = 0, n_groups = 0;
    std::vector<std::pair<int, int>> grids;
    int n_cells = 1;
    std::string term = "count", norm;
    std::vector<std::string> steps;
    std::vector<std::vector<std::int32_t>> tables;  // group of each word; one, or several at once
    std::vector<float> weights, coef, intercept;
    std::vector<double> shift;
    bool has_head = false;
    double sharpness = 0;  // of probabilities; 0 if there are none
    std::vector<Descriptor> descriptors;
    std::vector<Codebook> codebooks;
    std::vector<std::int32_t> first_words;  // of vocabularies, and the end
    std::unique_ptr<Tokenizer> tokenizer;
    Names names;
    std::vector<std::uint16_t> hashes;
    std::vector<std::int32_t> hash_starts;
    std::map<std::int32_t, std::string> group_names;

    std::size_t n_columns() const { return static_cast<std::size_t>(n_cells) * static_cast<std::size_t>(n_words); }
    std::size_t n_features() const { return static_cast<std::size_t>(n_cells) * static_cast<std::size_t>(n_groups); }

    // The number of a word of texts, -1 if it is not in the vocabulary.
    std::int32_t find(std::string_view word) const {
        if (hashes.empty()) return names.find(word);
        const std::uint32_t hash = crc32(word.data(), word.size()) & 0xffffff;
        const auto first = hashes.begin() + hash_starts[hash >> 16], end = hashes.begin() + hash_starts[(hash >> 16) + 1];
        const auto found = std::lower_bound(first, end, static_cast<std::uint16_t>(hash & 0xffff));
        return found == end || *found != (hash & 0xffff) ? -1 : static_cast<std::int32_t>(found - hashes.begin());
    }
};

template <class T>
bool rises(const std::vector<T> &offsets, std::int64_t end) {
    return offsets.front() == 0 && offsets.back() == end && std::is_sorted(offsets.begin(), offsets.end());
}

class Loader {
  public:
    static std::shared_ptr<const Data> load(Source source, int n_groups) {
        Loader loader(std::move(source));
        loader.fill(n_groups);
        return std::move(loader.data_);
    }

  private:
    explicit Loader(Source source) : file_(std::move(source)), data_(std::make_shared<Data>()) {}

    void fill(int n_groups) {
        const Json &header = file_.header;
        const std::string &items = header.at("items").text;
        BAGWISE_CHECK(items != "videos", "its items are videos, which this runtime does not describe; it takes images, texts and table.");
        data_->items = items == "images" ? Items::images : items == "texts" ? Items::texts : Items::table;
        data_->n_words = static_cast<std::int32_t>(file_.d);
        data_->n_cells = static_cast<int>(file_.cells);
        for (const Json &one : header.at("classes").items) data_->classes.push_back(one.text);
        for (const Json &one : header.at("normalize").items) data_->steps.push_back(one.text);
        for (const Json &one : header.at("pyramid").items) data_->grids.emplace_back(one.items[0].whole, one.items[1].whole);
        if (header.find("term")) data_->term = header.at("term").text;
        data_->norm = header.at("norm").text;
        const Json &named = header.at("group_names");
        for (std::size_t k = 0; k < named.items.size(); ++k) data_->group_names[std::stoi(named.names[k])] = named.items[k].text;
        set_vocabulary();
        set_weights();
        set_groups(n_groups);
        set_heads();
        if (data_->n_groups != file_.n) data_->group_names.clear();
    }

    // Numbers below a limit, and finite. An array of bytes is multiplied by the scales of its rows.
    std::vector<float> numbers(const std::string &name, double most) {
        const auto found = file_.get<float>(name);
        for (const float one : found) BAGWISE_CHECK(std::fabs(one) < most, "its " + name + " has the number " + std::to_string(one) + "; accepted: numbers below " + (most > kLargest ? "1e37." : "1e16."));
        return found;
    }
    std::pair<std::vector<std::int8_t>, std::vector<float>> bytes(const std::string &name, const std::string &scale) {
        auto found = std::make_pair(file_.get<std::int8_t>(name), file_.get<float>(scale));
        for (const std::int8_t one : found.first) BAGWISE_CHECK(one != -128, "its " + name + " has the number -128; accepted: -127 to 127.");
        for (const float one : found.second) BAGWISE_CHECK(one >= 1e-30f && one <= 1e13f, "its " + scale + " has the number " + std::to_string(one) + "; accepted: 1e-30 to 1e13.");
        return found;
    }

    void set_vocabulary() {
        const Json &header = file_.header;
        const bool seen = data_->items == Items::images, worded = data_->items == Items::texts;
        const Json &descriptor = header.at("descriptor");
        BAGWISE_CHECK(seen || !file_.has("codebook"), "it has a codebook, but its items are " + header.at("items").text + '.');
        BAGWISE_CHECK(!seen || !file_.has("names"), "words of images have no names, but it has some.");
        std::vector<std::int64_t> sizes = file_.vocabularies.empty() ? std::vector<std::int64_t>{file_.d} : file_.vocabularies;
        data_->first_words = {0};
        for (const std::int64_t size : sizes) data_->first_words.push_back(data_->first_words.back() + static_cast<std::int32_t>(size));
        if (seen) {
            if (sizes.size() == 1) data_->descriptors.emplace_back(descriptor);
            BAGWISE_CHECK(sizes.size() == 1 || descriptor.type == Json::null || (descriptor.type == Json::list && descriptor.items.size() == sizes.size()),
                  "its descriptor must be a list of " + std::to_string(sizes.size()) + ", one for each vocabulary; got " + descriptor.shown() + '.');
            for (std::size_t v = 0; v < sizes.size() && sizes.size() > 1; ++v) data_->descriptors.emplace_back(descriptor.type == Json::null ? descriptor : descriptor.items[v]);
            for (std::size_t v = 0; v < sizes.size(); ++v) add_codebook(File::codebook_name(v), data_->descriptors[v], static_cast<std::size_t>(sizes[v]));
        }
        if (worded) data_->tokenizer = std::make_unique<Tokenizer>(header.at("tokenizer"));
        BAGWISE_CHECK(!worded || file_.has("names") || file_.has("hashes"), "it is a model of texts without names or hashes of words.");
        if (file_.has("names")) {
            const auto letters = file_.get<char>("names");
            auto offsets = file_.get<std::int64_t>("name_offsets");
            BAGWISE_CHECK(rises(offsets, static_cast<std::int64_t>(letters.size())), "the offsets of its names do not rise from 0 to the number of their bytes.");
            data_->names = Names(std::string(letters.begin(), letters.end()), std::move(offsets));
            for (std::int32_t k = 0; k < data_->n_words; ++k) BAGWISE_CHECK(is_utf8(data_->names[k]), "the name of its word " + std::to_string(k) + " is not UTF-8.");
            const std::int32_t *repeated = worded ? data_->names.repeated() : nullptr;
            BAGWISE_CHECK(!repeated, "its names must be unique, but " + in_quotes(repeated ? data_->names[*repeated] : "") + " occurs more than once.");
        }
        if (file_.has("hashes")) {
            data_->hashes = file_.get<std::uint16_t>("hashes");
            data_->hash_starts = file_.get<std::int32_t>("hash_starts");
            BAGWISE_CHECK(rises(data_->hash_starts, file_.d), "its hash_starts do not rise from 0 to " + std::to_string(file_.d) + '.');
            for (std::size_t k = 0; k + 1 < data_->hash_starts.size(); ++k)
                for (std::int32_t w = data_->hash_starts[k] + 1; w < data_->hash_starts[k + 1]; ++w)
                    BAGWISE_CHECK(data_->hashes[static_cast<std::size_t>(w)] > data_->hashes[static_cast<std::size_t>(w) - 1], "its hashes do not rise at word " + std::to_string(w) + '.');
        }
    }

    void add_codebook(const std::string &name, const Descriptor &descriptor, std::size_t n) {
        BAGWISE_CHECK(file_.has(name), "it has no " + name + ", which words of images need.");
        const auto width = static_cast<std::size_t>(file_.form(name).last());
        BAGWISE_CHECK(width == descriptor.width, "its " + name + " has " + std::to_string(width) + " columns, but " + descriptor.name() + " gives " + std::to_string(descriptor.width) + " numbers.");
        if (file_.form(name).type == "I8") {
            const auto [values, scales] = bytes(name, name + "_scale");
            data_->codebooks.emplace_back(std::vector<float>(), values, scales, n, width);
        } else {
            data_->codebooks.emplace_back(numbers(name, kLargest), std::vector<std::int8_t>(), std::vector<float>(), n, width);
        }
    }

    void set_weights() {
        if (file_.has("word_weights")) data_->weights = numbers("word_weights", kLargestWeight);
        for (const float one : data_->weights) BAGWISE_CHECK(one >= 0, "its word_weights has the number " + std::to_string(one) + "; accepted: at least 0.");
        if (file_.has("column_shift")) data_->shift = file_.get<double>("column_shift");
        for (const double one : data_->shift) BAGWISE_CHECK(std::fabs(one) < kLargestWeight, "its column_shift has the number " + std::to_string(one) + "; accepted: numbers below 1e37.");
        if (!file_.has("weight_codes")) return;
        const Json &span = file_.header.at("weight_range");
        const double low = std::log(span.items[0].real), high = std::log(span.items[1].real);
        float known[256] = {};
        for (int k = 1; k < 256; ++k) known[k] = static_cast<float>(std::exp(low + (high - low) / 254 * (k - 1)));
        known[1] = static_cast<float>(span.items[0].real);
        known[255] = static_cast<float>(span.items[1].real);
        for (const std::uint8_t code : file_.get<std::uint8_t>("weight_codes")) data_->weights.push_back(known[code]);
    }

    std::vector<std::int32_t> small_numbers(const std::string &name) {
        std::vector<std::int32_t> found;
        if (file_.form(name).type == "I32") return file_.get<std::int32_t>(name);
        if (file_.form(name).type == "U16")
            for (const std::uint16_t one : file_.get<std::uint16_t>(name)) found.push_back(one);
        else
            for (const std::uint8_t one : file_.get<std::uint8_t>(name)) found.push_back(one);
        return found;
    }

    // Apply merges: the group of each word.
    void set_groups(int n_groups) {
        const auto d = static_cast<std::size_t>(file_.d);
        const bool given = file_.has("groups");
        std::int64_t n_merges = 0, n_wanted = n_groups ? n_groups : file_.n;
        std::vector<std::int32_t> merges, root(d);
        for (std::size_t w = 0; w < d; ++w) root[w] = static_cast<std::int32_t>(w);
        std::vector<char> absorbed(d);
        if (file_.has("merges")) merges = file_.get<std::int32_t>("merges");
        std::int64_t n_all = static_cast<std::int64_t>(merges.size() / 2);
        if (given) {  // the first word of each group absorbs the others
            const std::int64_t n_given = file_.flat ? file_.flat : file_.n;
            std::vector<std::int32_t> first;
            const std::vector<std::int32_t> groups = small_numbers("groups");
            for (std::size_t w = 0; w < d; ++w) {
                const auto group = static_cast<std::size_t>(groups[w]);
                BAGWISE_CHECK(group <= first.size() && group < static_cast<std::size_t>(n_given), "its groups are not numbered by their first words, see word " + std::to_string(w) + '.');
                if (group == first.size()) {
                    first.push_back(static_cast<std::int32_t>(w));
                } else {
                    root[w] = first[group];
                    absorbed[w] = 1;
                }
            }
            BAGWISE_CHECK(first.size() == static_cast<std::size_t>(n_given), "its groups are " + std::to_string(first.size()) + ", expected " + std::to_string(n_given) + '.');
            n_merges = static_cast<std::int64_t>(d) - n_given;
            n_all += n_merges;
        }
        const std::int64_t least = std::max<std::int64_t>(1, file_.d - n_all), most = file_.flat ? file_.flat : file_.d;
        BAGWISE_CHECK(n_wanted == file_.n || !given || file_.flat, "it is compact: it always has " + std::to_string(file_.n) + " groups, not " + std::to_string(n_wanted) + '.');
        BAGWISE_CHECK(least <= n_wanted && n_wanted <= most, "it can be cut at " + std::to_string(least) + " to " + std::to_string(most) + " groups, got " + std::to_string(n_wanted) + '.');
        for (std::size_t k = 0; k < merges.size(); k += 2, ++n_merges) {
            const std::int32_t s = merges[k], t = merges[k + 1];
            const std::string merge = "its merges have " + std::to_string(s) + " and " + std::to_string(t);
            BAGWISE_CHECK(s >= 0 && s < t && t < file_.d, merge + ", words that do not exist or not in this order.");
            BAGWISE_CHECK(!absorbed[static_cast<std::size_t>(s)] && !absorbed[static_cast<std::size_t>(t)], merge + ", of which one was absorbed before: they are no hierarchy.");
            absorbed[static_cast<std::size_t>(t)] = 1;
            if (n_merges < file_.d - n_wanted) root[static_cast<std::size_t>(t)] = s;
        }
        data_->n_groups = static_cast<std::int32_t>(n_wanted);
        std::vector<std::int32_t> table(d);
        std::int32_t next = 0;
        for (std::size_t w = 0; w < d; ++w) {  // words that absorb come first
            const auto other = static_cast<std::size_t>(root[w]);
            table[w] = other == w ? next++ : table[other];
        }
        if (file_.has("tables")) {
            const std::vector<std::int32_t> all = small_numbers("tables");
            for (const std::int32_t one : all) BAGWISE_CHECK(one >= 0 && one < file_.n, "its tables have group " + std::to_string(one) + "; accepted: 0 to " + std::to_string(file_.n - 1) + '.');
            for (std::size_t k = 0; k < all.size() && n_wanted == file_.n; k += d)
                data_->tables.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(k), all.begin() + static_cast<std::ptrdiff_t>(k + d));
        }
        if (data_->tables.empty()) data_->tables.push_back(std::move(table));
    }

    void set_heads() {
        for (const std::int64_t size : file_.heads) {
            const std::string name = "head_" + std::to_string(size);
            const bool ours = size == data_->n_groups;
            std::vector<float> coef, intercept = numbers(name + "_intercept", kLargestWeight);
            if (file_.form(name + "_coef").type == "I8") {
                const auto [values, scales] = bytes(name + "_coef", name + "_scale");
                const std::size_t width = values.size() / scales.size();
                for (std::size_t k = 0; k < values.size() && ours; ++k) coef.push_back(values[k] * scales[k / width]);
            } else {
                coef = numbers(name + "_coef", kLargestWeight);
            }
            if (!ours) continue;
            data_->has_head = true;
            data_->coef = std::move(coef);
            data_->intercept = std::move(intercept);
            data_->sharpness = file_.header.at("calibration").at(std::to_string(size)).real;
        }
    }

    File file_;
    std::shared_ptr<Data> data_;
};

// ---- images ----

// 8-bit pixels, grey or RGB.
struct Pixels {
    const std::uint8_t *first = nullptr;
    int width = 0, height = 0, channels = 1, step = 1;  // step: bytes from pixel to pixel
    std::size_t stride = 0;
    const std::uint8_t *row(int y) const { return first + static_cast<std::size_t>(y) * stride; }
};

// Shrink by area averaging: each new pixel is the mean of the rectangle that it covers, rounded as OpenCV rounds it.
class Shrinker {
  public:
    static std::pair<int, int> size(int width, int height, int max_side) {
        const std::int64_t longest = std::max(width, height);
        if (max_side == 0 || longest <= max_side) return {width, height};
        const auto side = [&](std::int64_t a) { return static_cast<int>(std::max<std::int64_t>(1, (2 * a * max_side + longest) / (2 * longest))); };
        return {side(width), side(height)};
    }

    Pixels shrink(const Pixels &image, int width, int height) {
        const int n = width * image.channels;
        out_.resize(static_cast<std::size_t>(n) * static_cast<std::size_t>(height));
        const Pixels result{out_.data(), width, height, image.channels, image.channels, static_cast<std::size_t>(n)};
        if (image.width % width == 0 && image.height % height == 0)
            by_whole_pixels(image, width, height);
        else
            by_parts(image, width, height);
        return result;
    }

  private:
    struct Part {
        int from, to;
        float share;
    };

    void by_whole_pixels(const Pixels &image, int width, int height) {
        const int across = image.width / width, down = image.height / height, area = across * down;
        std::uint8_t *out = out_.data();
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x)
                for (int c = 0; c < image.channels; ++c) {
                    std::int64_t sum = 0;
                    for (int i = 0; i < down; ++i) {
                        const std::uint8_t *row = image.row(y * down + i) + x * across * image.step + c;
                        for (int j = 0; j < across; ++j) sum += row[j * image.step];
                    }
                    *out++ = across == 2 && down == 2 ? static_cast<std::uint8_t>((sum + 2) >> 2) : rounded(static_cast<float>(sum) * (1.0f / static_cast<float>(area)));
                }
    }

    void by_parts(const Pixels &image, int width, int height) {
        share_out(image.width, width, across_);
        share_out(image.height, height, down_);
        const auto n = static_cast<std::size_t>(width * image.channels);
        line_.resize(n);
        sums_.resize(n);
        int held = -1;
        std::uint8_t *out = out_.data();
        for (std::size_t k = 0; k < down_.size(); ++k) {
            const Part &part = down_[k];
            if (part.from != held) add_up(image, held = part.from);
            if (k == 0 || down_[k - 1].to != part.to)
                for (std::size_t x = 0; x < n; ++x) sums_[x] = part.share * line_[x];
            else
                for (std::size_t x = 0; x < n; ++x) sums_[x] += part.share * line_[x];
            if (k + 1 == down_.size() || down_[k + 1].to != part.to)
                for (std::size_t x = 0; x < n; ++x) *out++ = rounded(sums_[x]);
        }
    }

    void add_up(const Pixels &image, int y) {
        std::fill(line_.begin(), line_.end(), 0.0f);
        const std::uint8_t *row = image.row(y);
        for (const Part &part : across_)
            for (int c = 0; c < image.channels; ++c) line_[static_cast<std::size_t>(part.to * image.channels + c)] += part.share * row[part.from * image.step + c];
    }

    // Which pixels of a side make which new ones, with their shares; shares below a thousandth of a pixel are left out.
    static void share_out(int side, int new_side, std::vector<Part> &parts) {
        parts.clear();
        const double scale = static_cast<double>(side) / new_side;
        for (int to = 0; to < new_side; ++to) {
            const double start = to * scale, end = start + scale, covered = std::min(scale, side - start);
            const int last = std::min(static_cast<int>(std::floor(end)), side - 1), first = std::min(static_cast<int>(std::ceil(start)), last);
            if (first - start > 1e-3) parts.push_back({first - 1, to, static_cast<float>((first - start) / covered)});
            for (int from = first; from < last; ++from) parts.push_back({from, to, static_cast<float>(1.0 / covered)});
            if (end - last > 1e-3) parts.push_back({last, to, static_cast<float>(std::min(std::min(end - last, 1.0), covered) / covered)});
        }
    }

    static std::uint8_t rounded(float value) { return static_cast<std::uint8_t>(std::min(255L, std::max(0L, std::lrintf(value)))); }

    std::vector<Part> across_, down_;
    std::vector<float> line_, sums_;
    std::vector<std::uint8_t> out_;
};

// The patches of one scale of a descriptor in an image.
struct Grid {
    int n_rows = 0, n_columns = 0, top = 0, left = 0;
    std::size_t first_patch = 0;
    double offset = 0;  // from the first pixel of a patch to its centre
};

// What one thread needs to describe rows of patches.
class Rows {
  public:
    // Find the words of the patches of rows `begin` to `end` of a grid.
    void describe(const Descriptor &descriptor, const Scale &scale, const Codebook &codebook, std::int32_t first_word, const Pixels &image,
                  const std::vector<float> &channels, const Grid &grid, int begin, int end, std::int32_t *words) {
        const auto n = static_cast<std::size_t>(grid.n_columns);
        vectors_.resize((n + Codebook::kRows) * descriptor.width);
        next_ = 0;
        next_smooth_.fill(0);
        for (int i = begin; i < end; ++i) {
            const int top = grid.top + i * descriptor.step;
            if (descriptor.kind == Descriptor::color_cells)
                cells(descriptor, image, top, grid);
            else if (descriptor.kind == Descriptor::patches)
                pixels(descriptor, channels, image.width, image.height, top, grid);
            else
                sift(descriptor, scale, channels, image.width, image.height, top, grid);
            codebook.nearest(vectors_.data(), n, first_word, words + grid.first_patch + static_cast<std::size_t>(i) * n, scratch_);
        }
    }

  private:
    void cells(const Descriptor &descriptor, const Pixels &image, int top, const Grid &grid) {
        const int cell = static_cast<int>(descriptor.scales[0].size);
        const double n = static_cast<double>(cell) * cell;
        for (int k = 0; k < grid.n_columns; ++k) {
            const int left = grid.left + k * descriptor.step;
            float *out = vectors_.data() + static_cast<std::size_t>(k) * 6;
            for (int c = 0; c < 3; ++c) {
                if (c >= image.channels) {  // grey counts as three equal channels; six numbers: three means, three deviations
                    out[c] = out[0], out[3 + c] = out[3];
                    continue;
                }
                const int first = image.row(top)[left * image.step + c];
                std::int64_t total = 0, squares = 0;
                for (int y = top; y < top + cell; ++y) {
                    const std::uint8_t *row = image.row(y) + left * image.step + c;
                    for (int x = 0; x < cell; ++x) {
                        const std::int32_t value = row[x * image.step] - first;
                        total += value;
                        squares += value * value;
                    }
                }
                const double mean = static_cast<double>(total) / n;
                out[c] = static_cast<float>(first + mean);
                out[3 + c] = static_cast<float>(std::sqrt(std::max(static_cast<double>(squares) / n - mean * mean, 0.0)));
            }
        }
    }

    void pixels(const Descriptor &descriptor, const std::vector<float> &channels, int width, int height, int top, const Grid &grid) {
        const int patch = static_cast<int>(descriptor.scales[0].size);
        const std::string &how = descriptor.option;
        const auto plane = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
        for (int k = 0; k < grid.n_columns; ++k) {
            float *out = vectors_.data() + static_cast<std::size_t>(k) * descriptor.width, *at = out;
            double sum = 0, largest = 1;
            for (int c = 0; c < descriptor.n_channels; ++c)
                for (int y = top; y < top + patch; ++y) {
                    const float *row = channels.data() + static_cast<std::size_t>(c) * plane + static_cast<std::size_t>(y) * static_cast<std::size_t>(width) + grid.left + k * descriptor.step;
                    for (int x = 0; x < patch; ++x) {
                        sum += *at++ = row[x];
                        largest = std::max<double>(largest, row[x]);
                    }
                }
            if (how.empty()) continue;
            const double n = static_cast<double>(descriptor.width), mean = how == "l2" ? 0 : sum / n;
            double size = 0;
            for (std::size_t m = 0; m < descriptor.width; ++m) size += (out[m] - mean) * (out[m] - mean);
            size = how == "mean" ? 1 : std::sqrt(size) / (how == "standard" ? std::sqrt(n) : 1);
            const bool flat = how != "mean" && size <= 1e-8 * largest;
            for (std::size_t m = 0; m < descriptor.width; ++m) out[m] = flat ? 0 : static_cast<float>((out[m] - mean) / size);
        }
    }

    // Describe a row of patches by SIFT. Only those rows of oriented gradients are kept that patches of this row touch.
    void sift(const Descriptor &descriptor, const Scale &scale, const std::vector<float> &channels, int width, int height, int top, const Grid &grid) {
        const int middle = top + static_cast<int>(scale.size) / 2, n_ring = scale.firsts[3] + scale.n_taps - scale.firsts[0];
        const int from = std::max(0, middle + scale.firsts[0]), to = std::min(height, middle + scale.firsts[3] + scale.n_taps);
        const std::size_t line = static_cast<std::size_t>(width) * 8, ring = line * static_cast<std::size_t>(n_ring);
        const std::size_t plane = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
        ring_.resize(ring * static_cast<std::size_t>(descriptor.n_channels));
        line_.resize(line);
        for (int c = 0; c < descriptor.n_channels; ++c) {
            float *planes = ring_.data() + ring * static_cast<std::size_t>(c);
            const float *channel = channels.data() + plane * static_cast<std::size_t>(c);
            for (int y = std::max(next_, from); y < to; ++y) orient(scale, channel, c, width, height, y, planes + line * static_cast<std::size_t>(y % n_ring));
            for (int a = 0; a < 4; ++a) {
                const float *weights = scale.weights.data() + a * scale.n_taps;
                std::fill(line_.begin(), line_.end(), 0.0f);
                for (int t = 0; t < scale.n_taps; ++t) {
                    const int y = middle + scale.firsts[static_cast<std::size_t>(a)] + t;
                    if (y < 0 || y >= height) continue;
                    const float weight = weights[t], *row = planes + line * static_cast<std::size_t>(y % n_ring);
                    float *sums = line_.data();
                    for (std::size_t k = 0; k < line; ++k) sums[k] += weight * row[k];
                }
                sum_columns(descriptor, scale, width, c, a, grid);
            }
            for (int k = 0; k < grid.n_columns; ++k) normalize(vectors_.data() + static_cast<std::size_t>(k) * descriptor.width + 128 * c);
        }
        next_ = std::max(next_, to);
    }

    void sum_columns(const Descriptor &descriptor, const Scale &scale, int width, int c, int a, const Grid &grid) {
        for (int k = 0; k < grid.n_columns; ++k)
            for (int b = 0; b < 4; ++b) {
                const int start = grid.left + k * descriptor.step + static_cast<int>(scale.size) / 2 + scale.firsts[static_cast<std::size_t>(b)];
                const float *weights = scale.weights.data() + b * scale.n_taps;
                float sums[8] = {};
                for (int t = std::max(0, -start); t < std::min(scale.n_taps, width - start); ++t) {
                    const float *at = line_.data() + 8 * (start + t), weight = weights[t];
                    for (int o = 0; o < 8; ++o) sums[o] += weight * at[o];
                }
                float *out = vectors_.data() + static_cast<std::size_t>(k) * descriptor.width + 128 * c + 32 * a + 8 * b;
                for (int o = 0; o < 8; ++o) out[o] = sums[o];
            }
    }

    static void normalize(float *vector) {
        double total = 0;
        for (int k = 0; k < 128; ++k) total += static_cast<double>(vector[k]) * vector[k];
        if (std::sqrt(total) < 1e-8) {
            std::fill(vector, vector + 128, 0.0f);
            return;
        }
        const float largest = static_cast<float>(0.2 * std::sqrt(total));
        total = 0;
        for (int k = 0; k < 128; ++k) {
            vector[k] = std::min(vector[k], largest);
            total += static_cast<double>(vector[k]) * vector[k];
        }
        const float factor = static_cast<float>(1.0 / std::sqrt(total));
        for (int k = 0; k < 128; ++k) vector[k] *= factor;
    }

    // Divide the norm of the gradient of each pixel of a row between the two nearest of eight directions.
    void orient(const Scale &scale, const float *channel, int c, int width, int height, int y, float *out) {
        std::fill(out, out + static_cast<std::size_t>(width) * 8, 0.0f);
        if (y == 0 || y == height - 1) return;
        const float *rows[3];
        for (int k = 0; k < 3; ++k) rows[k] = smoothed(scale, channel, c, width, height, y - 1 + k);
        norms_.resize(static_cast<std::size_t>(width));
        turns_.resize(static_cast<std::size_t>(width));
        polar(rows[1], rows[0], rows[2], width, norms_.data(), turns_.data());
        for (int x = 1; x < width - 1; ++x) {
            const float norm = norms_[static_cast<std::size_t>(x)], turn = turns_[static_cast<std::size_t>(x)];
            const int whole = static_cast<int>(turn);
            const float share = norm * (turn - static_cast<float>(whole));
            out[8 * x + (whole & 7)] = norm - share;
            out[8 * x + ((whole + 1) & 7)] = share;
        }
    }

    // Norm and direction of the gradient along a row; directions in eighths of a turn, from right to up. The arctangent is
    // a polynomial (Abramowitz and Stegun, 4.4.49), so that the loop can be vectorised.
    static void polar(const float *row, const float *above, const float *below, int width, float *norms, float *turns) {
        constexpr float kEighth = static_cast<float>(8 / (2 * 3.14159265358979323846));
        for (int x = 1; x < width - 1; ++x) {
            const float right = row[x + 1] - row[x - 1], up = above[x] - below[x];
            const float across = std::fabs(right), along = std::fabs(up);
            const float small = along < across ? along : across, large = along < across ? across : along;
            const float slope = small / (large > 0 ? large : 1.0f), s = slope * slope;
            float angle = -0.0752896400f + s * (0.0429096138f + s * (-0.0161657367f + s * 0.0028662257f));
            angle = 0.1999355085f + s * (-0.1420889944f + s * (0.1065626393f + s * angle));
            angle = slope * (1.0f + s * (-0.3333314528f + s * angle));
            float turn = angle * kEighth;
            turn = along < across ? turn : 2.0f - turn;
            turn = right >= 0 ? turn : 4.0f - turn;
            turns[x] = up >= 0 ? turn : 8.0f - turn;
            norms[x] = std::sqrt(right * right + up * up);
        }
    }

    static int mirrored(int i, int n) {
        if (n == 1) return 0;
        i = std::abs(i) % (2 * n - 2);
        return i < n ? i : 2 * n - 2 - i;
    }

    // A row of a channel, smoothed by the Gaussian of a scale; the last three of each channel are kept.
    const float *smoothed(const Scale &scale, const float *channel, int c, int width, int height, int y) {
        const auto w = static_cast<std::size_t>(width);
        const auto source = [&](int k) { return channel + static_cast<std::size_t>(mirrored(k, height)) * w; };
        const int radius = static_cast<int>(scale.gaussian.size()) - 1;
        if (radius < 1) return source(y);
        const float *weights = scale.gaussian.data();
        smooth_.resize(std::max(smooth_.size(), w * 3 * static_cast<std::size_t>(c + 1)));
        padded_.resize(w + 2 * static_cast<std::size_t>(radius));
        float *out = smooth_.data() + (static_cast<std::size_t>(3 * c) + static_cast<std::size_t>(y % 3)) * w, *inner = padded_.data() + radius;
        if (y < next_smooth_[static_cast<std::size_t>(c)]) return out;
        next_smooth_[static_cast<std::size_t>(c)] = y + 1;
        for (int x = 0; x < width; ++x) inner[x] = weights[0] * source(y)[x];
        for (int k = 1; k <= radius; ++k) {
            const float *above = source(y - k), *below = source(y + k), weight = weights[k];
            for (int x = 0; x < width; ++x) inner[x] += weight * (above[x] + below[x]);
        }
        for (int k = 1; k <= radius; ++k) {
            inner[-k] = inner[mirrored(-k, width)];
            inner[width - 1 + k] = inner[mirrored(width - 1 + k, width)];
        }
        for (int x = 0; x < width; ++x) out[x] = weights[0] * inner[x];
        for (int k = 1; k <= radius; ++k)
            for (int x = 0; x < width; ++x) out[x] += weights[k] * (inner[x - k] + inner[x + k]);
        return out;
    }

    std::vector<float> vectors_, ring_, line_, norms_, turns_, smooth_, padded_;
    int next_ = 0;                     // row whose gradients come next
    std::array<int, 3> next_smooth_{};  // the same of smoothed rows, by channel
    Codebook::Scratch scratch_;
};

// Threads that wait for work. The caller is the first of them.
class Threads {
  public:
    explicit Threads(int n) : n_(n) {
#ifndef BAGWISE_NO_THREADS
        for (int t = 1; t < n; ++t) threads_.emplace_back([this, t] { wait(t); });
#endif
    }
    Threads(const Threads &) = delete;
    Threads &operator=(const Threads &) = delete;
    ~Threads() {
#ifndef BAGWISE_NO_THREADS
        {
            std::lock_guard<std::mutex> lock(mutex_);
            job_ = nullptr;
            ++round_;
        }
        begin_.notify_all();
        for (std::thread &one : threads_) one.join();
#endif
    }

    int n() const { return n_; }

    // Call work(t) for t from 0 to n - 1.
    template <class Work>
    void run(Work &&work) {
#ifdef BAGWISE_NO_THREADS
        for (int t = 0; t < n_; ++t) work(t);
#else
        {
            std::lock_guard<std::mutex> lock(mutex_);
            context_ = &work;
            job_ = [](const void *context, int t) { (*static_cast<const std::remove_reference_t<Work> *>(context))(t); };
            n_busy_ = n_ - 1;
            ++round_;
        }
        if (n_ > 1) begin_.notify_all();
        call(0);
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return n_busy_ == 0; });
        if (failed_) {
            failed_ = false;
            throw std::bad_alloc();
        }
#endif
    }

  private:
#ifndef BAGWISE_NO_THREADS
    void call(int t) {
        try {
            job_(context_, t);
        } catch (const std::bad_alloc &) {  // nothing else is thrown
            std::lock_guard<std::mutex> lock(mutex_);
            failed_ = true;
        }
    }
    void wait(int t) {
        for (unsigned seen = 0;;) {
            {
                std::unique_lock<std::mutex> lock(mutex_);
                begin_.wait(lock, [&] { return round_ != seen; });
                seen = round_;
                if (!job_) return;
            }
            call(t);
            std::lock_guard<std::mutex> lock(mutex_);
            if (--n_busy_ == 0) done_.notify_one();
        }
    }
    std::mutex mutex_;
    std::condition_variable begin_, done_;
    void (*job_)(const void *, int) = nullptr;
    const void *context_ = nullptr;
    int n_busy_ = 0;
    unsigned round_ = 0;
    bool failed_ = false;
    std::vector<std::thread> threads_;
#endif
    int n_;
};

// Run a function; what goes wrong is an Error that begins with `where`.
template <class Function>
auto with_errors(const std::string &where, Function function) {
    try {
        return function();
    } catch (const Error &error) {
        throw Error(where + error.what());
    } catch (const std::bad_alloc &) {
        throw Error(where + "there is not enough memory.");
    } catch (const std::length_error &) {
        throw Error(where + "there is not enough memory.");
    }
}

}  // namespace detail

// A model: cheap to copy, never changed, for any number of threads.
class Model {
  public:
    // Read a model from a file. `n_groups` is the number of groups to cut it at, 0 for that of the file.
    static Model load(const std::string &path, int n_groups = 0) {
        return detail::with_errors(path + " cannot be read as a model: ", [&] { return Model(detail::Loader::load(detail::Source(path), n_groups)); });
    }
    // Read a model from the bytes of a file, which are not needed afterwards.
    static Model from_memory(const void *content, std::size_t size, int n_groups = 0) {
        return detail::with_errors("The model in memory cannot be read as a model: ", [&] { return Model(detail::Loader::load(detail::Source(content, size), n_groups)); });
    }

    Items items() const { return data_->items; }
    const std::vector<std::string> &classes() const { return data_->classes; }
    int n_groups() const { return data_->n_groups; }
    int n_words() const { return data_->n_words; }
    int n_features() const { return static_cast<int>(data_->n_features()); }
    bool has_classifier() const { return data_->has_head; }
    bool has_probabilities() const { return data_->sharpness > 0; }
    bool needs_color() const {
        return std::any_of(data_->descriptors.begin(), data_->descriptors.end(), [](const auto &one) { return one.needs_color; });
    }
    // The name of a word, if words have names; and that given to a group, or null.
    std::string_view word_name(int word) const {
        return data_->names.empty() || word < 0 || word >= data_->n_words ? std::string_view() : data_->names[word];
    }
    const std::string *group_name(int group) const {
        const auto found = data_->group_names.find(group);
        return found == data_->group_names.end() ? nullptr : &found->second;
    }
    const detail::Data &data() const { return *data_; }

  private:
    explicit Model(std::shared_ptr<const detail::Data> data) : data_(std::move(data)) {}
    std::shared_ptr<const detail::Data> data_;
};

// Classifies items, one after the other. One thread uses it at a time; `n_threads` threads work on each image.
class Workspace {
  public:
    explicit Workspace(const Model &model, int n_threads = 1)
        : model_(model), data_(model_.data()), threads_(std::min(std::max(n_threads, 1), 256)), rows_(static_cast<std::size_t>(threads_.n())) {
        if (data_.items != Items::table) slots_.resize(data_.n_columns());
        entries_.reserve(std::min<std::size_t>(data_.n_columns(), 1 << 12));
        sums_.resize(data_.n_features());
        features_.resize(data_.n_features());
        scores_.resize(data_.has_head ? data_.classes.size() : 0);
    }

    const Model &model() const { return model_; }

    // Return the number of the class of an image; 0 without a classifier.
    int classify(const Image &image) {
        check_items(Items::images, "an image");
        const std::size_t row = static_cast<std::size_t>(std::max(image.width, 0)) * static_cast<std::size_t>(std::max(image.channels, 0));
        const std::size_t stride = image.stride ? image.stride : row;
        const bool sound = image.width >= 0 && image.height >= 0 && image.width <= detail::kMostSide && image.height <= detail::kMostSide;
        BAGWISE_CHECK(sound && (image.channels == 1 || image.channels == 3 || image.channels == 4) && stride >= row && (image.pixels || row * static_cast<std::size_t>(image.height) == 0),
                      "An image has 1, 3 or 4 channels, sides of up to " + std::to_string(detail::kMostSide) + " pixels and rows that do not overlap; got " + std::to_string(image.width) + " x " + std::to_string(image.height) + " x " + std::to_string(image.channels) + ", stride " + std::to_string(stride) + '.');
        if (model_.needs_color() && image.channels == 1) detail::fail("The descriptor of this model needs RGB images, got a grey one.");
        const detail::Pixels pixels{image.pixels, image.width, image.height, image.channels == 1 ? 1 : 3, image.channels, stride};
        width_ = image.width, height_ = image.height;
        lay_out();
        const detail::Pixels *described = nullptr;
        for (std::size_t v = 0; v < data_.descriptors.size(); ++v) {
            const detail::Descriptor &one = data_.descriptors[v];
            const auto [width, height] = sizes_[v];
            if (!described || v == 0 || sizes_[v] != sizes_[v - 1] || one.max_side != data_.descriptors[v - 1].max_side) {
                shrunk_ = width == image.width && height == image.height ? pixels : shrinker_.shrink(pixels, width, height);
                described = &shrunk_;
            }
            find_words(v, *described);
        }
        count_words();
        return finish();
    }

    // Return the number of the class of a text in UTF-8; other bytes separate words.
    int classify_text(std::string_view text) {
        check_items(Items::texts, "a text");
        const detail::Tokenizer &tokenizer = *data_.tokenizer;
        clear_counts();
        tokenizer.split(text, lowered_, tokens_);
        occurrences_.clear();
        for (int n = tokenizer.least; n <= tokenizer.most; ++n)
            for (std::size_t a = 0; a + static_cast<std::size_t>(n) <= tokens_.size(); ++a) {
                std::string_view word(lowered_.data() + tokens_[a].first, tokens_[a].size);
                if (n > 1) {
                    joined_.assign(word);
                    for (std::size_t k = a + 1; k < a + static_cast<std::size_t>(n); ++k) joined_.append(" ").append(lowered_, tokens_[k].first, tokens_[k].size);
                    word = joined_;
                }
                const std::int32_t number = data_.find(word);
                if (number < 0) continue;
                occurrences_.push_back({a, n, number});
                count(static_cast<std::size_t>(number));
            }
        for (Entry &one : entries_) one.value = tokenizer.binary ? 1 : one.count;
        return finish();
    }

    // Return the number of the class of a row of a table.
    int classify_row(const double *values, std::size_t n) {
        check_items(Items::table, "a row");
        BAGWISE_CHECK(n == static_cast<std::size_t>(data_.n_words), "A row has " + std::to_string(data_.n_words) + " values, one per column; got " + std::to_string(n) + '.');
        entries_.clear();
        for (std::size_t k = 0; k < n; ++k) {
            BAGWISE_CHECK(std::isfinite(values[k]), "A row must hold finite numbers, but column " + std::to_string(k) + " does not.");
            const double value = values[k] - (data_.shift.empty() ? 0.0 : data_.shift[k]);
            if (value != 0) entries_.push_back({k, 1, value, 0});
        }
        return finish();
    }

    // Of the last item: features of groups, scores of classes.
    const std::vector<float> &features() const { return features_; }
    const std::vector<double> &scores() const { return scores_; }

    // Write the numbers of the up to n best classes, best first, of equally good ones the first; returns how many.
    int top(int n, std::int32_t *classes) const {
        const int most = std::min(n, static_cast<int>(scores_.size()));
        for (int k = 0; k < most; ++k) {
            std::int32_t best = -1;
            for (std::size_t c = 0; c < scores_.size(); ++c) {
                const auto number = static_cast<std::int32_t>(c);
                const bool taken = std::find(classes, classes + k, number) != classes + k;
                if (!taken && (best < 0 || scores_[c] > scores_[static_cast<std::size_t>(best)])) best = number;
            }
            classes[k] = best;
        }
        return std::max(most, 0);
    }

    // Write calibrated probabilities of all classes.
    void probabilities(double *out) const {
        BAGWISE_CHECK(model_.has_probabilities(), "This model has no calibration for " + std::to_string(data_.n_groups) + " groups: it comes from cross-validation.");
        const double largest = *std::max_element(scores_.begin(), scores_.end());
        double sum = 0;
        for (std::size_t c = 0; c < scores_.size(); ++c) sum += out[c] = std::exp(data_.sharpness * (scores_[c] - largest));
        for (std::size_t c = 0; c < scores_.size(); ++c) out[c] /= sum;
    }

    // Explain the score of class k of the last item: intercept and weights of groups, of terms or of places add up to it.
    void explain(int k) {
        check_head();
        BAGWISE_CHECK(k >= 0 && k < static_cast<int>(data_.classes.size()), "There are classes 0 to " + std::to_string(data_.classes.size() - 1) + "; got " + std::to_string(k) + '.');
        const auto n = static_cast<std::size_t>(data_.n_groups), d = static_cast<std::size_t>(data_.n_words);
        const float *coef = data_.coef.data() + static_cast<std::size_t>(k) * data_.n_features();
        intercept_ = data_.intercept[static_cast<std::size_t>(k)];
        group_weights_.assign(n, 0);
        for (std::size_t f = 0; f < features_.size(); ++f) group_weights_[f % n] += static_cast<double>(coef[f]) * features_[f];
        terms_.clear();
        for (Entry &one : entries_) one.weight = 0;
        for (const auto &table : data_.tables) {
            sharing_.assign(sums_.size(), 0);
            for (const Entry &one : entries_) sharing_[one.column / d * n + static_cast<std::size_t>(table[one.column % d])] += one.value != 0;
            for (Entry &one : entries_) {
                if (one.value == 0) continue;
                const std::int32_t group = table[one.column % d];
                const std::size_t f = one.column / d * n + static_cast<std::size_t>(group);
                // values of a group that cancel each other share its weight evenly: it is 0 but for rounding
                const double share = sums_[f] == 0 ? 1.0 / sharing_[f] : one.value / sums_[f];
                const double weight = static_cast<double>(coef[f]) * features_[f] * share;
                one.weight += weight;
                terms_.push_back({static_cast<std::int32_t>(one.column % d), group, weight});
            }
        }
        std::sort(terms_.begin(), terms_.end(), [](const Term &a, const Term &b) { return std::make_pair(a.word, a.group) < std::make_pair(b.word, b.group); });
        std::size_t kept = 0;
        for (std::size_t t = 0; t < terms_.size(); ++t) {  // those of several cells are one
            if (kept && terms_[kept - 1].word == terms_[t].word && terms_[kept - 1].group == terms_[t].group)
                terms_[kept - 1].weight += terms_[t].weight;
            else
                terms_[kept++] = terms_[t];
        }
        terms_.resize(kept);
        places_.clear();
        if (data_.items == Items::images) explain_patches();
        if (data_.items == Items::texts) explain_tokens();
        if (data_.items == Items::table)
            for (const Entry &one : entries_)
                if (one.value != 0) places_.push_back({0, 0, 0, 0, 0, static_cast<std::int32_t>(one.column), one.weight});
    }
    double intercept() const { return intercept_; }
    const std::vector<double> &group_weights() const { return group_weights_; }
    const std::vector<Term> &terms() const { return terms_; }     // by word, then group
    const std::vector<Place> &places() const { return places_; }  // in the order of the item

  private:
    struct Entry {
        std::size_t column;   // cell times number of words, plus word
        std::uint32_t count;  // how often the word occurs in the cell
        double value, weight;  // after weighting; part of a score
    };
    struct Occurrence {
        std::size_t token;
        int n;
        std::int32_t word;
    };

    void check_items(Items wanted, const char *got) const {
        static constexpr const char *kNames[] = {"images", "texts", "rows of a table"};
        if (data_.items != wanted) detail::fail(std::string("This model takes ") + kNames[static_cast<int>(data_.items)] + ", got " + got + '.');
    }
    void check_head() const {
        BAGWISE_CHECK(data_.has_head, "This model has no classifier for " + std::to_string(data_.n_groups) + " groups.");
    }

    // Find the size that the image is described at, and the patches, for each descriptor.
    void lay_out() {
        grids_.clear();
        sizes_.clear();
        std::size_t n_patches = 0;
        for (const detail::Descriptor &one : data_.descriptors) {
            sizes_.push_back(detail::Shrinker::size(width_, height_, one.max_side));
            for (const detail::Scale &scale : one.scales) {
                detail::Grid grid;
                std::tie(grid.n_columns, grid.left) = scale.starts(sizes_.back().first, one.step);
                std::tie(grid.n_rows, grid.top) = scale.starts(sizes_.back().second, one.step);
                grid.first_patch = n_patches;
                const bool sift = one.kind == detail::Descriptor::dense_sift || one.kind == detail::Descriptor::color_sift;
                grid.offset = sift ? static_cast<int>(scale.size) / 2 + 0.5 : scale.size / 2;
                if (width_ == 0 || height_ == 0) grid.n_rows = 0;
                n_patches += static_cast<std::size_t>(grid.n_rows) * static_cast<std::size_t>(grid.n_columns);
                grids_.push_back(grid);
            }
        }
        words_.resize(n_patches);
    }

    void find_words(std::size_t v, const detail::Pixels &image) {
        const detail::Descriptor &descriptor = data_.descriptors[v];
        if (descriptor.kind != detail::Descriptor::color_cells) make_channels(descriptor, image);
        std::size_t first_grid = 0;
        for (std::size_t k = 0; k < v; ++k) first_grid += data_.descriptors[k].scales.size();
        const auto work = [&](int t) {
            for (std::size_t s = 0; s < descriptor.scales.size(); ++s) {
                const detail::Grid &grid = grids_[first_grid + s];
                const auto border = [&](int k) { return static_cast<int>(static_cast<std::int64_t>(grid.n_rows) * k / threads_.n()); };
                if (grid.n_columns > 0)
                    rows_[static_cast<std::size_t>(t)].describe(descriptor, descriptor.scales[s], data_.codebooks[v], data_.first_words[v], image, channels_, grid, border(t), border(t + 1), words_.data());
            }
        };
        threads_.run(work);
    }

    // Convert pixels to the channels that a descriptor describes.
    void make_channels(const detail::Descriptor &descriptor, const detail::Pixels &image) {
        const std::size_t plane = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height);
        channels_.resize(plane * static_cast<std::size_t>(descriptor.n_channels));
        const std::string &space = descriptor.kind == detail::Descriptor::color_sift ? descriptor.option : kPlain;
        for (int y = 0; y < image.height; ++y) {
            const std::uint8_t *pixel = image.row(y);
            float *out = channels_.data() + static_cast<std::size_t>(y) * static_cast<std::size_t>(image.width);
            for (int x = 0; x < image.width; ++x, pixel += image.step, ++out) {
                if (descriptor.n_channels == 1) {
                    *out = image.channels == 1 ? *pixel : static_cast<float>((19595u * pixel[0] + 38470u * pixel[1] + 7471u * pixel[2] + 32768u) >> 16);
                    continue;
                }
                const double red = pixel[0], green = pixel[1], blue = pixel[2], sum = red + green + blue;
                double found[3] = {red, green, blue};
                if (space == "rg") {
                    found[0] = sum != 0 ? red / sum : 0, found[1] = sum != 0 ? green / sum : 0;
                } else if (space != "rgb") {
                    found[0] = (red - green) / std::sqrt(2.0), found[1] = (red + green - 2 * blue) / std::sqrt(6.0), found[2] = sum / std::sqrt(3.0);
                    if (space == "c") found[0] = sum != 0 ? found[0] / found[2] : 0, found[1] = sum != 0 ? found[1] / found[2] : 0;
                }
                for (int c = 0; c < descriptor.n_channels; ++c) out[plane * static_cast<std::size_t>(c)] = static_cast<float>(found[c]);
            }
        }
    }

    // Call a function with the number, the column of its word and cell, of each patch in each grid of the pyramid.
    template <class Function>
    void for_patches(Function function) const {
        std::size_t number = 0, g = 0;
        for (std::size_t v = 0; v < data_.descriptors.size(); ++v)
            for (std::size_t s = 0; s < data_.descriptors[v].scales.size(); ++s, ++g) {
                const detail::Grid &grid = grids_[g];
                for (int i = 0; i < grid.n_rows; ++i)
                    for (int j = 0; j < grid.n_columns; ++j, ++number) {
                        const auto x = static_cast<float>((grid.left + j * data_.descriptors[v].step + grid.offset) / sizes_[v].first);
                        const auto y = static_cast<float>((grid.top + i * data_.descriptors[v].step + grid.offset) / sizes_[v].second);
                        function(v, s, number, x, y);
                    }
            }
    }
    template <class Function>
    void for_cells(float x, float y, Function function) const {
        int first = 0;
        for (const auto &[rows, columns] : data_.grids) {
            const int row = std::min(static_cast<int>(y * static_cast<float>(rows)), rows - 1), column = std::min(static_cast<int>(x * static_cast<float>(columns)), columns - 1);
            function(static_cast<std::size_t>(first + row * columns + column));
            first += rows * columns;
        }
    }

    void count_words() {
        clear_counts();
        for_patches([&](std::size_t, std::size_t, std::size_t number, float x, float y) {
            for_cells(x, y, [&](std::size_t cell) { count(cell * static_cast<std::size_t>(data_.n_words) + static_cast<std::size_t>(words_[number])); });
        });
        for (Entry &one : entries_) one.value = one.count;
    }
    void clear_counts() {
        for (const Entry &one : entries_) slots_[one.column] = 0;
        entries_.clear();
    }
    void count(std::size_t column) {
        if (slots_[column] == 0) {
            entries_.push_back({column, 0, 0, 0});
            slots_[column] = static_cast<std::uint32_t>(entries_.size());  // its entry, plus one
        }
        ++entries_[slots_[column] - 1].count;
    }
    const Entry &entry(std::size_t column) const { return entries_[slots_[column] - 1]; }

    // From the counts of words to features, scores and the class.
    int finish() {
        weight_words();
        const auto n = static_cast<std::size_t>(data_.n_groups), d = static_cast<std::size_t>(data_.n_words);
        std::fill(sums_.begin(), sums_.end(), 0.0);
        for (const auto &table : data_.tables)
            for (const Entry &one : entries_) sums_[one.column / d * n + static_cast<std::size_t>(table[one.column % d])] += one.value;
        normalized_ = sums_;
        for (const std::string &step : data_.steps) {
            if (step == "power") {
                for (double &one : normalized_) one = std::copysign(std::sqrt(std::fabs(one)), one);
                continue;
            }
            divide_by_norm(step == "l1", [&](auto function) {
                for (double &one : normalized_) function(one);
            });
        }
        for (std::size_t f = 0; f < n * static_cast<std::size_t>(data_.n_cells); ++f) features_[f] = static_cast<float>(normalized_[f]);
        std::size_t best = 0;
        for (std::size_t c = 0; c < scores_.size(); ++c) {
            const float *coef = data_.coef.data() + c * features_.size();
            double score = 0;
            for (std::size_t f = 0; f < features_.size(); ++f) score += static_cast<double>(coef[f]) * features_[f];
            scores_[c] = score + data_.intercept[c];
            if (scores_[c] > scores_[best]) best = c;
        }
        return static_cast<int>(best);
    }

    void weight_words() {
        const auto d = static_cast<std::size_t>(data_.n_words);
        for (Entry &one : entries_) {
            const double size = std::fabs(one.value);
            if (data_.term == "sqrt") one.value = std::copysign(std::sqrt(size), one.value);
            if (data_.term == "log" && size > 1) one.value = std::copysign(1 + std::log(size), one.value);
            if (!data_.weights.empty()) one.value *= data_.weights[one.column % d];
        }
        if (data_.norm.empty()) return;
        for (std::size_t v = 0; v + 1 < data_.first_words.size(); ++v)
            divide_by_norm(data_.norm == "l1", [&](auto function) {
                for (Entry &one : entries_) {
                    const auto word = static_cast<std::int32_t>(one.column % d);
                    if (word >= data_.first_words[v] && word < data_.first_words[v + 1]) function(one.value);
                }
            });
    }

    // Divide numbers by their norm; by the largest first, so that squares neither overflow nor vanish.
    template <class ForEach>
    static void divide_by_norm(bool l1, ForEach for_each) {
        double largest = 0, sum = 0;
        for_each([&](double &one) { largest = std::max(largest, std::fabs(one)); });
        if (!(largest > 0)) return;
        for_each([&](double &one) {
            one /= largest;
            sum += l1 ? std::fabs(one) : one * one;
        });
        const double norm = l1 ? sum : std::sqrt(sum);
        for_each([&](double &one) { one /= norm; });
    }

    void explain_patches() {
        if (grids_.empty()) return;  // there was no image yet
        const auto d = static_cast<std::size_t>(data_.n_words);
        for_patches([&](std::size_t v, std::size_t s, std::size_t number, float x, float y) {
            const double larger = static_cast<double>(std::max(width_, height_)) / std::max(sizes_[v].first, sizes_[v].second);
            const double side = data_.descriptors[v].scales[s].size * larger;
            double weight = 0;
            for_cells(x, y, [&](std::size_t cell) {
                const Entry &own = entry(cell * d + static_cast<std::size_t>(words_[number]));
                weight += own.weight / own.count;
            });
            places_.push_back({static_cast<double>(x) * width_ - side / 2, static_cast<double>(y) * height_ - side / 2, side, 0, 0, words_[number], weight});
        });
    }

    void explain_tokens() {
        for (const detail::Token &one : tokens_) places_.push_back({0, 0, 0, one.start, one.end, -2, 0});
        for (const Occurrence &one : occurrences_) {
            const Entry &found = entry(static_cast<std::size_t>(one.word));
            if (found.value == 0) continue;
            for (std::size_t k = one.token; k < one.token + static_cast<std::size_t>(one.n); ++k) {
                places_[k].word = -1;
                places_[k].weight += found.weight / found.count / one.n;
            }
        }
        places_.erase(std::remove_if(places_.begin(), places_.end(), [](const Place &one) { return one.word == -2; }), places_.end());
    }

    static inline const std::string kPlain = "rgb";
    Model model_;
    const detail::Data &data_;
    detail::Threads threads_;
    std::vector<detail::Rows> rows_;
    int width_ = 0, height_ = 0;
    detail::Shrinker shrinker_;
    detail::Pixels shrunk_;
    std::vector<std::pair<int, int>> sizes_;  // that the image is described at, by descriptor
    std::vector<detail::Grid> grids_;
    std::vector<float> channels_;
    std::vector<std::int32_t> words_;  // of patches
    std::string lowered_, joined_;
    std::vector<detail::Token> tokens_;
    std::vector<Occurrence> occurrences_;
    std::vector<std::uint32_t> slots_;  // of columns, 0 or the number of their entry plus one
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
