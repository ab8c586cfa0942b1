// The page of `rawpack view`. What is looked at is in the address, after #: `screen`, `store`, and what each screen adds.
// Text from stores goes into the page as text, never as markup.
"use strict";

const TILES = 120;
const SCREENS = {
  grid: "Samples", training: "What training sees", clips: "Clips", compare: "Side by side", rejects: "Rejects",
  found: "Duplicates and extremes",
};
const $ = (id) => document.getElementById(id);
let stores = [];
let state = {};
let shown = 0;  // counts what was begun to be shown: answers to older questions are dropped

// ------------------------------------------------------------------------------------------------ small things

/** An element with properties, attributes (those with a dash, and `role`) and children; texts are text. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function query(words) {
  return new URLSearchParams(Object.entries(words).filter(([, value]) => value !== "" && value !== undefined)).toString();
}

const inShell = (text) => (/^[\w./:=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** What to do where nobody answers anymore. */
function ended() {
  const state = location.hash.length > 1 ? ` --at ${inShell(location.hash.slice(1))}` : "";
  return stores.length ? `rawpack view has ended. Start it again to see this page: rawpack view ${
    [...new Set(stores.map((store) => inShell(store.path)))].join(" ")}${state}` : "rawpack view has ended.";
}

async function ask(path, words = {}) {
  let answer;
  try { answer = await fetch(`${path}?${query(words)}`); } catch { throw new Error(ended()); }
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

function say(text) {
  $("said").textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { $("said").textContent = ""; }, 4000);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", {value: text});
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(`copied: ${text.length > 60 ? `${text.slice(0, 60)}…` : text}`);
}

/** Text of a store as it is shown: what controls a terminal, or turns the direction of text, is written out. */
const plain = (text) => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
  (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);

const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
const at = () => stores[Number(state.store || 0)] || stores[0];
const number = (name, otherwise) => Number(state[name] ?? otherwise);
const imageOf = (row, words = {}) => `/image?${query({store: state.store || 0, row, v: at().version, ...words})}`;

const whole = (least, most) => (value) => /^\d+$/.test(value) && Number(value) >= least && Number(value) <= most;

/** What the address may say -> whether a store has that. */
const FITS = {
  store: (value) => whole(0, stores.length - 1)(value),
  screen: (value) => value === "sample" || screens().includes(value),
  home: (value) => whole(0, stores.length - 1)(value),
  from: (value) => screens(stores[state.home] || at()).includes(value),
  class: (value) => value === "-1" || (whole(0, 1e9)(value) && at().classes.some(([name], k) => name && k === Number(value))),
  sort: (value) => value === "random" || at().numbers.includes(value),
  row: (value) => whole(0, at().samples - 1)(value),
  other: (value) => whole(0, stores.length - 1)(value) && stores[value] !== at(),
  over: (value) => at().images.includes(value),
  side: whole(64, 512), gain: whole(1, 255), zoom: whole(0, 64), seed: whole(0, Number.MAX_SAFE_INTEGER),
};

/** The state without what does not fit the stores, and that in words. */
function checked(found) {
  const left = [];
  state = found;
  for (const [name, fits] of Object.entries(FITS)) {
    if (state[name] !== undefined && !fits(state[name])) {
      left.push(`${name}=${plain(state[name]).slice(0, 60)}`);
      delete state[name];
    }
  }
  if (state.screen === "sample" && state.row === undefined) delete state.screen;
  if (left.length) history.replaceState(null, "", `#${new URLSearchParams(state)}`);
  return left.length ? `Left out of the address, because ${at().name} does not have it: ${left.join(", ")}` : "";
}

const stateOf = (hash) => Object.fromEntries(new URLSearchParams(hash.slice(1)));

/** Change what is looked at: only what is named. `replace` leaves no entry in the history. */
function go(changes, replace = false) {
  const next = {...stateOf(location.hash), ...changes};
  for (const name of Object.keys(next)) if (next[name] === "" || next[name] === undefined) delete next[name];
  const hash = `#${new URLSearchParams(next)}`;
  if (hash === location.hash) show();
  else if (replace) { history.replaceState(null, "", hash); show(); }
  else location.hash = hash;
}

/** An image that says why it is not there. */
function picture(source, alt) {
  const image = make("img", {alt, loading: "lazy", decoding: "async", src: source});
  image.addEventListener("load", () => {  // pixels of small images are shown as squares
    image.classList.toggle("small", image.naturalWidth < image.clientWidth && image.naturalHeight < image.clientHeight);
  });
  image.addEventListener("error", async () => {
    let said = "it cannot be shown";
    try {
      const answer = await fetch(source);
      if (answer.ok) { image.src = URL.createObjectURL(await answer.blob()); return; }
      said = await answer.text();
    } catch { said = ended(); }
    image.replaceWith(make("span", {className: "broken"}, said));
  }, {once: true});
  return image;
}

function field(name, label, type, value, more = {}) {
  const input = make("input", {type, name, autocomplete: "off", spellcheck: false, ...more, value});
  return make("label", {className: type === "text" ? "wide" : ""}, label, input);
}

function choice(name, label, options, value) {
  const select = make("select", {name});
  for (const [key, text] of options) select.append(make("option", {value: key, selected: key === String(value)}, text));
  return make("label", {}, label, select);
}

const ON = ["boxes", "shuffle"];  // boxes to tick that are ticked unless the address says 0

/** What a form says, as changes of the state. */
function said(form) {
  const found = {};
  for (const input of form.elements) {
    if (input.name) found[input.name] = input.type === "checkbox" ? (input.checked ? "1" : ON.includes(input.name) ? "0" : "") : input.value.trim();
  }
  return found;
}

