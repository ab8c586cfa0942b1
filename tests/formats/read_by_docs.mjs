// Reads rawpack stores without rawpack, and without a library for HDF5, LMDB, .npy or PNG files: Node.js has none of
// them. Written from the pages in docs/format/ alone, as proof that these are enough.
//
//     node read_by_docs.mjs STORE [STORE ...]
//
// prints JSON: for each store, field -> the SHA-256 of each sample's value, as `sum_of` in tests/support/golden.py has
// it. A JPEG file is not decoded: it is there as it is, as `FIELD.file`. Values in frames of zstd are left out if this
// version of Node.js has no zstd.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import zlib from "node:zlib";

const FEATURES = ["several-images", "several-texts", "value-ranges", "displacements"];
const UNSIGNED = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: BigUint64Array };

const sha256 = (...parts) => parts.reduce((hash, part) => hash.update(part), createHash("sha256")).digest("hex");
const sum = (shape, data) => sha256(JSON.stringify(shape) + "\n", data);
const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
const times = (count, make) => Array.from({ length: count }, (_, i) => make(i));
const itemsize = (dtype) => (dtype === "bool" ? 1 : Number(dtype.match(/\d+$/)[0]) / 8);

function check(holds, what) {
  if (!holds) throw new Error(what);
}

// ------------------------------------------------------------------------------------------- columns.md

const HEADER = /^\{'descr': '[<|]([a-z])(\d+)', 'fortran_order': False, 'shape': \(([\d, ]*)\), \} *\n$/;

function readNpy(path) {
  const data = readFileSync(path);
  check(data.subarray(0, 8).toString("latin1") === "\x93NUMPY\x01\x00", `${path} is no .npy file of version 1.0`);
  const begin = 10 + data.readUInt16LE(8);
  const [, kind, bytes, lengths] = data.toString("latin1", 10, begin).match(HEADER);
  const shape = lengths.split(",").map((n) => n.trim()).filter(Boolean).map(Number);
  const size = Number(bytes) * product(shape.slice(1)); // of one row
  check(data.length === begin + size * shape[0], `${path} has another size than its header says`);
  const rows = (from, to = from + 1) => data.subarray(begin + from * size, begin + to * size);
  const at = (row, i = 0) => {
    const where = begin + row * size + i * Number(bytes);
    return kind === "i" && bytes === "8" ? Number(data.readBigInt64LE(where)) : data.readInt32LE(where);
  };
  return { shape, rows, at };
}

function* smallField(name, field, column, count) {
  if (field.kind === "number") {
    const values = column(name);
    for (let i = 0; i < count; i++) yield sum(field.shape, values.rows(i));
    return;
  }
  const [values, offset] = [column(name), column(`${name}.offset`)];
  check(offset.at(0) === 0 && offset.at(count) === values.shape[0], `offsets of ${name}`);
  for (let i = 0; i < count; i++) {
    const data = values.rows(offset.at(i), offset.at(i + 1));
    if (field.kind === "ragged") yield sum([offset.at(i + 1) - offset.at(i), ...field.shape.slice(1)], data);
    else if (!field.shape.length) yield sum([], data);
    else yield sum([JSON.parse(data).length], JSON.stringify(JSON.parse(data)));
  }
}

// ------------------------------------------------------------------------------------------- README.md, planes

const planeShapes = (h, w) => [[h, w], ...times(2, () => [Math.ceil(h / 2), Math.ceil(w / 2)])];

function enlarged(c, h, w, down) { // twice as many columns or, with `down`, rows
  const [height, width] = down ? [2 * h, w] : [h, 2 * w];
  return times(height * width, (i) => {
    const [y, x] = [Math.floor(i / width), i % width];
    const [position, last] = down ? [y, h - 1] : [x, w - 1];
    const nearer = position >> 1;
    const farther = Math.min(Math.max(nearer + (position % 2 ? 1 : -1), 0), last);
    const [near, far] = [nearer, farther].map((n) => (down ? c[n * w + x] : c[y * w + n]));
    return near - (near >> 2) + (far >> 2);
  });
}

function rgbOfPlanes(data, h, w) {
  const [, [hh, hw]] = planeShapes(h, w);
  const clipped = (value) => Math.min(Math.max(value, 0), 255);
  const [cg, co] = times(2, (i) => data.subarray(h * w + i * hh * hw, h * w + (i + 1) * hh * hw))
    .map((c) => enlarged(enlarged(c, hh, hw, false), hh, 2 * hw, true));
  return Uint8Array.from(times(h * w, (i) => {
    const at = Math.floor(i / w) * 2 * hw + (i % w);
    const [y, g, o] = [data[i], cg[at] - 128, co[at] - 128];
    const mean = clipped(y - g);
    return [mean + o, y + g, mean - o].map(clipped);
  }).flat());
}

// ------------------------------------------------------------------------------------------- memmap.md, zstd

