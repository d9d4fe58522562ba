import io
import os
import pickle
import stat
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from bagwise import BagwiseError, open_collection
from bagwise._utils.threads import cached_once
from bagwise.sources import ItemError, Limits, archives
from bagwise.sources.archives import list_archive

TEXTS = {"train/cat/1.txt": "meow " * 300, "train/dog/2.txt": "woof", "test/dog/3.txt": "", "README.md": "about"}


def make_zip(path, texts, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return path


def make_tar(path, texts, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, text in texts.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


MAKERS = {
    "stored.zip": lambda path, texts: make_zip(path, texts, zipfile.ZIP_STORED),
    "deflated.zip": make_zip,
    "plain.tar": make_tar,
    "small.tar.gz": lambda path, texts: make_tar(path, texts, "w:gz"),
    "small.tbz2": lambda path, texts: make_tar(path, texts, "w:bz2"),
    "small.tar.xz": lambda path, texts: make_tar(path, texts, "w:xz"),
}


@pytest.fixture(params=MAKERS)
def archive(request, tmp_path):
    return MAKERS[request.param](tmp_path / request.param, TEXTS)


def test_an_archive_is_like_its_folder(archive, tmp_path):
    for name, text in TEXTS.items():
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_text(text)
    packed, folder = open_collection(archive), open_collection(tmp_path / "folder")
    assert packed.ids == folder.ids == sorted(set(TEXTS) - {"README.md"})
    assert packed.ignored == folder.ignored == ("README.md",)
    assert packed.labels.tolist() == folder.labels.tolist()
    assert packed.splits == folder.splits
    assert [text for _, text in packed.load()] == [text for _, text in folder.load()]
    assert [item.fingerprint() for item in packed] == [item.fingerprint() for item in folder]
    assert packed[0].source == f"{archive}!{packed.ids[0]}"


def test_threads_and_copies_read_the_same(archive):
    packed = open_collection(archive)
    expected = [packed[i % 3].load() for i in range(300)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda i: packed[i % 3].load(), range(300))) == expected
    copy = pickle.loads(pickle.dumps(packed))
    assert copy == packed
    assert [text for _, text in copy.load()] == expected[:3]
    assert [pickle.loads(pickle.dumps(item)).load() for item in packed] == expected[:3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_do_not_disturb_each_other(archive):
    packed = open_collection(archive)
    expected = [item.load() for item in packed] * 50
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            same = [packed[i % 3].load() for i in range(150)] == expected
            os._exit(0 if same else 1)
        children.append(child)
    assert [packed[i % 3].load() for i in range(150)] == expected
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]


@pytest.mark.parametrize("name", ["../a.txt", "/a.txt", "x/../../a.txt", "C:/a.txt", "..\\a.txt", "\\a.txt"])
@pytest.mark.parametrize("kind", ["deflated.zip", "plain.tar", "small.tar.gz"])
def test_paths_that_lead_out_are_refused(tmp_path, kind, name):
    archive = MAKERS[kind](tmp_path / kind, {"b.txt": "", name: ""})
    with pytest.raises(BagwiseError, match=r"is refused: the path .* leads out of the archive"):
        open_collection(archive)


def test_links_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        link = zipfile.ZipInfo("passwords.txt")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
        with tarfile.open(tmp_path / f"a{ord(kind)}.tar", "w") as archive:
            link = tarfile.TarInfo("passwords.txt")
            link.type, link.linkname = kind, "/etc/passwd"
            archive.addfile(link)
    for path in tmp_path.iterdir():
        with pytest.raises(BagwiseError, match=r"is refused: 'passwords.txt' is (a link|not an ordinary file)"):
            open_collection(path)


@pytest.mark.parametrize("kind", ["deflated.zip", "plain.tar", "small.tar.gz"])
@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(members=2), "limit members is 2. If you trust it, raise the limit by limits=Limits"),
        (Limits(member_bytes=1000), "'train/cat/1.txt' has 1.50 kB, the limit member_bytes is 1.00 kB"),
        (Limits(total_bytes=1501), "the limit total_bytes is 1.50 kB"),
    ],
)
def test_limits(tmp_path, kind, limits, message):
    archive = MAKERS[kind](tmp_path / kind, TEXTS)
    with pytest.raises(BagwiseError, match=message):
        open_collection(archive, limits=limits)


