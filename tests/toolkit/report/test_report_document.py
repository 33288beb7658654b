"""``report.html``: one well-formed file that holds everything and fetches nothing."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
from html.parser import HTMLParser

import av
import numpy as np
import pytest
from PIL import Image

from fastcar.toolkit.errors import OutputError
from fastcar.toolkit.report import replay_map_picture, write_report
from fastcar.toolkit.report.document import report_html
from fastcar.toolkit.settings import AttentionSettings

VOID = {"meta", "input", "img", "br", "link", "hr"}


class Page(HTMLParser):
    """Elements with their attributes, the text by innermost element, and a check that all are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str) -> list[str]:
        return [data for name, data in self.texts if name == tag]


@pytest.fixture(autouse=True)
def small_videos(monkeypatch):
    """Videos of the size of the frames: encoding large ones is most of a report's time, and the same code."""
    monkeypatch.setattr("fastcar.toolkit.report.embed.SHOWN", 16)


def frames_in(uri: str) -> int:
    kind, content = uri.split(";base64,")
    assert kind == "data:video/mp4"
    with av.open(io.BytesIO(base64.b64decode(content))) as container:
        return sum(1 for _ in container.decode(video=0))


def test_holds_both_videos_and_the_flags(make_pair, facts):
    replay, dense = make_pair(frames=4)
    page = Page(report_html(replay, dense, facts))
    videos = page.all("video")
    assert [video["class"] for video in videos] == ["dense", "replay"]
    assert [frames_in(video["src"]) for video in videos] == [4, 4]
    assert videos[0]["src"] != videos[1]["src"]
    data = json.loads(next(text for text in page.text("script") if '"bits"' in text))
    bits = np.unpackbits(np.frombuffer(base64.b64decode(data["bits"]), np.uint8))
    flags = bits[: replay.generation.replay.size].reshape(data["shape"]).astype(bool)
    assert np.array_equal(flags, replay.generation.replay)
    assert data["rows"] == [[0, 1]] and data["grid"] == [2, 4]


def test_tiles_show_the_shares(make_pair, facts):
    replay, dense = make_pair()
    tiles = [image["src"] for image in Page(report_html(replay, dense, facts)).all("img") if "png" in image["src"][:20]]
    assert len(tiles) == 4
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(tiles[2].split(",")[1]))))
    expected = np.rint(255 * replay.generation.replay[2].mean(axis=(1, 2))).reshape(2, 4)
    assert np.array_equal(pixels[..., 3], expected)


def test_fetches_nothing(make_pair, facts):
    text = report_html(*make_pair(), facts)
    for _, attributes in Page(text).elements:
        for name in ("src", "href", "poster", "data", "action", "srcset"):
            assert attributes.get(name, "data:").startswith("data:")
    stripped = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert not re.search(r"https?:|//[a-z]|@import|url\(|fetch\(|XMLHttpRequest|import\(", stripped)


HOSTILE = '<script>alert(1)</script> "quoted" & {{ 7 * 7 }} </title><img src=x onerror=alert(2)>'


def test_shows_any_text_as_text(make_pair, facts):
    replay, dense = make_pair(clips=2, prompts=(HOSTILE, HOSTILE))
    facts = dataclasses.replace(facts, model=HOSTILE, command=HOSTILE, versions={HOSTILE: HOSTILE})
    text = report_html(replay, dense, facts)
    page = Page(text)
    assert len(page.all("script")) == 2, "the page's data and its code"
    assert not any("onerror" in attributes for _, attributes in page.elements)
    assert HOSTILE in "".join(page.text("h1")) and HOSTILE in "".join(page.text("pre"))
    assert "alert(1)</script>" not in text and "alert(1)&lt;/script&gt;" in text