function form(onSaid, ...children) {
  const element = make("form", {}, ...children);
  element.addEventListener("submit", (event) => { event.preventDefault(); onSaid(said(element)); });
  element.addEventListener("change", () => onSaid(said(element)));
  return element;
}

const failed = (error) => make("p", {className: "error", role: "alert"}, error.message);

// ------------------------------------------------------------------------------------------------ marks

/** Marked samples of a store, in the order in which they were marked: key -> name of the class, "" where it has none. */
const marks = {
  name: () => `marked-${at().digest}`,
  all() {
    try { return new Map(JSON.parse(localStorage.getItem(this.name()) || "[]")); } catch { return new Map(); }
  },
  has(key) { return this.all().has(key); },
  toggle(key, label) {
    const all = this.all();
    const was = all.delete(key);
    if (!was) all.set(key, label || "");
    localStorage.setItem(this.name(), JSON.stringify([...all]));
    this.show();
    return !was;
  },
  /** Keys of those whose class this label would change. */
  changed(label) { return [...this.all()].filter(([, old]) => label && old !== label).map(([key]) => key); },
  show() {
    const marked = this.all().size;
    $("marks").hidden = !marked;
    $("marked").textContent = `${count(marked, "sample")} marked`;
    $("marks-csv").disabled = !this.changed($("marks-label").value.trim()).length;
  },
};

function download(name, text) {
  const link = make("a", {href: URL.createObjectURL(new Blob([text], {type: "text/plain"})), download: name});
  link.click();
  URL.revokeObjectURL(link.href);
}

const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

// ------------------------------------------------------------------------------------------------ grid

const nameOf = (row, store = state.store || 0) => `${store}/${row}`;

function tile(one, open, words = {}) {
  const images = at().images;
  const alt = one.label ? `${one.label}, ${plain(one.key || one.row)}` : plain(one.key || `sample ${one.row}`);
  const button = make("button", {type: "button", className: "tile", title: `${plain(one.key)}\nrow ${one.row}`});
  button.dataset.key = words.store === undefined ? one.key : "";
  button.dataset.row = one.row;
  button.dataset.sample = nameOf(one.row, words.store);
  button.dataset.label = one.label || "";
  button.classList.toggle("marked", at().keys && marks.has(one.key));
  const side = Math.min(1024, Math.ceil(number("side", 160) * devicePixelRatio));
  const source = words.source || imageOf(one.row, {side});
  const shape = one.shape || [];
  const [height, width] = shape.length === 3 && ![1, 2, 3, 4].includes(shape[2]) ? shape.slice(1) : shape;
  const stack = make("span", {className: "stack"}, images.length ? picture(source, alt) : "no image");
  if (width && (one.layers || []).length && state.boxes !== "0") stack.append(drawing(one.layers, width, height, number("side", 160)));
  button.append(make("span", {className: "picture"}, stack));
  if (one.label !== null && one.label !== undefined) button.append(make("span", {className: "label"}, one.label));
  if (one.value) button.append(make("span", {className: "label"}, one.value));
  // The end of a key tells samples apart; all of it is the title.
  button.append(make("span", {className: "name"}, make("bdi", {}, plain(String(one.key || one.row).split("/").pop()))));
  button.addEventListener("click", () => open(one.row));
  return button;
}

function conditions() {
  const where = [];
  const known = at().classes.filter(([name]) => name).length;
  if (state.class === "-1") where.push(`(label < 0 or label >= ${known})`);
  else if (state.class !== undefined) where.push(`label == ${parseInt(state.class, 10) || 0}`);
  if (state.where) where.push(state.class === undefined ? state.where : `(${state.where})`);
  return where.join(" and ");
}

