"""Files as people have them: what is in a file, and what a collection makes of it."""

import gzip
import io
import json
import sqlite3
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bagwise import BagwiseError, fit_model, open_collection
from small_sources import png, texts

HAM, SPAM = "see you at home later then", "win a free prize right now"
ROWS = [(f"{SPAM if k % 2 else HAM} {k}", "spam" if k % 2 else "ham") for k in range(8)]
TEXTS, KINDS = map(list, zip(*ROWS, strict=True))
NO_NAMES = "has no names of columns, which are numbered from 1; header=True takes it for names."
LONG = "Texts are in the column {!r}, the only one with long strings; text= chooses another one."
FEW = "Labels are in the column {!r}, the only other one with few values; label= chooses another one."
TAKEN = "Labels are in the column {!r}; label= chooses another one."
PROPOSED = "If {!r} holds the labels: label={!r}"
GUESSED = "is not UTF-8 and was read as {}, a guess; encoding= chooses another."
UNUSED = "The column {!r} is not used."


def rows(template, names="", encoding="utf-8"):
    """Lines of a file, each made of a text, a kind and a number."""
    lines = [names] if names else []
    return "\n".join([*lines, *(template.format(t=t, k=k, n=n) for n, (t, k) in enumerate(ROWS))]).encode(encoding)


