"""Collections of images, texts and videos: one file per item, in a folder or an archive."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bagwise._io.storage import Url
from bagwise._utils.checks import check_integer
from bagwise._utils.extras import require
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError, argument, unknown_name
from bagwise.sources.collection import Collection
from bagwise.sources.encodings import MARKS, check_encoding, decode_text, guess_encoding, is_not_utf8
from bagwise.sources.guarded import call_guarded
from bagwise.sources.image_files import (
    DECODING,
    IMAGE_ENDINGS,
    ORIENTATION,
    UNREAD_ENDINGS,
    decoding_bytes,
    open_image,
    to_array,
)
from bagwise.sources.item_tables import to_codes
from bagwise.sources.items import Content, Decoder, Item
from bagwise.sources.limits import Deadline, Limits, as_limits, read_timed, timed
from bagwise.sources.manifests import ManifestFile, open_manifest
from bagwise.sources.places import (
    Listing,
    annotated,
    arrange,
    by_folder,
    chosen_endings,
    ending,
    linked_notes,
    nothing_found,
    with_endings,
)
from bagwise.sources.plain_texts import TEXT_ENDINGS, choose_texts
from bagwise.sources.shards import Shards, open_shards

__all__ = [
    "VIDEO_ENDINGS",
    "ImageDecoder",
    "has_color",
    "images_in_mode",
    "open_images",
    "open_texts",
    "open_videos",
    "resize_by_area",
    "shrunk_size",
]

# Difference between channels from which on a pixel has a colour.
_FAR_FROM_GREY = 16
# JPEG files are decoded at a reduced scale of at least this many times the final size. A reduced image has its last row
# and column in part: with 2, what is shown moves by less than half a pixel of the final image.
_REDUCED = 2
# Texts, and bytes of each, that are looked at for their encoding; the part of lines that is not UTF-8 for a guess.
_SAMPLE, _HEAD, _OTHERS = 50, 1 << 14, 0.2


def collect(
    source: ManifestFile | Shards | Listing,
    modality: str,
    decoder: Decoder,
    choose: Callable[[Mapping[str, Content]], list[str]],
    *,
    accepted: frozenset[str] | None = None,
    labels: Any = "folders",
    splits: Any = "folders",
    limits: Limits | None = None,
) -> Collection:
    """Make a collection of the files of a source that `choose` chooses; `accepted` are their usual endings."""
    limits = limits or Limits()
    if isinstance(source, ManifestFile):
        return open_manifest(source, modality, decoder, labels=labels, splits=splits)
    if isinstance(source, Shards):
        return open_shards(source, modality, decoder, accepted, labels=labels, splits=splits, limits=limits)
    listing = source.without(labels)
    shown = os.fspath(listing)
    chosen = choose(listing)
    if not chosen:
        raise nothing_found(shown, modality, listing, accepted, f"; others by {argument('extensions')}")
    folders, split_of = arrange(chosen)
    table = listing.table(
        chosen,
        to_codes(folders) if by_folder(labels) else None,
        to_codes(split_of) if by_folder(splits) else None,
    )
    others = sorted([*listing.ignored, *(set(listing) - set(chosen))])
    notes = linked_notes(listing)
    tables = [name for name in others if "/" not in name and ending(name) in (".csv", ".tsv", ".xlsx")]
    if by_folder(labels) and len(tables) == 1 and os.path.isdir(shown) and not any(folders):
        beside = argument("labels", os.path.join(shown, tables[0]))
        notes.append(f"Items have no labels, which come from folders. If {tables[0]} holds them: {beside}")
    collection = Collection(
        table, modality, decoder, listing.root, source=shown, ignored=others, notes=notes, limits=limits
    )
    return annotated(collection, labels, splits)


def open_images(
    source: ManifestFile | Shards | Listing,
    *,
    mode: str = "grey",
    labels: Any = "folders",
    splits: Any = "folders",
    extensions: Iterable[str] | str | None = None,
    limits: Limits | None = None,
) -> Collection:
    """Open the images of a folder or an archive, see `open_collection`."""
    require("PIL.Image", "app", "Reading images")
    limits = as_limits(limits)
    decoder = ImageDecoder(check_mode(mode), limits)
    endings = chosen_endings(extensions, IMAGE_ENDINGS)
    options: dict[str, Any] = {"accepted": endings, "labels": labels, "splits": splits, "limits": limits}
    collection = collect(source, "images", decoder, with_endings(endings), **options)
    collection.notes += unread_images(collection.ignored)
    return collection


def unread_images(names: Iterable[str]) -> tuple[str, ...]:
    """Say which files beside the items are images of formats that are not read, and what to do with them."""
    counts = Counter(ending(name) for name in names)
    there = {end: counts[end] for end in sorted(UNREAD_ENDINGS) if counts[end]}
    return tuple(
        f"{n} file{'s' * (n > 1)} {end} {'are images' if n > 1 else 'is an image'} of a format that is not read. "
        f"{UNREAD_ENDINGS[end]}"
        for end, n in there.items()
    )


def check_mode(mode: str) -> str:
    """Check the `mode` parameter of images and videos."""
    if mode not in ("grey", "rgb"):
        raise unknown_name("mode", mode, ("grey", "rgb"))
    return mode


@dataclass(frozen=True)
class ImageDecoder:
    """Decodes images to uint8 by Pillow."""

    mode: str
    limits: Limits = field(default=Limits(), repr=False)  # has no influence on what is decoded

    def decode(self, content: Content, max_side: int | None = None) -> NDArray[np.uint8]:
        """Return the image as an array, shrunk to `max_side`; every failure of Pillow is a `BagwiseError`."""
        deadline = Deadline(self.limits)
        with content.open() as file:
            if not file.read(1):
                raise BagwiseError("the file is empty")
            file.seek(0)
            try:
                with open_image(timed(file, deadline)) as image:
                    return self._pixels(image, max_side, deadline)
            except (BagwiseError, MemoryError):
                raise
            except Exception as error:
                # A damaged file can make a decoder fail in any way: struct.error, SyntaxError, IndexError, ...
                raise BagwiseError(f"it is damaged or not an image: {error or type(error).__name__}") from error

    def _pixels(self, image: Any, max_side: int | None, deadline: Deadline) -> NDArray[np.uint8]:
        width, height = image.size
        self.limits.check("pixels", width * height, f"it has {width} x {height} pixels")
        if max_side is not None and max(image.size) > max_side:
            rows, columns = shrunk_size(height, width, max_side)
            image.draft(None, (_REDUCED * columns, _REDUCED * rows))
        reduced = image.size != (width, height)
        turned = reduced and image.getexif().get(ORIENTATION, 1) > 4
        with DECODING.admit(decoding_bytes(image, self.mode, (width, height)), self.limits, deadline):
            pixels = to_array(image, self.mode, deadline.check)
            # in proportion to the whole image, not to what a reduced scale left of it
            height, width = (width, height) if turned else (height, width)
            height, width = (height, width) if reduced else pixels.shape[:2]
            return resize_by_area(pixels, *shrunk_size(height, width, max_side))


def shrunk_size(height: int, width: int, max_side: int | None) -> tuple[int, int]:
    """Size of an image whose longer side is at most `max_side`: the other in proportion, rounded, at least 1.

    Halves are rounded up. None: images keep their size.

    >>> shrunk_size(3000, 4000, 480), shrunk_size(300, 400, 480), shrunk_size(1, 9000, 480)
    ((360, 480), (300, 400), (1, 480))
    """
    longest = max(height, width)
    if max_side is None or longest <= max_side:
        return height, width
    # in integers: exact for all readers
    rows, columns = ((2 * side * max_side + longest) // (2 * longest) for side in (height, width))
    return max(1, rows), max(1, columns)


def resize_by_area(image: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Shrink an image to a size: each pixel is the mean of the rectangle it covers. Needs ``bagwise[app]``.

    Means of uint8 and uint16 are rounded and keep the type; other integers become float64. An image of this size, or
    without pixels, is returned as it is.
    """
    if image.shape[:2] == (height, width) or not image.size:
        return image
    cv2 = require("cv2", "app", "Shrinking images")
    if image.dtype not in (np.uint8, np.uint16, np.float32, np.float64):
        image = image.astype(np.float64)
    shrunk: NDArray[Any] = cv2.resize(np.ascontiguousarray(image), (width, height), interpolation=cv2.INTER_AREA)
    return shrunk