/** A condition with a field that the store has. */
function example() {
  const known = at().classes.find(([name, n]) => name && n && name.length < 16 && !/['\\]/.test(name));
  return known ? `label == '${known[0]}'` : "index < 1000";
}

const question = () => ({
  store: state.store || 0, where: conditions(), key: state.key || "", sort: state.sort || "",
  descending: state.descending || "", seed: state.sort === "random" ? state.seed || 0 : "",
});

const openSample = (row) => go({screen: "sample", row, from: state.screen});

/** Back to the screen from which a sample was opened: of `home`, if that is another store. */
const leaveSample = () => go({
  store: Number(state.home ?? state.store ?? 0) || "", home: "", screen: state.from, from: "",
  row: state.from === "compare" ? state.row : "", zoom: "", off: "", over: "",
});

async function showGrid(main) {
  const mine = shown;
  const about = at();
  const orders = [["", "store order"], ["random", "random"], ...about.numbers.map((name) => [name, name])];
  const controls = form(
    (found) => go(found, true),
    field("where", "Filter", "text", state.where || "", {placeholder: example()}),
    about.keys ? field("key", "Key", "text", state.key || "", {placeholder: "part of a key"}) : null,
    choice("sort", "Sort", orders, state.sort || ""),
    field("descending", "Descending", "checkbox", "1", {checked: state.descending === "1"}),
    state.sort === "random" ? field("seed", "Seed", "number", state.seed || 0, {min: 0}) : null,
    about.boxes.length ? field("boxes", "Boxes", "checkbox", "1", {checked: state.boxes !== "0"}) : null,
    field("side", "Size", "range", number("side", 160), {min: 64, max: 512, step: 16}),
  );
  const grid = make("div", {className: "grid"});
  grid.style.setProperty("--side", `${number("side", 160)}px`);
  const end = make("div", {});
  const total = make("p", {className: "muted", id: "total"}, "…");
  main.replaceChildren(controls, total, grid, end);
  let start = 0;
  let most = Infinity;
  let asking = false;
  const more = async () => {
    if (asking || start >= most || mine !== shown) return;
    asking = true;
    try {
      const found = await ask("/api/rows", {...question(), start, count: TILES});
      if (mine !== shown) return;
      most = found.count;
      total.textContent = `${count(most, "sample")}${most === about.samples ? "" : ` of ${about.samples.toLocaleString("en")}`}`;
      grid.append(...found.tiles.map((one) => tile(one, openSample)));
      start += found.tiles.length;
      if (!found.tiles.length) most = start;
    } catch (error) {
      most = 0;
      total.replaceChildren(failed(error));
      controls.elements.where.classList.add("wrong");
    } finally {
      asking = false;
    }
    if (mine === shown && start < most && end.getBoundingClientRect().top < innerHeight * 2) await more();
  };
  new IntersectionObserver((entries) => { if (entries.some((one) => one.isIntersecting)) more(); },
    {rootMargin: "1200px"}).observe(end);
  if (opened === null) return;
  await more();
  const found = () => grid.querySelector(`[data-sample="${opened}"]`);
  for (let pages = 0; pages < 20 && mine === shown && start < most && !found(); pages += 1) {
    if (asking) await new Promise((done) => { setTimeout(done, 30); });
    else await more();
  }
}

// ------------------------------------------------------------------------------------------------ a sample

const SVG = "http://www.w3.org/2000/svg";

/** The color of a class, by its number: neighbors differ much in hue. */
const colorOf = (number) => `hsl(${(48 + 137.5 * number) % 360} 100% ${number % 2 ? 68 : 58}%)`;

/** Boxes, polygons and points over an image. side: its longer side on the screen; names are written from 200 pixels on. */
function drawing(layers, width, height, side = 512) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "xMidYMid meet");
  const add = (kind, attributes, parent) => {
    const element = document.createElementNS(SVG, kind);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    parent.append(element);
    return element;
  };
  for (const layer of layers) {
    const group = add("g", {"data-layer": layer.name}, svg);
    layer.items.forEach((item, k) => {
      if (layer.kind === "boxes") {
        const [left, top, right, bottom] = item;
        add("rect", {
          class: "shape", x: left, y: top, width: Math.max(0, right - left), height: Math.max(0, bottom - top), stroke: colorOf(layer.classes[k] ?? 0),
        }, group);
        if (side < 200) return;
        const size = 12 * Math.max(width, height) / side;
        const text = add("text", {x: left + 2, y: Math.max(size, top - 3), "font-size": size}, group);
        text.textContent = layer.labels[k] || "";
      } else if (layer.kind === "polygons") {
        const color = colorOf(layer.classes[k] ?? 0);
        add("polygon", {
          class: "shape polygon", points: item.map((point) => point.join(",")).join(" "), stroke: color, fill: color,
        }, group);
      } else {
        for (const [x, y, visible] of item) {
          if (visible) add("circle", {class: "point", cx: x, cy: y, r: Math.max(2, width / 160)}, group);
        }
      }
    });
  }
  return svg;
}

/** An image at a zoom, with its layers. zoom: 0 fills the window, which it shares with `together - 1` others. */
function stage(source, alt, width, height, layers, masks, zoom, off, together = 1) {
  const room = Math.max(256, ($("main").clientWidth - 48) / together - 13);
  const scale = zoom || Math.min(Math.min(room, innerWidth - 48) / width, innerHeight * 0.7 / height) || 1;
  const stack = make("div", {className: "stack"});
  stack.style.width = `${width * scale}px`;
  stack.style.height = `${height * scale}px`;
  const image = picture(source, alt);
  image.style.width = "100%";
  image.style.height = "100%";
  stack.append(image);
  for (const mask of masks) {
    if (off.has(mask.name)) continue;
    const layer = picture(mask.source, `mask ${mask.name}`);
    layer.className = "layer";
    stack.append(layer);
  }
  stack.append(drawing(layers.filter((layer) => !off.has(layer.name)), width, height, Math.max(width, height) * scale));
  return make("div", {className: "stage", tabIndex: 0, "aria-label": alt}, stack);
}

/** The sample before or after, in the order of the grid. */
async function step(by) {
  const words = question();
  const plain = !words.where && !words.key && !words.sort && !words.descending;
  const row = number("row", 0);
  if (plain) {
    const next = row + by;
    if (next >= 0 && next < at().samples) go({row: next}, true);
    return;
  }
  if (step.of !== JSON.stringify(words)) {
    step.of = JSON.stringify(words);
    step.rows = [];
  }
  let where = step.rows.indexOf(row);
  while (where < 0 || (by > 0 && where === step.rows.length - 1)) {
    const found = await ask("/api/rows", {...words, start: step.rows.length, count: 500});
    if (!found.tiles.length) break;
    step.rows.push(...found.tiles.map((one) => one.row));
    where = step.rows.indexOf(row);
  }
  const next = step.rows[where + by];
  if (next !== undefined) go({row: next}, true);
  else if (where < 0) say("this sample is not among those of the grid");
}