def test_bombs_are_refused(tmp_path):
    zeros = {"a.txt": "0" * 4_000_000}
    for kind in ("deflated.zip", "small.tar.gz", "small.tar.xz"):
        with pytest.raises(BagwiseError, match=r"compressed (more than )?\d+-fold, the limit ratio is 200"):
            open_collection(MAKERS[kind](tmp_path / kind, zeros))
        trusted = open_collection(tmp_path / kind, limits=Limits(ratio=1e6))
        assert trusted[0].load() == zeros["a.txt"]


def test_no_member_gives_more_than_the_directory_says(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a.txt": "0" * 3_000_000})
    content = path.read_bytes()
    true, false = (3_000_000).to_bytes(4, "little"), (100).to_bytes(4, "little")
    assert content.count(true) == 2
    path.write_bytes(content.replace(true, false))
    lying = open_collection(path, limits=Limits())
    with pytest.raises(ItemError, match="size or checksum are not those the archive says"):
        lying[0].load()


def test_damaged_members_are_reported_and_others_read(tmp_path):
    path = MAKERS["stored.zip"](tmp_path / "a.zip", {"a.txt": "aaaa", "b.txt": "bbbb"})
    path.write_bytes(path.read_bytes().replace(b"aaaa", b"aaax"))
    texts = open_collection(path)
    with pytest.raises(ItemError, match=r"Cannot read 'a.txt': its bytes are damaged"):
        texts[0].load()
    assert texts[1].load() == "bbbb"


def test_archives_that_change_are_noticed(tmp_path):
    for kind in ("stored.zip", "plain.tar"):
        path = MAKERS[kind](tmp_path / kind, TEXTS)
        texts = open_collection(path)
        MAKERS[kind](path, {**TEXTS, "train/dog/2.txt": "miaow"})
        with pytest.raises(ItemError, match=r"was changed after it was opened. Open the collection again"):
            texts[0].load()
        assert open_collection(path)[2].load() == "miaow"


@pytest.mark.parametrize("kind", MAKERS)
def test_archives_cut_anywhere_are_refused_or_reported(tmp_path, kind):
    content = MAKERS[kind](tmp_path / kind, TEXTS).read_bytes()
    # a tar archive ends in blocks of zeros that may be missing
    useful = len(content.rstrip(b"\0")) if kind == "plain.tar" else len(content)
    for n in [0, 1, 100, useful // 2, useful - 40, useful - 1]:
        path = tmp_path / f"{n}{kind}"
        path.write_bytes(content[:n])
        with pytest.raises(BagwiseError):
            list(open_collection(path).load())


def test_other_refusals(tmp_path):
    twice = tmp_path / "twice.tar"
    with tarfile.open(twice, "w") as archive:
        for _ in range(2):
            archive.addfile(tarfile.TarInfo("./a.txt"), io.BytesIO())
    with pytest.raises(BagwiseError, match=r"holds 'a.txt' twice"):
        open_collection(twice)
    with pytest.raises(BagwiseError, match=r"'a.txt' is compressed by method 14. Only stored and deflated"):
        open_collection(make_zip(tmp_path / "lzma.zip", {"a.txt": "a"}, zipfile.ZIP_LZMA))
    locked = make_zip(tmp_path / "locked.zip", {"a.txt": "a"})
    content = bytearray(locked.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    locked.write_bytes(bytes(content))
    with pytest.raises(BagwiseError, match=r"'a.txt' is encrypted"):
        open_collection(locked)
    (tmp_path / "not.zip").write_text("no archive")
    with pytest.raises(BagwiseError, match=r"not.zip is damaged or not an archive of the kind its name says"):
        open_collection(tmp_path / "not.zip")


def with_field(path, start, content):
    """Change a field of the second header of a tar archive of small files, and its checksum."""
    archive = bytearray(path.read_bytes())
    header = archive[1024:1536]
    header[start : start + len(content)] = content
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    archive[1024:1536] = header
    path.write_bytes(bytes(archive))
    return path


@pytest.mark.parametrize("size", [-512, -1024, -4096])
@pytest.mark.parametrize("kind", [b"0", b"x", b"L"])
def test_negative_sizes_do_not_go_in_circles(tmp_path, kind, size):
    path = make_tar(tmp_path / "a.tar", {"a.txt": "a", "b.txt": "b"})
    with_field(path, 124, size.to_bytes(12, "big", signed=True))
    with pytest.raises(BagwiseError, match="damaged"):
        open_collection(with_field(path, 156, kind), limits=Limits(members=1000))


def test_sizes_beyond_the_end_are_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"a.txt": "abc"}, zipfile.ZIP_STORED)
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    content[directory + 20 : directory + 28] = (0x7FFFFFFF).to_bytes(4, "little") * 2
    path.write_bytes(bytes(content))
    with pytest.raises(BagwiseError, match=r"'a.txt' should lie beyond its end"):
        open_collection(path, limits=Limits(member_bytes=1 << 40))


def test_what_macos_adds_is_ignored(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"cat/a.txt": "", "__MACOSX/cat/._a.txt": "", "cat/.DS_Store": "", "dog/": ""})
    assert open_collection(path).ids == ["cat/a.txt"]
    assert set(list_archive(path, Limits())) == {"cat/a.txt", "__MACOSX/cat/._a.txt", "cat/.DS_Store"}


