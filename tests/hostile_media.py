"""Files that make libraries of images and videos start programs, open sockets, or read other files."""

# An endless loop in PostScript, which Ghostscript would run.
EPS_LOOP = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n{ } loop\n%%EOF\n"
SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" xmlns:x="http://www.w3.org/1999/xlink" width="9" height="9">'
    b'<image x:href="http://127.0.0.1:9/a.png" width="9" height="9"/></svg>'
)
# The header of a placeable metafile, which Pillow hands to Windows.
WMF = b"\xd7\xcd\xc6\x9a\x00\x00" + bytes(4) + b"\x64\x00\x64\x00\x60\x00" + bytes(6) + b"\x01\x00\x09\x00" + bytes(40)
SDP = (
    b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n"
)


def ffconcat(path):
    """Write a list of other files, as FFmpeg's demuxer concat reads it."""
    return f"ffconcat version 1.0\nfile '{path}'\n".encode()


def playlist(path):
    """Write a playlist of HLS that names a file."""
    return f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:{path}\n#EXT-X-ENDLIST\n".encode()


DASH = (
    b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><AdaptationSet>'
    b'<Representation id="1" bandwidth="1"><BaseURL>http://127.0.0.1:9/v.mp4</BaseURL></Representation>'
    b"</AdaptationSet></Period></MPD>"
)

# What an EPS file with a preview for DOS begins with, and the lists of brands of HEIC.
EPS_BINARY = (
    b"\xc5\xd0\xd3\xc6" + (30).to_bytes(4, "little") + len(EPS_LOOP).to_bytes(4, "little") + bytes(18) + EPS_LOOP
)
EMF = b"\x01\x00\x00\x00\x58\x00\x00\x00" + bytes(32) + b" EMF" + bytes(60)
HEIC = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(40)

IMAGES = {"eps": EPS_LOOP, "binary": EPS_BINARY, "svg": SVG, "wmf": WMF, "emf": EMF, "heic": HEIC}
VIDEOS = {
    "sdp": SDP,
    "ffconcat": ffconcat("/etc/hostname"),
    "hls": playlist("/etc/hostname"),
    "dash": DASH,
}