async function showSample(main) {
  const mine = shown;
  const row = number("row", 0);
  opened = nameOf(row);
  let sample;
  let frames = null;
  try {
    sample = await ask("/api/sample", {store: state.store || 0, row});
    if (at().video) frames = await framesOf(row);
  } catch (error) {
    if (mine === shown) main.replaceChildren(sampleControls(null), failed(error));
    return;
  }
  if (mine !== shown) return;
  const off = new Set((state.off || "").split(",").filter(Boolean));
  const zoom = number("zoom", 0);
  const pictures = make("div", {className: "pictures"});
  const masked = (name) => (sample.masks[name].includes(state.over) ? state.over : sample.masks[name][0]);
  sample.images.forEach((image, k) => {
    const masks = Object.keys(sample.masks).filter((name) => masked(name) === image.name).map((name) => ({
      name, source: `/mask?${query({store: state.store || 0, row, field: name, v: at().version})}`,
    }));
    pictures.append(make("figure", {},
      stage(imageOf(row, {field: image.name}), `${image.name} of ${plain(sample.key || row)}`, image.width, image.height,
        k ? [] : sample.layers, masks, zoom, off, sample.images.length),
      make("figcaption", {}, `${image.name}, ${image.width} x ${image.height}`)));
  });
  sample.images.forEach((image, k) => { pictures.children[k].querySelector("img").dataset.field = image.name; });
  const layers = make("div", {className: "row"});
  for (const name of [...Object.keys(sample.masks), ...sample.layers.map((layer) => layer.name)]) {
    const box = make("input", {type: "checkbox", name: `layer ${name}`, checked: !off.has(name)});
    box.addEventListener("change", () => {
      if (box.checked) off.delete(name); else off.add(name);
      go({off: [...off].join(",")}, true);
    });
    layers.append(make("label", {}, box, name));
  }
  const over = [...new Set(Object.values(sample.masks).flat())];
  if (over.length > 1) {
    layers.append(choiceOf("masks over", over.map((name) => [name, name]), over.includes(state.over) ? state.over : over[0],
      (name) => go({over: name === over[0] ? "" : name}, true)));
  }
  const damaged = sample.damaged.length
    ? failed(new Error(`This sample does not match its checksum: ${sample.damaged.join(", ")} was changed after packing.`)) : "";
  const table = make("table", {}, ...linesOf(sample));
  main.replaceChildren(sampleControls(sample), damaged, layers,
    make("div", {className: "beside"}, pictures, make("div", {}, table)));
  if (frames) {
    main.insertBefore(scrubber(frames, row, async (there) => {
      for (const image of pictures.querySelectorAll("img:not(.layer)")) image.src = imageOf(there, {field: image.dataset.field});
      for (const mask of pictures.querySelectorAll("img.layer")) mask.remove();
      if (damaged) damaged.remove();
      const found = await ask("/api/columns", {store: state.store || 0, row: there}).catch(() => null);
      if (!found || mine !== shown || Number($("frame").value) !== there) return;
      Object.assign(sample, found);
      table.replaceChildren(...linesOf(sample));
      const [first] = sample.images;
      if (first) {
        pictures.querySelector("svg").replaceWith(
          drawing(sample.layers.filter((layer) => !off.has(layer.name)), first.width, first.height,
            Math.max(...["width", "height"].map((name) => pictures.querySelector("svg").getBoundingClientRect()[name]))));
      }
      if ($("mark")) $("mark").textContent = marks.has(sample.key) ? "Unmark" : "Mark";
    }), layers);
  }
}

/** What the table says of a sample. */
function linesOf(sample) {
  const line = (name, cell) => make("tr", {}, make("th", {scope: "row"}, name), make("td", {}, cell));
  return [
    line("row", sample.row.toLocaleString("en")),
    ...Object.entries(sample.values).sort(([, one], [, other]) => one.includes("\n") - other.includes("\n"))
      .map(([name, value]) => line(name, make("pre", {}, value))),
    ...Object.entries(sample.stored).map(([name, place]) => line(`${name} is in`,
      `${place.file}, ${count(place.bytes, "byte")} at ${place.offset.toLocaleString("en")}`)),
  ];
}

function sampleControls(sample) {
  const button = (text, act, title) => {
    const made = make("button", {type: "button", name: text, title: title || ""}, text);
    made.addEventListener("click", act);
    return made;
  };
  const controls = make("div", {className: "row"},
    button("← Back", leaveSample, "Escape"),
    button("Previous", () => step(-1), "left arrow"), button("Next", () => step(1), "right arrow"));
  if (!sample) return controls;
  controls.append(
    choiceOf("Zoom", [["0", "fitted"], ["1", "1:1"], ["2", "2:1"], ["4", "4:1"], ["8", "8:1"]], String(number("zoom", 0)),
      (value) => go({zoom: value}, true)),
    button("Copy Python", () => copy(sample.line), sample.line));
  if (at().keys) {
    const mark = button(marks.has(sample.key) ? "Unmark" : "Mark", () => {
      mark.textContent = marks.toggle(sample.key, sample.label) ? "Unmark" : "Mark";
    }, "m: to download the keys of all marked samples, for subset, or with a new label, for relabel");
    mark.id = "mark";
    controls.append(mark);
  }
  return controls;
}

function choiceOf(label, options, value, act) {
  const made = choice("", label, options, value);
  made.querySelector("select").addEventListener("change", (event) => act(event.target.value));
  return made;
}

/** The frames of a sample's video, asked for once. */
async function framesOf(row) {
  const known = framesOf.known;
  if (known && known.version === at().version && row >= known.first && row <= known.last) return known;
  const found = await ask("/api/frames", {store: state.store || 0, row});
  framesOf.known = found && {...found, version: at().version};
  return framesOf.known;
}

/** A slider through the frames of a video; space plays. turn: shows a row. */
function scrubber({first, last, times}, row, turn) {
  const range = make("input", {type: "range", min: first, max: last, value: row, id: "frame", "aria-label": "frame"});
  const words = (at) => `frame ${at - first + 1} of ${last - first + 1}${times ? `, ${times[at - first].toFixed(3)} s` : ""}`;
  const where = make("span", {className: "muted", id: "when"}, words(row));
  range.addEventListener("change", () => go({row: range.value}, true));
  range.addEventListener("input", () => {
    where.textContent = words(range.value);
    const turning = turn(Number(range.value)).finally(() => { if (player.turning === turning) player.turning = null; });
    player.turning = turning;
  });
  player.wait = (row) => (times ? 1000 * Math.max(0, times[row + 1 - first] - times[row - first]) : 80);
  const play = make("button", {type: "button", id: "play", title: "space"}, player.timer ? "Pause" : "Play");
  play.addEventListener("click", player.toggle);
  return make("div", {className: "row"}, play, range, where);
}