def images_in_mode(collection: Collection, mode: str) -> Collection:
    """Return a collection whose image files are decoded as grey or RGB; items of other origin stay as they are."""
    if collection.decoder is None:
        items = [replace(item, decoder=_in_mode(item.decoder, mode)) for item in collection]
        return Collection.of(items, collection.modality, collection.source, limits=collection.limits)
    return collection.with_decoder(_in_mode(collection.decoder, mode))


def in_color(item: Item) -> Item:
    """Return an item whose image file is decoded in colour, for people; the model may need no colours."""
    return replace(item, decoder=_in_mode(item.decoder, "rgb"))


def _in_mode(decoder: Any, mode: str) -> Any:
    return replace(decoder, mode=mode) if isinstance(decoder, ImageDecoder) else decoder


def has_color(image: NDArray[Any]) -> bool:
    """Whether more than one pixel in a hundred of an image of uint8 is far from grey.

    Channels that differ by less than 16 of 255 may come from the compression of a grey image.

    >>> has_color(np.full((8, 8, 3), [[200, 100, 0]], np.uint8)), has_color(np.zeros((8, 8, 3), np.uint8))
    (True, False)
    """
    if image.ndim == 2 or not image.size:
        return False
    return bool(np.mean(np.ptp(image, axis=2) >= _FAR_FROM_GREY) > 0.01)