@pytest.mark.parametrize(
    "shape",
    [
        {"frames": 1},
        {"frames": 1, "thresholds": (None,) * 3},
        {"thresholds": (None,) * 3},
        {"thresholds": ()},
        {"thresholds": (None, -2.0, 9.0)},
        {"thresholds": (float("inf"),) * 3},
        {"drift": 0},
        {"size": (6, 8)},
        {"size": (15, 13)},
        {"guided": False, "clips": 3},
        {"layers": 1, "grid": (1, 1)},
        {"frames": 1, "grid": (1, 1)},
    ],
)
def test_every_kind_of_run_has_a_report(make_pair, facts, shape):
    if shape.get("thresholds") == ():
        replay, dense = make_pair(thresholds=(None,) * 3)
        replay = dataclasses.replace(replay, generation=dataclasses.replace(replay.generation, thresholds=()))
    else:
        replay, dense = make_pair(**shape)
    page = Page(report_html(replay, dense, facts))
    assert len(page.all("video")) == 2 * replay.clips
    assert len(page.all("figure")) >= replay.frame_count
    names = {"x", "y", "width", "height", "cx", "cy"}
    numbers = [value for _, attributes in page.elements for name, value in attributes.items() if name in names]
    assert numbers and all(np.isfinite(float(value)) for value in numbers)
    assert all(float(a[k]) >= 0 for a in page.all("rect") for k in ("width", "height"))


def test_a_run_without_a_dense_one(make_pair, facts):
    page = Page(report_html(make_pair()[0], None, facts))
    assert [video["class"] for video in page.all("video")] == ["replay"]
    assert not any("Quality" in text for text in page.text("h2"))


def test_settings_and_threshold_are_shown(make_pair, facts):
    page = Page(report_html(*make_pair(), facts))
    cells = page.text("td")
    sampling, policy = "temperature 0.9, top-k 40, top-p 0.95", "all, at most 2 times in a row"
    assert {"w4a8", sampling, policy, "-1 in every layer"} <= set(cells)
    assert "threshold -1" in page.text("text")
    assert len([line for line in page.all("line") if line["class"] == "threshold"]) == 4  # one, and one a layer


@pytest.mark.parametrize(
    ("attention", "text"),
    [
        (AttentionSettings(), "all positions before"),
        (AttentionSettings(0, 64), "the 64 positions before"),
        (AttentionSettings(4, 64), "the 64 positions before and the first 4 of the clip"),
        (AttentionSettings(0, 64, 1), "the 64 positions before and the same place of the last frame"),
        (
            AttentionSettings(4, 9, 2),
            "the 9 positions before, the same place of the last 2 frames and the first 4 of the clip",
        ),
    ],
)
def test_attention_is_shown(make_pair, facts, attention, text):
    replay, dense = make_pair()
    replay = dataclasses.replace(replay, generation=dataclasses.replace(replay.generation, attention=attention))
    assert text in Page(report_html(replay, dense, facts)).text("td")


def test_is_written_whole_or_not_at_all(make_pair, facts, tmp_path):
    replay, dense = make_pair()
    path = write_report(tmp_path / "report.html", replay, dense, facts)
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(OutputError, match="report.html"):
        write_report(path / "report.html", replay, dense, facts)


@pytest.mark.parametrize(
    "shape",
    [{}, {"frames": 1}, {"clips": 2, "frames": 5}, {"size": (6, 8)}, {"layers": 40}, {"prompts": ("wörld " * 60,)}],
)
def test_picture_shows_both_runs_and_the_map(make_pair, tmp_path, shape):
    replay, dense = make_pair(**shape)
    path = replay_map_picture(tmp_path / "map.png", replay, dense, clip=replay.clips - 1)
    pixels = np.asarray(Image.open(path).convert("RGB"))
    height, width = replay.frames.shape[2:4]
    columns = -(-replay.frame_count // 2)
    scale = max(1, min(1500 // (columns * width), 320 // height))
    left, top = 36 + 150, 36 + 104
    for column in range(columns):
        start = left + column * (width * scale + 12)
        for band, view in enumerate((dense, replay)):
            above = top + band * (height * scale + 12)
            shown = pixels[above : above + height * scale : scale, start : start + width * scale : scale]
            assert np.array_equal(shown, view.frames[-1, 2 * column])
    assert [entry.name for entry in tmp_path.iterdir()] == ["map.png"]


def test_picture_refuses_a_clip_that_is_not_there(make_pair, tmp_path):
    with pytest.raises(ValueError, match="clip 1"):
        replay_map_picture(tmp_path / "map.png", *make_pair(), clip=1)
    assert list(tmp_path.iterdir()) == []