ONES, Y, IDS = [(5 * k) % 7 for k in range(40)], [k // 20 for k in range(40)], list(range(100, 140))
TWOS, FRACTIONS = [(3 * k) % 8 for k in range(40)], [k + 0.5 for k in Y]
KIND, TRUTHS = [["red", "white"][k] for k in Y], [str(k > 0) for k in Y]


def table(**columns):
    """A CSV file of columns of 40 values."""
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    return "\n".join(lines).encode()


def frame(end, **columns):
    """The content of a file of another format."""
    stream, held = io.BytesIO(), pd.DataFrame(columns)
    {"parquet": held.to_parquet, "xlsx": lambda file: held.to_excel(file, index=False)}[end](stream)
    return stream.getvalue()


def formats(**columns):
    """The same table in several formats, by their endings."""
    csv, lines = io.StringIO(), io.StringIO()
    pd.DataFrame(columns).to_csv(csv, index=False)
    pd.DataFrame(columns).to_json(lines, orient="records", lines=True)
    yield from (("csv", csv.getvalue()), ("jsonl", lines.getvalue()))
    yield from ((end, frame(end, **columns)) for end in ("parquet", "xlsx"))


def packed(**members):
    """A zip archive of members with texts."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def folder(template, end=".txt", encoding="utf-8"):
    """Files of a folder for each kind."""
    return {f"{k}/{n}{end}": template.format(t=t, k=k).encode(encoding) for n, (t, k) in enumerate(ROWS)}


MOODS = {
    f"{part}/{domain}/{mood}.jsonl": "\n".join(json.dumps({"id": i, "text": f"{domain} {mood} {i}"}) for i in range(n))
    for part, n in (("train", 2), ("test", 1)) for domain in ("books", "dvd") for mood in ("good", "bad")
}  # fmt: skip
REVIEWS = b"\xef\xbb\xbfid,title,body,stars,split\n7,Good,I liked it,5,train\n9,Bad,,1,test\n"
UNNAMED = '1\tsaid "hello\n0\tbye\r\n1\tagain\n'
LATE = "".join(json.dumps({"text": t} | ({"Label": k} if n else {})) + "\n" for n, (t, k) in enumerate(ROWS))
SHOPS = ["x" if k % 3 else "y" for k in range(8)]
TEXTED = {"text": TEXTS, "label": KINDS}
PICTURES = {f"{k}/{n}.png": png(np.full((4, 4), 9 * n, np.uint8)) for n, k in enumerate(KINDS)}

# two sentences of a language each
SENTENCES = [
    ("cp1254", "Bu ürünü geçen hafta aldım, herkese tavsiye ederim", "Kargo çok geç geldi ve bardak kırılmıştı"),
    ("cp1250", "Obsługa była niemiła i długo czekałem", "Jedzenie było zimne, a kelner zapomniał o naszym zamówieniu"),
    ("cp1250", "Telefon přišel pozdě a krabice byla rozbitá", "Kniha je výborná, přečetla jsem ji za jeden večer"),
    ("cp1250", "A csomag késön érkezett, összetört dobozban", "Gyönyörű könyv, őszintén ajánlom mindenkinek"),
    ("cp1250", "Coletul a ajuns târziu şi cutia era ruptă", "Cartea este foarte bună, o recomand tuturor"),
    ("iso8859_2", "Książka jest świetna, polecam każdemu", "Obsługa była bardzo niemiła, więcej tu nie przyjdę"),
    ("cp1252", "Das Gerät läuft gut, ich würde es wieder kaufen", "Die Lieferung kam viel zu spät und war zerdrückt"),
    ("cp1252", "L'hôtel était très propre, près de la gare", "Le téléphone est arrivé cassé, ça ne va pas"),
    ("cp1252", "¿Funciona el teléfono? La batería dura más de un día", "El envío llegó tarde, mañana lo devuelvo"),
    ("cp1252", "O serviço não foi bom e a comida estava fria", "Sängen var hård och rummet luktade rök"),
]
LABELS = [1, None, 2, *[1, 2] * 18, None]

# rows that cannot be used: the second of each file
BAD = [
    ("a.csv", "text,label\ngood,x\nbad\n", "a.csv:2: it has 1 field, expected 2: 'text', 'label'"),
    ("a.csv", 'text,label\ngood,x\n"open,y\n', 'a.csv:2: the quote " that opens in line 3 is not closed.'),
    ("a.jsonl", '{"text": "good"}\n{"text": \n', "a.jsonl:2: it is not JSON"),
    ("a.jsonl", '{"text": "good"}\n[1]\n', "a.jsonl:2: it is a JSON list, expected an object"),
    ("a.jsonl", '{"text": "good"}\n{"title": "x"}\n', "a.jsonl:2: it has no field 'text'"),
    ("a.jsonl", '{"text": "good", "id": 1}\n{"text": "x", "id": null}\n', "a.jsonl:2: it has no 'id'"),
    ("a.jsonl", '{"text": "good"}\n' + "[" * 100_000, "a.jsonl:2: it is not JSON"),
]  # fmt: skip

# the name of a file or a folder, its content, options of `open_collection`, and what comes of it: `error` is a pattern
# of the message, `notes` and `skipped` have parts of what is told; where nothing is said, texts and labels are `ROWS`
SCENES = [
    # Texts in tables: which column is what
    ("sms.tsv", rows("{k}\t{t}"), {}, {"notes": [NO_NAMES, LONG.format("2"), FEW.format("1")]}),
    ("sms.tsv", rows("{k}\t{t}"), {"text": "2", "label": "1"}, {"notes": [NO_NAMES]}),
    ("sms.tsv", rows("{k}\t{t}"), {"header": False, "text": 2, "label": 1}, {}),
    ("sms.tsv", rows("{k}\t{t}"), {"label": "kind"}, {"error": "no column 'kind'.* header=True takes the first line"}),
    ("a.tsv", UNNAMED, {"text": "2", "label": "1"},
     {"texts": ['said "hello', "bye", "again"], "labels": ["1", "0", "1"], "notes": [NO_NAMES]}),
    ("a.tsv", UNNAMED, {"text": "3"}, {"error": "there is no column '3'; there are '1', '2'"}),
    ("a.tsv", "\ufeffone\n\ufefftwo\n", {"text": "1", "header": False},
     {"texts": ["one", "\ufefftwo"], "labels": [None] * 2}),
    ("a.csv", rows("{t}"), {}, {"texts": TEXTS, "labels": [None] * 8, "notes": [NO_NAMES, "in the column '1'"]}),
    ("a.csv", rows("{t}", "What people wrote to us last year?"), {},
     {"texts": TEXTS, "labels": [None] * 8, "notes": ["in the column 'What people wrote to us last year?', the only"]}),
    ("a.csv", rows("{k},{t}", "v1,v2"), {}, {"notes": [LONG.format("v2"), FEW.format("v1")]}),
    ("a.csv", rows("{k},{t},,,", "v1,v2,,,"), {}, {"notes": [LONG.format("v2"), FEW.format("v1")]}),
    *(("a.csv", rows("{k},{t}", f"{name},text"), {}, {"notes": [TAKEN.format(name)]})
      for name in ("Label", "LABELS", "Class", "CATEGORY", "Target", "Label ")),
    ("a.csv", rows("{k},{t}", "label,TEXT"), {}, {}),
    ("a.csv", rows("i{n},{t},{k},Train", "ID,TEXT,label,Split"), {},
     {"ids": [f"i{n}" for n in range(8)], "splits": ["train"] * 8}),
    ("a.csv", rows("{k},{t}", "Sentiment, Message"), {"text": "message", "label": "sentiment"}, {}),
    ("a.csv", rows("{k},{t}", "Sentiment,Message"), {"text": "message"}, {"notes": [FEW.format("Sentiment")]}),
    ("a.csv", rows("{k},{t}", "Category,Message"), {"text": "Message"}, {"notes": [TAKEN.format("Category")]}),
    ("a.csv", rows("{k},{t}", "Sentiment,text"), {"label": "mood"},
     {"error": "no column 'mood'; there are 'Sentiment', 'text'"}),
    ("a.csv", rows("{n},{k},{t}", "review_id,rating,text"), {},
     {"notes": [FEW.format("rating"), UNUSED.format("review_id")]}),
    ("a.csv", rows("{n},{k},{t}", "review_id,rating,text"), {"label": "rating"},
     {"notes": [UNUSED.format("review_id")]}),
    ("a.csv", rows("{t},x{n},{k}", "text,who,label"), {}, {"notes": [UNUSED.format("who")]}),
    ("frame", {"shop": SHOPS, "text": TEXTS, "mood": KINDS}, {}, {"labels": [None] * 8, "notes": [
        "If 'shop' or 'mood' holds the labels, choose it, as in label='shop'",
        "The columns 'shop', 'mood' are not used."]}),
    ("frame", {**TEXTED, "Category": SHOPS}, {},
     {"notes": [TAKEN.format("label")[:-1] + ", such as 'Category'.", UNUSED.format("Category")]}),
    ("frame", {"text": TEXTS, "label": ["all"] * 8, "mood": KINDS}, {},
     {"labels": ["all"] * 8, "notes": ["All items have the same label. " + PROPOSED.format("mood",
     "mood"), UNUSED.format("mood")]}),
    ("a.jsonl", LATE, {}, {"labels": [None, *KINDS[1:]], "notes": [TAKEN.format("Label")]}),
    ("a.csv", rows("{k},{t}", "Category,Message").replace(b" ", b""), {"label": "Category"},
     {"error": "column 'Message' holds text.*by text='Message'"}),
    ("a.csv", rows("{k},{n}", "Category,n"), {"modality": "records"},
     {"error": "named text, body, .* Choose by text="}),
    ("a.csv", rows("{t},{t}{n}", "one,two"), {},
     {"error": "columns 'one', 'two' hold text.*text='one', or text='one,two' for"}),
    ("a.csv", rows("{t},{t}{n},{k}", "one,two,k"), {}, {"error": "text='one,two' for all joined, with label='k'"}),
    ("a.csv", rows("{t},{n},{k}", "title,text,label"), {"text": "Title,text"},
     {"texts": [f"{t}\n{n}" for n, t in enumerate(TEXTS)]}),
    ("a.csv", REVIEWS, {"text": ["title", "body"], "label": "stars"},
     {"ids": ["7", "9"], "texts": ["Good\nI liked it", "Bad\n"], "labels": ["5", "1"], "splits": ["train", "test"]}),
    ("a.csv", REVIEWS, {},
     {"texts": ["I liked it", ""], "labels": [None] * 2, "notes": ["The columns 'title', 'stars' are not"]}),
    ("a.csv", REVIEWS, {"id": "title", "labels": {"Good": "x", "Bad": "y"}},
     {"ids": ["Good", "Bad"], "labels": ["x", "y"],
     "notes": ["The columns 'id', 'stars' are not used."]}),
    ("a.csv", REVIEWS, {"text": "txt"}, {"error": "there is no column 'txt'; there are 'id', 'title', 'body'"}),
    # Separators, quotes and encodings
    *(("a.csv", rows(f"{{k}}{sep}{{t}}", f"label{sep}text"), {}, {}) for sep in ";|\t"),
    ("a.csv", rows("{k}#{t}", "label#text"), {"sep": "#"}, {}),
    ("a.tsv", rows('"{k}"\t"{t}"', '"label"\t"text"'), {}, {}),
    ("a.csv", "text;label\n'a;b';x\n", {"modality": "records", "sep": ";", "quote": "'"},
     {"texts": ["a;b"], "labels": ["x"]}),
    ("a.csv", 'text\n"' + "word " * 100_000 + '"\n', {}, {"texts": ["word " * 100_000], "labels": [None]}),
    ("a.csv", b"\xef\xbb\xbf" + rows("{k},{t}\r", "label,text\r"), {}, {}),
    ("a.csv", rows("{k},{t} é", "label,text", "cp1252"), {}, {"notes": [GUESSED.format("cp1252")]}),
    ("a.csv", rows("{k};{t} für", "Kategorie;Nachricht", "latin-1"), {},
     {"notes": [GUESSED.format("cp1252"), LONG.format("Nachricht"), FEW.format("Kategorie")]}),
    ("a.csv", rows("{k},{t} é", "label,text", "cp1252"), {"encoding": "latin-1"}, {}),
    ("a.csv", rows("{k},{t} é", "label,text", "utf-16"), {}, {}),
    ("a.csv", rows("{k},{t} é", "label,text", "utf-16-le"), {}, {"notes": [GUESSED.format("utf-16-le")]}),
    ("a.csv", rows("{k},{t}", "label,text", "utf-16-be"), {}, {"notes": [GUESSED.format("utf-16-be")]}),
    ("a.csv", b"text,label\ncaf\xe9,x\n\nfine,y\n", {},
     {"texts": ["café", "fine"], "labels": ["x", "y"], "notes": [GUESSED.format("cp1252")]}),
    ("a.csv", b"text,label\ncaf\xe9,x\n\nfine,y\n", {"on_error": "skip", "encoding": "utf-8"},
     {"texts": ["fine"], "labels": ["y"], "ids": ["a.csv:2"], "skipped": [("a.csv:1", "its byte 0xe9 is not utf-8")]}),
    ("a.csv", b'text,label\ncaf\xe9,x\n\n"a ""b""\nc",x\n"d,y\n', {"on_error": "skip", "encoding": "utf-8"},
     {"texts": ['a "b"\nc'], "labels": ["x"], "skipped": [("a.csv:1", "its byte"), ("a.csv:3",
     "that opens in line 6 is not closed.")]}),
    *(("a.csv", content, {},
     {"error": f"a.csv.*the quote \" that opens in line {line} {what}. Close it, or write \"\""})
      for content, line, what in (
        ('text,label\ngood,x\n"open,y\nnext,x\nlast,y\n', 3, "is not closed up to the end, line 5"),
        ('"te\nxt",text,label\na,good,x\na,bad,"y\n', 4, "is not closed"),
        ('text,label\n"fi""ne\nhere",x\n"open,y\nnext,"x"\n', 4, "closes within a field, in line 5"),
        ('a,b,label\n1,2,x\n2,3,"y\n4,5,z\n', 3, "is not closed up to the end, line 4"),
        ('a,b\n1,2\n3,"4\n5,6\n', 3, "is not closed up to the end, line 4"),
    )),
    ("a.csv", 'text,label\ngood,x\n"open,y\nnext,x\n', {"on_error": "skip"},
     {"error": "cannot be used: the quote \" that opens"}),
    *(("a.tsv", f"text\tlabel\n{one}\tx\n{two}\ty\n".encode(encoding), {},
      {"texts": [one, two], "labels": ["x", "y"], "notes": [GUESSED.format(encoding)]})
      for encoding, one, two in SENTENCES),
    # The same in every format
    *((f"a.{end}", content, {}, {"labels": [None if k is None else str(k) for k in LABELS], "X": [[k] for k in ONES]})
      for end, content in formats(a=ONES, label=LABELS)),
    *((f"a.{end}", content, {"id": "a", "label": "b"}, {"labels": ["4.5", *["5"] * 39], "ids": list(map(str, IDS))})
      for end, content in formats(a=IDS, b=[4.5, *[5.0] * 39], c=ONES)),
    *((f"a.{end}", content, {}, {"labels": TRUTHS, "X": [[k] for k in ONES],
       "notes": ["Column 'b', the only one with t"]}) for end, content in formats(a=ONES, b=[k > 0 for k in Y])),
    *((f"a.{end}", content, {}, {"labels": TRUTHS, "X": [[k, k % 2] for k in Y]})
      for end, content in formats(a=Y, b=[k % 2 == 1 for k in Y], label=[k > 0 for k in Y])),
    # Other formats, and files that are not what their ending says
    ("a.txt", rows("{k}\t{t}", "label\ttext"), {"modality": "records"}, {}),
    ("a.txt", rows("{t}"), {"modality": "records"}, {"texts": TEXTS, "labels": [None] * 8}),
    ("a.txt", rows("{t}"), {},
     {"labels": [None], "notes": ["a.txt was read as one text. If its rows or lines are texts: modality='records'"]}),
    ("a.txt", "PKW\u2028kaputt\r\n{laughs} and\ff\rend\n", {"modality": "records"},
     {"texts": ["PKW\u2028kaputt", "{laughs} and\ff", "end"], "labels": [None] * 3}),
    ("a.txt", "{laughs} that\nends\n", {"modality": "records"},
     {"texts": ["{laughs} that", "ends"], "labels": [None] * 2}),
    ("SMSSpamCollection", rows("{k}\t{t}"), {"modality": "records"},
     {"notes": [NO_NAMES, LONG.format("2"), FEW.format("1")]}),
    ("a.dat", rows('{{"text": "{t}", "label": "{k}"}}'), {"modality": "records"}, {}),
    ("a.dat", json.dumps([{"text": "x"}]), {"modality": "records"},
     {"error": "it is a list of JSON objects. Write one object"}),
    ("a.jsonl", rows('{{"body": "{t}", "Sentiment": "{k}"}}'), {}, {"notes": [FEW.format("Sentiment")]}),
    ("a.jsonl", rows('{{"text": "{t}", "label": "{k}", "meta": {{"n": {n}}}, "n": {n}}}'), {},
     {"notes": ["The columns 'n', 'meta' are not used."]}),
    ("frame", {**TEXTED, "meta": [{"n": n} for n in range(8)]}, {}, {"notes": [UNUSED.format("meta")]}),
    *((name, content, {}, {"error": f"column '{role}' holds .*, which are not read. Choose another one by {role}="})
      for role in ("id", "label", "split") for name, content in (
        ("frame", {"text": TEXTS, role: [{"n": n} for n in range(8)]}),
        ("a.jsonl", rows('{{"text": "{t}", "x": {{"n": 1}}}}').replace(b"x", role.encode())),
        ("a.jsonl", rows('{{"url": "{n}.txt", "x": {{"n": 1}}}}').replace(b"x\"", role.encode() + b"\"")),
    )),
    ("frame", {**TEXTED, "id": [{"n": n} for n in range(8)], "key": IDS[:8]}, {"id": "key"},
     {"ids": list(map(str, IDS[:8])), "notes": [UNUSED.format("id")]}),
    ("a.jsonl", '{"text": ""}', {}, {"texts": [""], "labels": [None]}),
    ("a.jsonl", '{"text": ""}', {"sep": ";"}, {"error": "sep= is for CSV and TSV files, but a.jsonl is none"}),
    ("a.jsonl", rows('{{"text": {{"x": "{t}"}}}}'), {"text": "text"},
     {"error": "column 'text' holds objects or lists of lists"}),
    ("a.xlsx", frame("xlsx", **TEXTED), {}, {}),
    ("a.parquet", frame("parquet", **TEXTED), {}, {}),
    ("frame", TEXTED, {}, {}),
    ("frame", {"CLASS": KINDS, "Text": TEXTS}, {}, {"notes": [TAKEN.format("CLASS")]}),
    ("frame", {"v1": KINDS, "v2": TEXTS}, {}, {"notes": [LONG.format("v2"), FEW.format("v1")]}),
    ("frame", {"n": range(8), "v2": TEXTS, "v1": KINDS}, {"text": "V2", "label": "V1"},
     {"notes": [UNUSED.format("n")]}),
    ("frame", {"a": ONES, "b": TWOS, "TARGET": KIND}, {}, {"labels": KIND, "notes": [TAKEN.format("TARGET")]}),
    ("a.csv.gz", gzip.compress(rows("{k},{t}", "label,text")), {}, {}),
    ("a.tsv.zst", pa.compress(rows("{k}\t{t}", "label\ttext"), "zstd", asbytes=True), {}, {}),
    ("a.jsonl.gz", gzip.compress(rows('{{"text": "{t}", "label": "{k}"}}')), {}, {}),
    ("a.zip", packed(**{"a.csv": rows("{k},{t}", "label,text")}), {}, {}),
    ("a.xls", "nothing", {"modality": "table"}, {"error": "is not a table. Tables are files that end in .csv"}),
    ("a.xls", "nothing", {}, {"error": "Save it as .xlsx"}),
    ("a.json", "{}", {}, {"error": "one object per line"}),
    ("a.pdf", "nothing", {}, {"error": "to .txt"}),
    ("a.csv", rows("{k},{t}", "label,text"), {"sheet": "x"},
     {"error": "sheet= is for Excel and SQLite files, but a.csv is none"}),
    # Rows that cannot be used, and files
    *((name, content, {}, {"error": f"(?s){part}.*on_error='skip'"}) for name, content, part in BAD),
    *((name, content, {"on_error": "skip"},
     {"texts": ["good"], "skipped": [part.split(": ", 1)]}) for name, content, part in BAD),
    ("a.csv", "", {"modality": "records"}, {"error": "a.csv cannot be used: it is empty"}),
    ("a.csv", "text\n", {}, {"error": "holds no records: a.csv has no line"}),
    ("a.csv", "text,text\na,b\n", {}, {"error": "has columns of the same name: 'text', 'text'"}),
    ("a.csv", b"text\n\xe9\n", {"on_error": "skip", "encoding": "utf-8"}, {"error": "a.csv cannot be read"}),
    ("a.csv", "id,text\n1,a\n1,b\n", {}, {"error": "has 2 items with the id '1', .* Ids must differ"}),
    ("a.csv", "text\na\n", {"encoding": "utf-17"}, {"error": "encoding='utf-17'"}),
    ("a.csv", "text\na\n", {"sep": ""}, {"error": "sep='' is not one character. Give one such as ';'"}),
    ("a.csv", "text\na\n", {"quote": "''"}, {"error": "quote must be one character"}),
    # Tables of numbers
    ("a.csv", table(**{"": IDS, "a": ONES, "b": TWOS, "label": Y}), {},
     {"ids": list(map(str, IDS)), "names": ["a", "b"], "labels": list(map(str, Y)),
     "notes": ["Column 'Unnamed: 0' is the id of rows"]}),
    *(("a.csv", table(**{name: IDS, "a": ONES, "b": TWOS, "label": Y}), {},
       {"ids": list(map(str, IDS)), "names": ["a", "b"],
       "notes": [f"Column {name!r} is the id of rows and is not used as a word; keep="]})
      for name in ("Unnamed: 0", "index", "row_id")),
    ("a.csv", table(index=IDS, a=ONES, label=Y), {"keep": "index"}, {"names": ["index", "a"]}),
    ("a.csv", table(a=ONES, label=Y), {"keep": "nix"},
     {"error": "there is no column 'nix' to keep; there are 'a', 'label'"}),
    ("a.csv", table(index=Y, a=ONES, label=Y), {}, {"names": ["index", "a"], "notes": ["it tells the class"]}),
    ("a.csv", table(**{"": range(40), "id": IDS, "a": TWOS, "label": Y}), {},
     {"names": ["a"], "ids": list(map(str, IDS)), "notes": ["Column 'Unnamed: 0' only numbers the rows"]}),
    ("a.csv", table(id=[k // 2 for k in IDS], a=ONES, label=Y), {},
     {"names": ["a"], "ids": [str(k) for k in range(40)],
     "notes": ["Column 'id' has equal values, so rows are named by their"]}),
    ("a.csv", table(id=[k // 2 for k in IDS], a=ONES, label=Y), {"keep": "id"}, {"names": ["id", "a"]}),
    ("a.csv", table(Class=ONES, b=TWOS, target=Y), {"label": "target"}, {"names": ["Class", "b"]}),
    ("a.csv", table(ID=ONES, Label=TWOS, label=Y, id=IDS), {},
     {"names": ["ID", "Label"], "ids": list(map(str, IDS)), "labels": list(map(str, Y))}),
    *(("a.csv", table(a=ONES, b=TWOS, **{name: Y}), {}, {"labels": list(map(str, Y)), "notes": [TAKEN.format(name)]})
      for name in ("Class", "TARGET", "Label ", "category")),
    *(("a.csv", table(a=ONES, b=TWOS, **{name: Y}), {}, {"labels": [None] * 40, "notes": [PROPOSED.format(name, name)]})
      for name in ("digit", "group", "iris_species", "y", "rating")),
    *(("a.csv", table(a=ONES, b=TWOS, group=values), {},
     {"labels": [None] * 40, "notes": []}) for values in (IDS, FRACTIONS)),
    ("a.csv", table(a=ONES, b=TWOS, c=ONES), {}, {"labels": [None] * 40, "notes": []}),
    ("a.csv", table(a=ONES, type=[k % 2 for k in IDS], b=TWOS, group=Y), {},
     {"labels": [None] * 40, "notes": ["If 'type' or 'group' holds the labels, choose it, as in label='type'"]}),
    ("a.csv", table(a=ONES, cultivar=KIND), {},
     {"labels": KIND, "notes": ["'cultivar', the only one with text, has 2 values"]}),
    ("a.parquet", frame("parquet", a=ONES, cultivar=KIND), {},
     {"labels": KIND, "notes": ["'cultivar', the only one with text"]}),
    ("a.csv", table(a=ONES, sex=KIND, group=[k % 2 for k in IDS]), {},
     {"labels": KIND, "notes": ["'sex', the only one", PROPOSED.format("group", "group")]}),
    ("a.csv", table(a=ONES, vineyard=[f"wine {k}" for k in IDS]), {}, {"error": "column 'vineyard' holds text"}),
    ("a.csv", table(a=ONES, kind=KIND, place=KIND), {}, {"error": "columns 'kind', 'place' hold text"}),
    ("a.csv", table(date=[f"2020-01-{k % 28 + 1:02}" for k in IDS], a=ONES, label=Y), {},
     {"error": "column 'date' holds text"}),
    ("a.csv", table(a=ONES, kind=[5 - k for k in Y], same=[1] * 40, label=KIND), {},
     {"labels": KIND, "notes": ["Column 'kind' has another value for each label, so it tells the class."]}),
    ("a.csv", 'name,paws,kind,part\n"x, y",4,cat,train\nz,2,,test\n', {"label": "kind", "id": "name", "split": "part"},
     {"ids": ["x, y", "z"], "labels": ["cat", None], "splits": ["train", "test"], "X": [[4], [2]]}),
    ("a.csv", "1,2\n3,4\n", {}, {"X": [[1, 2], [3, 4]], "notes": [NO_NAMES]}),
    ("a.csv", "1,1,2\n3,4,5\n", {}, {"X": [[1, 1, 2], [3, 4, 5]], "notes": [NO_NAMES]}),
    ("a.csv", "0,5;1,5\n2,5;3\n4;5,5\n", {},
     {"X": [[0.5, 1.5], [2.5, 3.0], [4.0, 5.5]], "notes": [NO_NAMES, "with decimal commas"]}),
    ("a.tsv", "0,5\t1,5\n2,5\t3\n", {},
     {"X": [[0.5, 1.5], [2.5, 3.0]], "notes": [NO_NAMES, "decimal commas: 1,5 is one and a half."]}),
    ("a.csv", "x;y\n1.000,5;2\n3,5;2\n", {}, {"error": "row 1, column 'x' is '1.000,5', not a number"}),
    ("a.csv", "a b c\n1 2 3\n4 5 6\n", {}, {"error": "it has one column, 'a b c'. If spaces divide it: sep='space'"}),
    ("a.csv", "a b c\n1 2 3\n4 5 6\n", {"sep": "space"}, {"X": [[1, 2, 3], [4, 5, 6]]}),
    *(("a.csv", "a,b,a\n3,4,5\n", {"modality": m},
     {"error": "it has columns of the same name: 'a', 'b', 'a'"}) for m in ("auto", "table")),
    ("a.jsonl", rows('{{"a": {n}, "b": 1.5, "label": "{k}"}}'), {}, {"modality": "table"}),
    ("n.csv", rows("{n},1{n},{k}", "a,b,label"), {}, {"modality": "table"}),
    ("n.csv", rows("{n}.5,{n}"), {}, {"modality": "table", "labels": [None] * 8, "notes": [NO_NAMES]}),
    ("n.csv", rows("{n},NA,{k}", "a,b,label"), {"missing": "zero"},
     {"modality": "table", "notes": ["8 numbers are missing"]}),
    ("n.csv", rows("{n},{n}{n},{k}", "a,b,label").replace(b"33", b"?"), {"missing": "median"},
     {"modality": "table",
     "notes": ["1 number is missing, in 1 row and the column 'b': set to the median of the column."]}),
    ("n.csv", rows("{n},{n}{n},{k}", "a,b,label").replace(b"77", b""), {"missing": "drop"},
     {"modality": "table", "labels": KINDS[:7], "notes": ["these rows were left out."]}),
    *(("a.csv", content, options, {"error": error}) for content, options, error in (
        (rows("{n},,{k}", "a,b,label"), {},
         "8 numbers are missing, in 8 rows and the column 'b'; the first is in row 1"),
        (rows("{n},,{k}", "a,b,label"), {"missing": "median"}, "the columns 'b' have no numbers"),
        (rows("{n},1,{k}", "a,b,label"), {"missing": "mean"}, "Unknown missing: 'mean'"),
        (rows("{n},word{n},other{n}", "a,b,c"), {}, "columns 'b', 'c' hold text, but the words of a table"),
        (rows("{n},{k}", "a,label"), {"label": "x" * 99}, r"there is no column 'x{37}\.\.\.'"),
        ("a,b\n1,nan\n", {},
         "1 number is missing, in 1 row and the column 'b'; the first is in row 1, .*missing='median'"),
        ("a,b\n1,x\n", {}, "column 'b' holds text. If it is the label, choose it by label='b'; .*by text='b'"),
        ("a,b\ny,x\n", {}, "columns 'a', 'b' hold text, .* by label=, id= and split="),
        ("a,b\n1,2\n3\n", {}, "cannot be read"),
        ("a,b\n", {}, "it has no rows, only names of columns"),
        ("", {"modality": "table"}, "it is empty"),
        ("label\nx\n", {}, "it has 1 row and 0 columns of numbers"),
        ("a,b\n1,2\n", {"label": "c"}, "there is no column 'c'; there are 'a', 'b'"),
        ("id,b\n1,2\n1,3\n", {"id": "id"}, "has 2 items with the id '1'"),
        ("a,b\n1,2\n", {"data": "a"}, "data= is the name of an array in an .npz file, but this is .csv"),
    )),
    ("a.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n9 9 1.0\n", {},
     {"error": "not a Matrix Market file"}),
    ("a.mtx", "nothing", {}, {"error": "not a Matrix Market file, or damaged"}),
    ("a.mtx", "nothing", {"id": "x"},
     {"error": "id= is for columns of CSV, Excel, Parquet, SQLite and .h5ad files, but this is .mtx"}),
    ("a.svmlight", "1 x:y\n", {}, {"error": "not an svmlight file, or damaged"}),
    ("a.parquet", "nothing", {}, {"error": "not a Parquet file, or damaged"}),
    ("a.parquet", frame("parquet", a=[1.0], title=["x"]), {},
     {"error": "column 'title' holds text. If it is the label, choose it by"}),
    ("a.parquet", frame("parquet", a=[1.0, None]), {},
     {"error": "missing, in 1 row and the column 'a'; the first is in row 2"}),
    ("a.npz", "nothing", {}, {"error": "is damaged or not an archive"}),
    # Folders and archives
    ("posts", folder("{t}"), {}, {"labels": sorted(KINDS)}),
    ("posts", folder("{t} né", encoding="cp1252"), {},
     {"labels": sorted(KINDS), "notes": ["read as cp1252, a guess by some of them"]}),
    ("posts", folder("{t}", ""), {}, {"labels": sorted(KINDS)}),
    ("posts", folder("{t}", ".log"), {},
     {"error": "its 8 files are: 8 .log. They look like texts, which extensions='.log' opens."}),
    ("posts", folder("{t}", ".log"), {"extensions": ".log"}, {"labels": sorted(KINDS)}),
    ("posts", {f"train/{k}": v for k, v in folder("{t}").items()} | {"test/ham/9.txt": "ok then"}, {},
     {"labels": ["ham", *sorted(KINDS)], "splits": ["test", *["train"] * 8]}),
    ("reviews", MOODS, {}, {"labels": (["books", "books", "dvd", "dvd"] + ["books"] * 4 + ["dvd"] * 4),
     "ids": [f"{name}:{i}" for name in sorted(MOODS) for i in range(1 + name.startswith("train"))],
     "splits": ["test"] * 4 + ["train"] * 8}),
    ("posts", {"a.jsonl": '{"text": "a", "label": ["x", "y"]}', "b.jsonl": '{"text": "b", "label": "x"}'}, {},
     {"texts": ["a", "b"], "labels": ["x, y", "x"]}),
    ("table", {"1.parquet": frame("parquet", a=ONES, label=KIND), "2.parquet": frame("parquet", a=[1], label=["x"])},
     {}, {"labels": [*KIND, "x"], "names": ["a"]}),
    ("table", {"1.parquet": frame("parquet", a=ONES, label=Y), "2.parquet": frame("parquet", a=[1], label=["x"])},
     {}, {"error": "its files have other types in the same column: .*label.* int64"}),
    ("photos", PICTURES, {}, {"modality": "images", "labels": sorted(KINDS)}),
    ("photos", PICTURES | {"README.txt": "About.", "notes.csv": "a,b\n1,2\n"}, {},
     {"modality": "images", "labels": sorted(KINDS)}),
    ("nothing", {}, {}, {"error": "holds no images, texts, records or videos; it is empty. Give"}),
    ("nothing", {".hidden.txt": "x"}, {}, {"error": "it is empty \\(hidden files do not count\\)"}),
    ("binary", {str(k): bytes(range(256)) for k in range(9)}, {},
     {"error": "holds no images, texts, records or videos; its 9 files"}),
    ("a.zip", packed(**{"inner.zip": packed(a="x")}), {},
     {"error": "its only file is inner.zip. Archives in archives are not read"}),
]  # fmt: skip


def made(place, name, content):
    """Write the files of a scene; gives what is opened."""
    if name == "frame":
        return content
    if isinstance(content, dict):
        (place / name).mkdir()
    for path, one in content.items() if isinstance(content, dict) else [("", content)]:
        (place / name / path).parent.mkdir(parents=True, exist_ok=True)
        (place / name / path).write_bytes(one if isinstance(one, bytes) else one.encode())
    return place / name


@pytest.mark.filterwarnings("ignore::bagwise.sources.SkippedItemsWarning")
@pytest.mark.parametrize(("name", "content", "options", "expected"), SCENES)
def test_what_is_made_of_files(tmp_path, name, content, options, expected):
    source = made(tmp_path, name, content)
    if "error" in expected:
        with pytest.raises(BagwiseError, match=expected["error"]):
            open_collection(source, **options)
        return
    found = open_collection(source, **options)
    told = {
        "ids": found.ids,
        "labels": [", ".join(item.labels) or None for item in found],
        "splits": list(found.splits),
        "names": found.feature_names,
        "modality": found.modality,
    }
    if "texts" in expected or (found.modality == "texts" and len(found) == 8):
        read = [text for _, text in found.load()]
        told["texts"] = read
        assert "texts" in expected or all(any(text in one for one in read) for text in TEXTS)
    if "X" in expected:
        told["X"] = found.X.tolist()
    table_of_texts = not {"labels", "names", "ids", "X", "skipped", "texts"} & expected.keys()
    wanted = {"labels": KINDS} if table_of_texts else {}
    wanted |= {key: value for key, value in expected.items() if key not in ("notes", "skipped")}
    assert {key: told[key] for key in wanted} == wanted
    notes = expected.get("notes", [])
    assert all(note in " ".join(found.notes) for note in notes), found.notes
    if "notes" in expected or table_of_texts:
        assert len(found.notes) == len(notes), found.notes
    assert [id for id, _ in expected.get("skipped", [])] == [one.id for one in found.skipped]
    assert all(part in one.reason for (_, part), one in zip(expected.get("skipped", []), found.skipped, strict=True))


def test_a_file_that_changed_is_read_again(tmp_path):
    path = made(tmp_path, "a.csv", rows("{k},{t}", "label,text"))
    with pytest.raises(BagwiseError, match="labell"):
        open_collection(path, labell="label")
    made(tmp_path, "a.csv", "label,text\nham,this is new\n")
    assert [text for _, text in open_collection(path, text="text").load()] == ["this is new"]


def test_a_table_of_a_data_base_is_named_behind_the_file(tmp_path):

    with sqlite3.connect(tmp_path / "data.sqlite") as base:
        base.execute("CREATE TABLE sms (text TEXT, label TEXT)")
        base.execute("CREATE TABLE other (n INTEGER)")
        base.executemany("INSERT INTO sms VALUES (?, ?)", ROWS)
    base.close()
    for source, options in ((f"{tmp_path}/data.sqlite::sms", {}), (tmp_path / "data.sqlite", {"sheet": "sms"})):
        found = open_collection(source, **options)
        assert [text for _, text in found.load()] == [text for text, _ in ROWS]
        assert found.labels.tolist() == KINDS
    with pytest.raises(BagwiseError, match="'gone' is none of its tables; there are 'sms', 'other'"):
        open_collection(f"{tmp_path}/data.sqlite::gone")


def test_texts_of_a_folder_in_another_encoding(tmp_path):
    for number, (text, label) in enumerate(texts(n_each=3)):
        path = tmp_path / "a" / label / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{text} né".encode("utf-8" if number == 0 else "cp1252"))
    found = open_collection(tmp_path / "a")
    assert all(text.endswith(" né") for _, text in found.load())
    assert found.notes == (
        "Texts that are not UTF-8 are read as cp1252, a guess by some of them; encoding= chooses another.",
    )


def test_a_fit_stops_if_a_fifth_cannot_be_read_and_goes_on_if_told(tmp_path):
    lines = [json.dumps({"text": text, "label": kind}) for text, kind in ROWS * 3]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, *["{"] * 7]))
    with pytest.raises(BagwiseError, match=r"7 of 31 items could not be read, more than a fifth; .*on_error='skip'"):
        fit_model(tmp_path / "a.jsonl", n_groups=2, folds=0)
    model = fit_model(tmp_path / "a.jsonl", n_groups=2, folds=0, on_error="skip")
    assert model.classes == ("ham", "spam")


def test_measurements_are_no_classes(tmp_path):
    columns = {"text": [text for text, _ in texts(n_each=20)], "target": [k * 0.37 for k in range(60)]}
    with pytest.raises(BagwiseError, match=r"The labels are 60 different numbers, from 0 to 21\.83: measurements, not"):
        fit_model(columns, n_groups=2, folds=0)
    counted = {**columns, "target": [k % 30 for k in range(60)]}
    assert len(fit_model(counted, n_groups=2, folds=0).classes) == 30