const player = {
  timer: 0,
  turning: null,  // where the values of a frame are on their way
  wait: () => 80,  // after a row, until the next one, in ms
  toggle() {
    if (player.timer) { player.stop(); return; }
    if (!$("frame")) return;
    $("play").textContent = "Pause";
    player.due = performance.now();
    player.next();
  },
  /** Plan the frame after the one that is shown, by when that one was due. */
  next() {
    const range = $("frame");
    if (!range || Number(range.value) >= Number(range.max)) { player.stop(); return; }
    player.due = Math.max(player.due + player.wait(Number(range.value)), performance.now());
    player.timer = setTimeout(player.show, player.due - performance.now());
  },
  show() {
    const range = $("frame");
    const image = document.querySelector("main .stage img");
    if (!range) { player.stop(); return; }
    if (player.turning || (image && !image.complete)) { player.timer = setTimeout(player.show, 10); return; }
    range.value = Number(range.value) + 1;
    range.dispatchEvent(new Event("input"));
    player.next();
  },
  stop() {
    clearTimeout(player.timer);
    player.timer = 0;
    if ($("play")) $("play").textContent = "Play";
    if ($("frame") && stateOf(location.hash).screen === "sample") go({row: $("frame").value}, true);
  },
};

// ------------------------------------------------------------------------------------------------ training

const LOOP = {steps: "", size: "", batch: "32", shuffle: "1", seed: "0", epoch: "0", number: "0", rank: "0", world: "1"};

async function showTraining(main) {
  const mine = shown;
  const loop = Object.fromEntries(Object.entries(LOOP).map(([name, value]) => [name, state[`t-${name}`] ?? value]));
  const change = (found, replace) => go(Object.fromEntries(
    Object.entries(found).map(([name, value]) => [`t-${name}`, value === LOOP[name] ? "" : value])), replace);
  const steps = make("input", {
    type: "text", name: "steps", value: loop.steps, spellcheck: false, autocomplete: "off",
    placeholder: "RandomResizedCrop(224), ToCHW()",
  });
  const controls = form(
    (found) => change({...loop, ...found}, true),
    make("label", {className: "wide line"}, "Transform", steps),
    field("size", "Image size", "text", loop.size, {placeholder: "224 or 224x160", size: 14}),
    field("batch", "Batch size", "number", loop.batch, {min: 1, max: 4096}),
    field("shuffle", "Shuffle", "checkbox", "1", {checked: loop.shuffle === "1"}),
    ...[["seed", "Seed"], ["epoch", "Epoch"], ["number", "Batch"]].map(([name, label]) => field(name, label, "number", loop[name], {min: 0})),
    make("span", {className: "together"}, field("rank", "Rank", "number", loop.rank, {min: 0}),
      field("world", "of ranks", "number", loop.world, {min: 1})),
  );
  controls.querySelector("[name=size]").parentElement.className = "";
  let last = Infinity;
  const turn = (by) => {
    const words = by < 0 ? "Previous batch" : "Next batch";
    const button = make("button", {type: "button", name: words}, words);
    button.addEventListener("click", () => change({...loop, number: String(Math.min(Number(loop.number) + by, last))}));
    return button;
  };
  const [before, after] = [turn(-1), turn(1)];
  before.disabled = !(Number(loop.number) > 0);
  const place = make("div", {}, make("p", {className: "muted"}, "reading…"));
  main.replaceChildren(controls, make("div", {className: "row"}, before, after), place);
  const words = {store: state.store || 0, ...loop};
  try {
    const batch = await ask("/api/batch", words);
    if (mine !== shown) return;
    last = Math.max(0, batch.batches - 1);
    after.disabled = Number(loop.number) >= last;
    controls.elements.number.max = last;
    if (batch.beyond) throw new Error(batch.beyond);
    const grid = make("div", {className: "grid", id: "batch"});
    grid.style.setProperty("--side", `${number("side", 160)}px`);
    batch.samples.forEach((one, k) => {
      const source = (name) => `/batch-image?${query({...words, k, field: name, v: at().version})}`;
      const made = tile(one, openSample, {source: source(at().images[0])});
      for (const name of at().images.slice(1)) {
        made.querySelector(".picture").append(make("span", {className: "stack"},
          picture(source(name), `${name} of ${plain(one.key || one.row)}`)));
      }
      grid.append(made);
    });
    const fields = make("table", {}, ...Object.entries(batch.fields).map(([name, words]) => make("tr", {},
      make("th", {scope: "row"}, name), make("td", {}, words))));
    const lines = make("pre", {className: "line", id: "lines"}, batch.lines);
    const button = make("button", {type: "button"}, "Copy Python");
    button.addEventListener("click", () => copy(batch.lines));
    place.replaceChildren(
      make("p", {className: "muted", id: "total"},
        `batch ${Number(loop.number)} of ${batch.batches.toLocaleString("en")} (the first is 0), epoch ${loop.epoch}`
        + (batch.shown ? `; ${batch.shown}` : "")),
      grid, make("h2", {}, "The same in Python"), lines, button, make("h2", {}, "Fields"), fields);
  } catch (error) {
    if (mine === shown) place.replaceChildren(failed(error));
  }
}

// ------------------------------------------------------------------------------------------------ clips

