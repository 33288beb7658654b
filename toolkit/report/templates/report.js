(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const [frames, places, layers, rows] = data.shape;
  const [gridHeight, gridWidth] = data.grid;
  const packed = Uint8Array.from(atob(data.bits), (c) => c.charCodeAt(0));
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);
  const state = { clip: 0, layer: -1, row: -1, frame: 0, overlay: false };
  document.documentElement.classList.add("scripted");

  const replayed = (frame, place, layer, row) => {
    const bit = ((frame * places + place) * layers + layer) * rows + row;
    return (packed[bit >> 3] >> (7 - (bit & 7))) & 1;
  };

  // Share of the chosen layers and rows that replayed at each place of a frame, 0 to 1.
  const shares = (frame) => {
    const own = data.rows[state.clip];
    const chosenRows = state.row < 0 ? own : [own[state.row]];
    const chosenLayers = state.layer < 0 ? [...Array(layers).keys()] : [state.layer];
    return Float32Array.from({ length: places }, (_, place) => {
      let count = 0;
      for (const layer of chosenLayers) for (const row of chosenRows) count += replayed(frame, place, layer, row);
      return count / (chosenLayers.length * chosenRows.length);
    });
  };

  // One pixel a place; the style sheet enlarges it without smoothing.
  const paint = (canvas, frame, strength) => {
    canvas.width = gridWidth;
    canvas.height = gridHeight;
    const context = canvas.getContext("2d");
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--replay");
    shares(frame).forEach((share, place) => {
      context.globalAlpha = share * strength;
      if (share > 0) context.fillRect(place % gridWidth, Math.floor(place / gridWidth), 1, 1);
    });
  };

  const tiles = all(".tile").map((tile) => {
    const canvas = document.createElement("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", tile.querySelector("img").alt);
    tile.querySelector("img").replaceWith(canvas);
    tile.addEventListener("click", () => seek(Number(tile.dataset.frame)));
    return { tile, canvas };
  });
  const stage = () => document.querySelector(`.stage[data-clip="${state.clip}"]`);
  const videos = () => all("video", stage());
  const play = byId("play");

  const showFrame = () => {
    byId("seek").value = state.frame;
    byId("frame").textContent = `frame ${state.frame}`;
    tiles.forEach(({ tile }, index) => tile.classList.toggle("now", index === state.frame));
    paint(stage().querySelector(".live"), state.frame, 1);
    const overlay = stage().querySelector(".overlay");
    overlay.hidden = !state.overlay;
    if (state.overlay) paint(overlay, state.frame, 0.6);
  };

  const showMap = () => {
    tiles.forEach(({ canvas }, frame) => paint(canvas, frame, 1));
    all(".cell.hot").forEach((cell) => cell.classList.toggle("chosen", Number(cell.dataset.layer) === state.layer && Number(cell.dataset.frame) === state.frame));
    showFrame();
  };

  // The middle of a frame's time: a border between two frames could round to either.
  const seek = (frame) => {
    pause();
    state.frame = frame;
    videos().forEach((video) => { video.currentTime = (frame + 0.5) / data.rate; });
    showFrame();
  };
  const pause = () => { videos().forEach((video) => video.pause()); play.textContent = "Play"; };
  const start = () => {
    const [first, ...others] = videos();
    if (!first) return;
    others.forEach((video) => { video.currentTime = first.currentTime; });
    Promise.all(videos().map((video) => video.play())).then(() => { play.textContent = "Pause"; }, pause);
  };

  // The first video keeps the time; another that is half a frame off is set to it.
  const follow = () => {
    const [first, ...others] = videos();
    if (first && !first.paused) {
      for (const video of others) {
        if (Math.abs(video.currentTime - first.currentTime) > 0.5 / data.rate) video.currentTime = first.currentTime;
      }
      const frame = Math.min(frames - 1, Math.floor(first.currentTime * data.rate + 0.01));
      if (frame !== state.frame) { state.frame = frame; showFrame(); }
    }
    requestAnimationFrame(follow);
  };

  const controls = {
    clip: (value) => {
      pause();
      state.clip = value;
      all(".per-clip").forEach((part) => { part.hidden = Number(part.dataset.clip) !== value; });
      seek(state.frame);
    },
    layer: (value) => { state.layer = value; },
    row: (value) => { state.row = value; },
  };
  const choose = (name, value) => {
    all(`[data-control="${name}"]`).forEach((select) => { select.value = value; });
    controls[name](value);
    showMap();
  };

  all("[data-control]").forEach((select) => select.addEventListener("change", () => choose(select.dataset.control, Number(select.value))));
  all(".cell.hot").forEach((cell) => cell.addEventListener("click", () => {
    seek(Number(cell.dataset.frame));
    choose("layer", Number(cell.dataset.layer));
  }));
  all("video").forEach((video) => {
    video.controls = false;
    video.addEventListener("error", () => { const picture = video.querySelector("img"); if (picture) video.replaceWith(picture); });
  });
  play.addEventListener("click", () => (videos().some((video) => !video.paused) ? pause() : start()));
  byId("seek").addEventListener("input", (event) => seek(Number(event.target.value)));
  byId("speed").addEventListener("change", (event) => all("video").forEach((video) => { video.playbackRate = Number(event.target.value); }));
  byId("overlay").addEventListener("change", (event) => { state.overlay = event.target.checked; showFrame(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showMap);

  showMap();
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) pause(); else start();
  requestAnimationFrame(follow);
})();