function undoDifferences(frame, shape, dtype, planes) {
  const size = itemsize(dtype), bytes = zlib.zstdDecompressSync(frame), count = bytes.length / size;
  const values = new UNSIGNED[size](count);
  const whole = new Uint8Array(values.buffer);
  for (let i = 0; i < bytes.length; i++) whole[(i % count) * size + Math.floor(i / count)] = bytes[i];
  const three = shape.length === 3 && shape[2] === 3 && ["uint8", "uint16"].includes(dtype);
  const shapes = planes ? planeShapes(shape[0], shape[1]) : three ? times(3, () => shape.slice(0, 2))
    : [[shape[0], product(shape.slice(1))]];
  let start = 0;
  for (const [h, w] of shapes) {
    for (let y = 0; y < h; y++) {
      if (y % 16) for (let i = start + y * w; i < start + (y + 1) * w; i++) values[i] += values[i - w];
    }
    start += h * w;
  }
  if (planes || !three) return whole;
  const each = count / 3, rgb = new UNSIGNED[size](count);
  for (let i = 0; i < each; i++) {
    rgb[3 * i + 1] = values[i];
    rgb[3 * i] = values[each + i] + values[i];
    rgb[3 * i + 2] = values[2 * each + i] + values[i];
  }
  return new Uint8Array(rgb.buffer);
}

// ------------------------------------------------------------------------------------------- lmdb.md, PNG files

function valuesOfPng(file, [height, width, channels], dtype) {
  check(file.subarray(0, 8).toString("latin1") === "\x89PNG\r\n\x1a\n", "no PNG file");
  const size = itemsize(dtype), row = width * channels * size;
  const header = [file.readUInt32BE(16), file.readUInt32BE(20), file[24], file[25]];
  check(`${header}` === `${[width, height, 8 * size, channels === 1 ? 0 : 2]}`, "the header of a PNG file");
  check(file.toString("latin1", 37, 41) === "IDAT", "IDAT comes right after IHDR");
  const rows = zlib.inflateSync(file.subarray(41, 41 + file.readUInt32BE(33)));
  const values = Buffer.alloc(height * row);
  for (let y = 0; y < height; y++) {
    const filter = rows[y * (row + 1)];
    check(filter === (size === 1 ? 0 : 2), "the filter of a PNG file");
    for (let i = 0; i < row; i++) {
      const above = filter && y ? values[(y - 1) * row + i] : 0;
      values[y * row + i] = rows[y * (row + 1) + 1 + i] + above;
    }
  }
  return size === 2 ? values.swap16() : values;
}

// ------------------------------------------------------------------------------------------- manifest.md, columns.md

function* largeField(store, name, field, shards, column) {
  const { encoding, dtype } = field;
  const differ = field.shape.includes(null);
  const [planes, deflated, zstd] = ["ycgco420", "deflate", "zstd"].map((word) => encoding.includes(word));
  let first = 0, chunksBefore = 0; // in this folder of columns
  for (const shard of shards) {
    const place = shard.fields[name];
    const file = readFileSync(join(store, shard.files[place.file].name));
    check(file.length === shard.files[place.file].bytes, `the size of ${shard.files[place.file].name}`);
    let data = file;
    if (deflated) {
      const chunk = column(`${name}.chunk`);
      data = Buffer.concat(times(place.chunks, (k) => {
        const at = chunk.at(chunksBefore + k, 0);
        return zlib.inflateSync(file.subarray(at, at + chunk.at(chunksBefore + k, 1)));
      }));
      check(data.length === place.chunks * place.chunk_bytes, `the chunks of ${name}`);
      chunksBefore += place.chunks;
    }
    for (let row = 0; row < shard.rows; row++) {
      const i = first + row;
      const shape = differ ? times(3, (k) => column(`${name}.shape`).at(i, k)) : field.shape;
      let size = planes ? planeShapes(shape[0], shape[1]).reduce((all, one) => all + product(one), 0)
        : product(shape) * itemsize(dtype);
      let start = place.offset + row * size;
      if (differ || zstd || ["jpeg", "png"].includes(encoding)) {
        [start, size] = ["offset", "bytes"].map((what) => column(`${name}.${what}`).at(i));
      }
      const stored = data.subarray(start, start + size);
      check(stored.length === size, `sample ${i} of ${name} ends after its file`);
      if (encoding === "jpeg") yield sha256(stored);
      else if (encoding === "png") yield sum(shape, valuesOfPng(stored, shape, dtype));
      else {
        const values = zstd ? undoDifferences(stored, shape, dtype, planes) : stored;
        yield sum(shape, planes ? rgbOfPlanes(values, shape[0], shape[1]) : values);
      }
    }
    first += shard.rows;
  }
}

function readStore(store) {
  const manifest = JSON.parse(readFileSync(join(store, "store.json"), "utf8"));
  check(manifest.rawpack === 1, "a format version that these pages do not describe");
  check((manifest.features ?? []).every((name) => FEATURES.includes(name)), "a feature that they do not describe");
  const found = {}, shards = [...manifest.shards];
  for (const { folder, rows } of manifest.columns) {
    const columns = {};
    const column = (name) => (columns[name] ??= readNpy(join(store, folder, `${name}.npy`)));
    const mine = [];
    for (let count = 0; count < rows; count += mine.at(-1).rows) mine.push(shards.shift());
    for (const [name, field] of Object.entries(manifest.fields)) {
      const large = ["image", "mask"].includes(field.kind);
      if (large && field.encoding.includes("zstd") && !zlib.zstdDecompressSync) continue;
      const sums = (found[field.encoding === "jpeg" ? `${name}.file` : name] ??= []);
      sums.push(...(large ? largeField(store, name, field, mine, column) : smallField(name, field, column, rows)));
    }
  }
  check(Object.values(found).every((sums) => sums.length === manifest.samples), "the number of samples");
  return found;
}

console.log(JSON.stringify(Object.fromEntries(process.argv.slice(2).map((store) => [store, readStore(store)]))));