async function showClips(main) {
  const mine = shown;
  const clip = Object.fromEntries(Object.entries({frames: "8", stride: "1", step: "", per_video: "", short: ""}).map(
    ([name, value]) => [name, state[`c-${name}`] || value]));
  const controls = form(
    (found) => go(Object.fromEntries(Object.entries(found).map(([name, value]) => [`c-${name}`, value])), true),
    field("frames", "Frames", "number", clip.frames, {min: 1, max: 512}),
    field("stride", "Stride", "number", clip.stride, {min: 1}),
    field("step", "Step", "number", clip.step, {min: 1, placeholder: clip.frames * clip.stride || ""}),
    field("per_video", "Per video", "number", clip.per_video, {min: 1, placeholder: "all"}),
    choice("short", "Short", [["", "drop"], ["repeat_last", "repeat_last"], ["wrap", "wrap"]], clip.short),
  );
  const place = make("div", {});
  main.replaceChildren(controls, place);
  const more = make("button", {type: "button"}, "More clips");
  let start = 0;
  const next = async () => {
    try {
      const found = await ask("/api/clips", {store: state.store || 0, ...clip, start, count: 12});
      if (mine !== shown) return;
      if (!start) {
        place.append(make("p", {className: "muted", id: "total"},
          count(found.count, "clip") + (found.left_out ? `; ${count(found.left_out, "video")} too short` : "")),
        make("pre", {className: "line"}, found.line));
      }
      found.clips.forEach((clip, k) => {
        const strip = make("div", {className: "row clip", "aria-label": `clip ${start + k}`});
        for (const row of clip.rows) {
          const image = picture(imageOf(row, {side: 96}), `row ${row}`);
          const button = make("button", {type: "button", title: `row ${row}`}, image);
          button.dataset.row = row;
          button.dataset.sample = nameOf(row);
          button.addEventListener("click", () => openSample(row));
          strip.append(button);
        }
        const name = [`Clip ${(start + k).toLocaleString("en")}`, clip.label, plain(clip.key)].filter(Boolean).join(", ");
        place.append(make("h2", {}, name), strip);
      });
      start += found.clips.length;
      more.remove();
      if (start < found.count) place.append(more);
    } catch (error) {
      if (mine === shown) place.replaceChildren(failed(error));
    }
  };
  more.addEventListener("click", next);
  await next();
}

// ------------------------------------------------------------------------------------------------ two stores

async function showCompare(main) {
  const mine = shown;
  const others = stores.map((store, k) => [String(k), store.name]).filter(([k]) => k !== String(state.store || 0));
  const other = others.some(([k]) => k === state.other) ? state.other : others[0][0];
  const gain = number("gain", 8);
  const row = number("row", 0);
  const wrong = make("span", {className: "said-here", role: "alert", id: "wrong-row"});
  const controls = form(
    (found) => {
      const there = FITS.row(found.row);
      wrong.textContent = there ? "" : `${at().name} has rows 0 to ${(at().samples - 1).toLocaleString("en")}`;
      controls.elements.row.classList.toggle("wrong", !there);
      if (there) go(found, true);
    },
    choice("other", "With", others, other),
    field("row", "Row", "number", row, {min: 0, max: at().samples - 1, "aria-describedby": "wrong-row"}), wrong,
    field("gain", "Difference times", "number", gain, {min: 1, max: 255}),
  );
  controls.noValidate = true;
  const place = make("div", {}, make("p", {className: "muted"}, "reading…"));
  main.replaceChildren(controls, place);
  try {
    const sample = await ask("/api/sample", {store: state.store || 0, row});
    const pair = await ask("/api/pair", {store: state.store || 0, other, row});
    if (mine !== shown) return;
    if (pair.row === null) {
      place.replaceChildren(make("p", {}, `${stores[Number(other)].name} has no sample with the key ${plain(sample.key)}`));
      return;
    }
    const there = stores[Number(other)];
    const shownAt = (source, words, k) => make("figure", {},
      stage(source, words, pair.sizes[k][1], pair.sizes[k][0], [], [], 0, new Set(), pair.compared ? 3 : 2),
      make("figcaption", {}, words));
    const facts = (store, k) => `${store.name}, ${pair.sizes[k][1]} x ${pair.sizes[k][0]}, ${count(pair.bytes[k], "byte")}`;
    const quality = !pair.alike ? "the images differ in shape, so there is no difference to show" : pair.equal ? "equal in every pixel"
      : !pair.compared ? "they differ; only uint8 images are compared" : `PSNR ${pair.psnr.toFixed(2)} dB`;
    const pictures = make("div", {className: "pictures"},
      shownAt(imageOf(row), facts(at(), 0), 0),
      shownAt(`/image?${query({store: other, row: pair.row, v: there.version})}`, facts(there, 1), 1));
    if (pair.compared) {
      pictures.append(shownAt(`/difference?${query({
        store: state.store || 0, other, row, there: pair.row, gain, v: at().version + there.version,
      })}`, `difference times ${gain}`, 0));
    }
    const look = make("button", {type: "button"}, "Open this sample");
    look.addEventListener("click", () => openSample(row));
    place.replaceChildren(make("p", {id: "total"}, `${plain(sample.key)}: ${quality}`), look, pictures);
  } catch (error) {
    if (mine === shown) place.replaceChildren(failed(error));
  }
}

// ------------------------------------------------------------------------------------------------ rejects, duplicates

async function showRejects(main) {
  const mine = shown;
  const found = await ask("/api/rejects", {store: state.store || 0});
  if (mine !== shown) return;
  const table = make("table", {}, make("tr", {}, ...["key", "reason", "detail"].map((name) => make("th", {}, name))));
  for (const one of found) {
    table.append(make("tr", {}, ...["key", "reason", "detail"].map((name) => make("td", {className: name}, one[name] || ""))));
  }
  const more = at().rejects > found.length ? `, the first ${found.length.toLocaleString("en")} of which are here` : "";
  main.replaceChildren(make("p", {className: "muted", id: "total"}, count(at().rejects, "reject") + more), table);
}