def test_dots_in_front_are_nothing(tmp_path):
    path = make_tar(tmp_path / "a.tar", {"./cat/a.txt": "meow"})
    assert open_collection(path).ids == ["cat/a.txt"]


def test_many_compressed_archives_do_not_take_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_unpacked", cached_once(3)(archives._unpacked.__wrapped__))
    for k in range(9):
        make_tar(tmp_path / f"{k}.tar.gz", {f"{name}{k}.txt": f"{name} is {k}" for name in ("a", "b")}, "w:gz")
    texts = open_collection(tmp_path, "texts")
    for item in [*texts, *texts[::-1]]:
        assert item.load() == f"{item.id[-6]} is {item.id[-5]}"
    assert archives._unpacked.cache_info().currsize == 3


def with_attributes(attributes):
    """Make a tar archive of a file, with a PAX header of these bytes."""
    packed = b""
    for name, kind, content in (("header", tarfile.XHDTYPE, attributes), ("a.txt", tarfile.REGTYPE, b"a")):
        info = tarfile.TarInfo(name)
        info.type, info.size = kind, len(content)
        packed += info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)
    return packed + bytes(1024)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (b"1 " * 500_000 + b"=", "the attributes of one of its files cannot be parsed"),
        (b"20 hdrcharset=BINARY\n", "the attributes of one of its files cannot be parsed"),
        (b"22 GNU.sparse.major=1\n", "'a.txt' is not an ordinary file"),
        (b"13 size=5120\n", "it ends before 'a.txt' does"),
        (b"13 size=-512\n", None),
        (b"1000009 comment=" + b"9" * 999_992 + b"\n", None),
    ],
)
def test_attributes_take_no_time_and_lead_nowhere(tmp_path, attributes, message):
    """In some versions, the module tarfile takes hours for the first and the last."""
    path = tmp_path / "a.tar"
    path.write_bytes(with_attributes(attributes))
    if message is None:
        assert open_collection(path)[0].load() == "a"
    else:
        with pytest.raises(BagwiseError, match=message):
            open_collection(path)