def open_texts(
    source: ManifestFile | Shards | Listing,
    *,
    encoding: str | None = None,
    labels: Any = "folders",
    splits: Any = "folders",
    extensions: Iterable[str] | str | None = None,
    limits: Limits | None = None,
) -> Collection:
    """Open the texts of a folder or an archive, one file a text, see `open_collection`."""
    check_encoding(encoding)
    limits = as_limits(limits)
    endings = chosen_endings(extensions, TEXT_ENDINGS)
    choose = choose_texts if extensions is None else with_endings(endings)
    options: dict[str, Any] = {"accepted": endings, "labels": labels, "splits": splits, "limits": limits}
    collection = collect(source, "texts", TextDecoder(encoding, limits), choose, **options)
    if isinstance(source, Listing) and source.is_file:
        told = f"{next(iter(source))} was read as one text. If its rows or lines are texts"
        collection.notes += (f"{told}: {argument('modality', 'records')}",)
    if encoding is None and not isinstance(getattr(source, "location", None), Url):
        collection = _in_guessed_encoding(collection, limits)
    return collection


def _in_guessed_encoding(collection: Collection, limits: Limits) -> Collection:
    """Return texts whose decoder takes a guessed encoding where they are not UTF-8, and a note, if many are not."""
    heads = []
    for item in collection[:: -(-len(collection) // _SAMPLE) or 1]:
        try:
            with item.content.open() as file:
                head = file.read(_HEAD)
            cuts = range(4 if len(head) == _HEAD else 1)  # the last character may be cut off
            heads.append(next((cut for k in cuts if not is_not_utf8(cut := head[: len(head) - k])), head))
        except (BagwiseError, OSError):
            continue  # told, or raised, when it is read
    guessed = guess_encoding(b"\n".join(one for one in heads if not one.startswith(MARKS)), _OTHERS)
    if guessed is None:
        return collection
    decoded = collection.with_decoder(TextDecoder(None, limits, guessed))
    told = f"Texts that are not UTF-8 are read as {guessed}, a guess by some of them"
    decoded.notes += (f"{told}; {argument('encoding')} chooses another.",)
    return decoded


@dataclass(frozen=True)
class TextDecoder:
    """Decodes a whole file to text: by an encoding, or as UTF-8; what is not UTF-8 by `otherwise`, if there is one."""

    encoding: str | None = None
    limits: Limits = field(default=Limits(), repr=False)
    otherwise: str | None = None

    def decode(self, content: Content) -> str:
        """Return the text."""
        deadline, most = Deadline(self.limits), self.limits.text_bytes
        with content.open() as file:
            read = read_timed(file, deadline, most + 1)
        self.limits.check("text_bytes", len(read), f"it has more than {readable_size(most)}")
        if self.otherwise is not None and not read.startswith(MARKS) and is_not_utf8(read):
            return decode_text(read, self.otherwise)
        return decode_text(read, self.encoding)


# What FFmpeg may open: containers of frames, no lists of other files or addresses. By its names of them.
_CONTAINERS = "avi,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,mpeg,mpegvideo,mpegts,m4v,asf,ogg,flv"
_CONTAINER_NAMES = "AVI, Matroska, WebM, MP4, QuickTime, MPEG, ASF (WMV), Ogg, FLV"
_CONTAINER_OPTIONS = {"format_whitelist": _CONTAINERS, "protocol_whitelist": "none"}
# Memory of the process that decodes a video: of its libraries, and of each pixel of the frames that it holds at a time.
_DECODER_BYTES, _FRAME_BYTES = 1 << 30, 48
VIDEO_ENDINGS = frozenset([".avi", ".mp4", ".m4v", ".mkv", ".mov", ".mpg", ".mpeg", ".webm", ".wmv", ".ogv", ".flv"])


def open_videos(
    source: ManifestFile | Shards | Listing,
    *,
    mode: str = "grey",
    every: int = 1,
    max_frames: int | None = None,
    labels: Any = "folders",
    splits: Any = "folders",
    extensions: Iterable[str] | str | None = None,
    limits: Limits | None = None,
) -> Collection:
    """Open the videos of a folder or an archive, see `open_collection`."""
    require("av", "video", "Reading videos")
    limits = as_limits(limits)
    decoder = VideoDecoder(
        check_mode(mode),
        check_integer(every, "every", 1),
        None if max_frames is None else check_integer(max_frames, "max_frames", 1),
        limits,
    )
    endings = chosen_endings(extensions, VIDEO_ENDINGS)
    options: dict[str, Any] = {"accepted": endings, "labels": labels, "splits": splits, "limits": limits}
    return collect(source, "videos", decoder, with_endings(endings), **options)


@dataclass(frozen=True)
class VideoDecoder:
    """Decodes the first video stream of a file to uint8."""

    mode: str
    every: int = 1
    max_frames: int | None = None
    limits: Limits = field(default=Limits(), repr=False)

    def decode(self, content: Content) -> NDArray[np.uint8]:
        """Return the frames as one array; a guarded process decodes them."""
        with content.open() as file:
            if not file.read(1):
                raise BagwiseError("the file is empty")
        arguments = {"mode": self.mode, "every": self.every, "max_frames": self.max_frames}
        frames: NDArray[np.uint8] = call_guarded(
            "bagwise.sources.media:read_frames",
            content,
            arguments,
            self.limits,
            library="the video library",
            packages=("av",),
            memory=_DECODER_BYTES + _FRAME_BYTES * self.limits.pixels + 2 * self.limits.video_bytes,
        )["frames"]
        return frames


def read_frames(
    file: BinaryIO, limits: Limits, mode: str, every: int, max_frames: int | None
) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Decode the frames of a video that are used."""
    import av

    def check_pixels(shown: Any) -> None:
        width, height = shown.width or 0, shown.height or 0
        limits.check("pixels", width * height, f"its frames have {width} x {height} pixels")

    frames: list[NDArray[np.uint8]] = []
    n_bytes = 0
    try:
        container: Any
        with av.open(file, metadata_errors="replace", container_options=_CONTAINER_OPTIONS) as container:
            if not container.streams.video:
                raise BagwiseError("it holds no video stream")
            stream = container.streams.video[0]
            if stream.codec_context is None:
                raise BagwiseError("its video is of a kind that is not known")
            check_pixels(stream)
            for number, frame in enumerate(container.decode(video=0)):
                if number % every:
                    continue
                check_pixels(frame)
                frames.append(frame.to_ndarray(format="gray" if mode == "grey" else "rgb24"))
                if frames[-1].shape != frames[0].shape:
                    raise BagwiseError(f"frame {number} has shape {frames[-1].shape}, the first has {frames[0].shape}")
                n_bytes += frames[-1].nbytes
                what = f"its first {number + 1} frames take {readable_size(n_bytes)}"
                limits.check("video_bytes", n_bytes, what)
                if len(frames) == max_frames:
                    break
    except av.error.FFmpegError as error:
        raise BagwiseError(
            f"it is damaged or not a video: {error.strerror or error}. Containers that are read: {_CONTAINER_NAMES}."
        ) from error
    if not frames:
        raise BagwiseError("it holds no frame")
    yield "frames", np.stack(frames)