async function showFound(main) {
  const mine = shown;
  const found = await ask("/api/found", {store: state.store || 0});
  if (mine !== shown) return;
  const strip = (tiles) => {
    const grid = make("div", {className: "grid"}, ...tiles.map((one) => tile(one, openSample)));
    grid.style.setProperty("--side", "112px");
    return grid;
  };
  const parts = [make("h2", {}, `Near duplicates: ${count(found.groups.length, "group")}`)];
  for (const group of found.groups) parts.push(strip(group), make("hr", {}));
  if (found.leaks.length) {
    parts.push(make("h2", {}, `Leaks between splits: ${found.leaks.length}`));
    for (const leak of found.leaks) {
      const here = strip([{...leak.tile, value: `also in ${leak.split}, row ${leak.other}`}]);
      const there = stores.findIndex((store) => store.path === at().path.replace(/[^/]+$/, leak.split));
      if (there >= 0) {
        const words = `${leak.split}, row ${leak.other}`;
        const source = `/image?${query({store: there, row: leak.other, side: 112, v: stores[there].version})}`;
        here.append(tile({row: leak.other, key: words, label: null},
          () => go({store: there || "", screen: "sample", row: leak.other, from: "found", home: state.store || 0}),
          {source, store: there}));
      }
      here.classList.add("leak");
      parts.push(here);
    }
  }
  for (const one of found.extremes) parts.push(make("h2", {}, one.title), strip(one.tiles));
  main.replaceChildren(...parts);
}

// ------------------------------------------------------------------------------------------------ all of it

const SHOW = {
  grid: showGrid, sample: showSample, training: showTraining, clips: showClips, compare: showCompare,
  rejects: showRejects, found: showFound,
};

/** The screens that a store has something for. */
function screens(about = at()) {
  const there = {
    clips: about.video, compare: stores.length > 1 && about.keys && about.images.length > 0, rejects: about.rejects > 0,
    found: about.measured,
  };
  return Object.keys(SCREENS).filter((name) => there[name] !== false);
}

const placeOf = (state) => `${state.store || 0}/${state.screen || "grid"}`;

/** What the store that was turned to lacks of what was looked at: shown as long as its screen is. */
let lacks = {place: "", words: ""};

/** Another store: what is looked at stays, a sample by its key, as far as that store has it; what it lacks is said. */
async function turnTo(k) {
  const now = Number(state.store || 0);
  const there = stores[k];
  const changes = {store: k || "", home: "", row: "", off: "", over: "", other: "", "t-number": ""};
  const lacking = [];
  const drop = (words, ...names) => { lacking.push(words); for (const name of names) changes[name] = ""; };
  const fits = !state.where
    || await ask("/api/rows", {store: k, where: state.where, count: 0}).then(() => true, () => false);
  if (!fits) drop("fields for this filter", "where");
  if (state.key && !there.keys) drop("keys", "key");
  if (state.sort && state.sort !== "random" && !there.numbers.includes(state.sort)) drop(state.sort, "sort", "descending");
  if (state.class !== undefined) {
    const name = state.class === "-1" ? "" : at().classes[state.class][0];
    const found = there.classes.findIndex(([one, n]) => one === name && n !== null);
    if (found < 0) drop(`class ${name || "-1"}`, "class");
    else changes.class = name ? String(found) : "-1";
  }
  if (state.screen === "sample" || (state.screen === "compare" && state.row)) {
    const row = at().keys && there.keys ? await ask("/api/same", {store: now, other: k, row: state.row}).catch(() => null) : null;
    if (row === null) {
      const {key} = await ask("/api/columns", {store: now, row: state.row}).catch(() => ({}));
      drop(`sample with ${key ? `the key ${plain(key)}` : "this key"}`, "screen", "from");
    } else Object.assign(changes, {row, other: state.screen === "compare" ? now || "0" : ""});
    if (state.from && !screens(there).includes(state.from)) changes.from = "";
  } else if (state.screen && !screens(there).includes(state.screen)) drop(`screen "${SCREENS[state.screen]}"`, "screen");
  lacks = {place: placeOf({...state, ...changes}), words: lacking.length ? `${there.name} has no ${lacking.join(", no ")}` : ""};
  go(changes);
}

function warn(text) {
  $("warning").hidden = !text;
  $("warning").textContent = text;
}

function showAround() {
  const about = at();
  $("path").textContent = `${about.path}: ${count(about.samples, "sample")}, ${about.format}`;
  document.title = `${about.name} - rawpack view`;
  $("stores").replaceChildren(...(stores.length < 2 ? [] : stores.map((store, k) => {
    const button = make("button", {type: "button"}, store.name);
    button.setAttribute("aria-current", String(store === about));
    button.addEventListener("click", () => turnTo(k));
    return button;
  })));
  const tab = $("stores").querySelector('[aria-current="true"]');
  if (tab) $("stores").scrollTop = tab.offsetTop - $("stores").offsetTop;  // where there are many, on a narrow window
  const current = state.screen === "sample" ? state.from || "grid" : state.screen || "grid";
  $("screens").replaceChildren(...screens().map((name) => {
    const button = make("button", {type: "button"}, SCREENS[name]);
    button.setAttribute("aria-current", String(current === name));
    button.addEventListener("click", () => go({
      screen: name === "grid" ? "" : name, row: name === "compare" && state.row ? state.row : "", from: "", home: "",
    }));
    return button;
  }));
  const remote = about.remote
    ? "This store is behind a URL: each shard that you look at is fetched into the cache, in random order soon most of "
      + `its ${(about.bytes / 1e9).toLocaleString("en", {maximumSignificantDigits: 2})} GB.` : "";
  warn(remote);
  ask("/api/changed", {store: state.store || 0}).then((changed) => {
    if (changed && about === at()) warn([remote, changed].filter(Boolean).join("\n"));
  }, () => {});
  const classes = about.classes.filter(([, n]) => n !== null);
  document.documentElement.style.setProperty("--head", `${document.querySelector("header").offsetHeight}px`);
  const side = $("side");
  side.hidden = !classes.length || !["grid", "sample"].includes(state.screen || "grid");
  $("layout").classList.toggle("alone", side.hidden);
  if (side.dataset.store !== about.digest) {
    side.dataset.store = about.digest;
    side.replaceChildren(...[["all", about.samples, undefined], ...classes.map(([name, n], k) => (
      [name || "without class", n, name ? k : -1]))].map(([name, n, k]) => {
      const swatch = about.boxes.length && k >= 0 ? make("i", {className: "swatch"}) : null;
      if (swatch) swatch.style.background = colorOf(k);
      const button = make("button", {type: "button"}, make("span", {}, swatch, name), make("span", {}, n.toLocaleString("en")));
      button.dataset.class = k === undefined ? "" : k;
      button.addEventListener("click", () => go({class: button.dataset.class, screen: "", row: "", from: "", home: ""}));
      return button;
    }));
  }
  $("classes").replaceChildren(...about.classes.filter(([name]) => name).map(([name]) => make("option", {value: name})));
  for (const button of side.children) button.setAttribute("aria-pressed", String(button.dataset.class === (state.class ?? "")));
  marks.show();
}

async function show() {
  const note = checked(stateOf(location.hash));
  shown += 1;
  const mine = shown;
  showAround();
  $("note").textContent = [note, placeOf(state) === lacks.place ? lacks.words : ""].filter(Boolean).join("\n");
  $("note").hidden = !$("note").textContent;
  const main = $("main");
  const focused = document.activeElement && main.contains(document.activeElement) ? document.activeElement.name : "";
  try {
    await (SHOW[state.screen || "grid"] || showGrid)(main);
  } catch (error) {
    if (mine === shown) main.replaceChildren(failed(error));
  }
  const last = mine === shown && state.screen !== "sample" && opened !== null ? main.querySelector(`[data-sample="${opened}"]`) : null;
  if (last && document.activeElement === document.body) last.focus();
  if (mine === shown && state.screen !== "sample") opened = null;
  if (focused && mine === shown && !main.contains(document.activeElement)) {
    const again = main.querySelector(`[name="${CSS.escape(focused)}"]`);
    if (again) again.focus();
  }
}

/** The store and row of the tile that was opened last: its screen comes back to it. */
let opened = null;

function keyed(event) {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range";
  if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
  if (state.screen === "compare" && /^Arrow(Left|Right)$/.test(event.key)) {
    const next = number("row", 0) + (event.key === "ArrowRight" ? 1 : -1);
    if (next >= 0 && next < at().samples) go({row: next}, true);
  } else if (state.screen === "sample") {
    const act = {
      ArrowLeft: () => step(-1), ArrowRight: () => step(1), " ": player.toggle, m: () => $("mark") && $("mark").click(),
      Escape: leaveSample,
    }[event.key];
    if (act && !(event.target.type === "range" && event.key.startsWith("Arrow"))
      && !(event.key === " " && event.target.tagName === "BUTTON")) {
      event.preventDefault();
      act();
    }
  } else if (event.key === "m") {
    const tile = document.activeElement && document.activeElement.closest(".tile");
    if (tile && tile.dataset.key) tile.classList.toggle("marked", marks.toggle(tile.dataset.key, tile.dataset.label));
  } else if (/^(Arrow|Page)|^(Home|End)$/.test(event.key)) {
    const tiles = [...document.querySelectorAll(".tile")];
    const where = tiles.indexOf(document.activeElement);
    if (where < 0) return;
    const below = tiles.findIndex((one) => one.offsetTop > tiles[0].offsetTop);
    const across = below < 0 ? tiles.length : below;
    const page = across * Math.max(1, Math.floor(innerHeight / (tiles[where].offsetHeight || innerHeight)) - 1);
    const next = where + {
      ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across, PageUp: -page, PageDown: page,
      Home: -where, End: tiles.length - 1 - where,
    }[event.key];
    const to = event.key.startsWith("Page") ? Math.max(0, Math.min(next, tiles.length - 1)) : next;
    if (tiles[to]) { event.preventDefault(); tiles[to].focus(); }
  }
}

async function begin() {
  try {
    stores = await ask("/api/stores");
  } catch (error) {
    $("main").replaceChildren(failed(error));
    return;
  }
  addEventListener("hashchange", show);
  addEventListener("keydown", keyed);
  $("marks-keys").addEventListener("click", () => {
    const keys = [...marks.all().keys()];
    if (keys.some((key) => /[\r\n]/.test(key))) download("keys.json", JSON.stringify(keys));
    else download("keys.txt", `${keys.join("\n")}\n`);
  });
  $("marks-csv").addEventListener("click", () => {
    const label = $("marks-label").value.trim();
    download("marks.csv", ["key,label", ...marks.changed(label).map((key) => `${quoted(key)},${quoted(label)}`)].join("\r\n") + "\r\n");
  });
  $("marks-label").addEventListener("input", () => marks.show());
  $("marks-clear").addEventListener("click", () => {
    localStorage.removeItem(marks.name());
    for (const one of document.querySelectorAll(".tile.marked")) one.classList.remove("marked");
    marks.show();
  });
  await show();
}

begin();
