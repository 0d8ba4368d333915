// What images show, in a browser. The browser decodes the pixels, `resized` is Pillow's resize, and the graph in model.onnx does the rest.

const HERE = new URL(".", import.meta.url);
const RUNTIME = new URL("node_modules/onnxruntime-web/dist/", HERE);
const BITS = 22; // of a weight, as in Pillow

/** Return a function from a Blob (an image file) to {labels, unknown, probabilities: [[label, probability], ...]}. */
export async function load(folder = HERE) {
  const ort = await import(new URL("ort.wasm.min.mjs", RUNTIME));
  ort.env.wasm.wasmPaths = RUNTIME.href;
  ort.env.wasm.numThreads = 1; // more need a page that is isolated by headers
  const about = await (await fetch(new URL("labels.json", folder))).json();
  const session = await ort.InferenceSession.create(new URL("model.onnx", folder).href);
  return async (blob) => {
    const images = new ort.Tensor("uint8", seen(await decoded(blob, about.shape), about), [1, ...about.shape]);
    const out = await session.run({ images });
    const values = out[about.reported].data;
    const probabilities = about.labels.map((name, i) => [name, values[i]]).sort((a, b) => b[1] - a[1]);
    return { labels: about.labels.filter((_, i) => out.labels.data[i]), unknown: Boolean(out.unknown.data[0]), probabilities };
  };
}

/** Return the pixels of an image file, upright: {data: RGBA bytes, width, height}, and its true size where these are fewer. */
async function decoded(blob, shape) {
  const bitmap = await createImageBitmap(blob, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const pixels = context.getImageData(0, 0, bitmap.width, bitmap.height);
  const [first, second] = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
  return first === 0xff && second === 0xd8 ? reduced(pixels, Math.max(...shape.slice(1), 224)) : pixels;
}

/** Return a large JPEG at the fraction of its size at which Pillow decodes it: the means of blocks of 2, 4 or 8 pixels a side. */
function reduced({ data, width, height }, side) {
  const by = [8, 4, 2].find((factor) => Math.min(width, height) >= factor * side);
  if (!by) return { data, width, height };
  const [toWidth, toHeight] = [Math.ceil(width / by), Math.ceil(height / by)];
  const out = new Uint8Array(toWidth * toHeight * 4);
  for (let y = 0; y < toHeight; y++) {
    for (let x = 0; x < toWidth * 4; x++) {
      let [sum, count] = [0, 0];
      for (let row = y * by; row < Math.min((y + 1) * by, height); row++) {
        for (let i = (x >> 2) * by; i < Math.min(((x >> 2) + 1) * by, width); i++, count++) sum += data[(row * width + i) * 4 + (x & 3)];
      }
      out[y * toWidth * 4 + x] = Math.round(sum / count);
    }
  }
  return { data: out, width: toWidth, height: toHeight, size: [width / by, height / by] };
}

/** Return the bytes [channels, height, width] that the model takes of an image. */
export function seen(image, { shape: [channels, height, width], fit, tall_first: tallFirst }) {
  const [right, bottom] = image.size ?? [image.width, image.height];
  let box = [0, 0, right, bottom];
  if (fit.startsWith("crop")) {
    const scale = Math.min(right / width, bottom / height);
    const left = even((right / scale - width) / 2) * scale;
    const top = even((bottom / scale - height) / 2) * scale;
    box = [left, top, Math.min(left + width * scale, right), Math.min(top + height * scale, bottom)];
  }
  const small = onWhite(resized(premultiplied(image), width, height, box.map(Math.fround), fit.endsWith("bicubic"), tallFirst));
  const area = width * height;
  const bytes = new Uint8Array(channels * area);
  for (let i = 0; i < area; i++) {
    const [r, g, b] = small.subarray(4 * i, 4 * i + 3);
    if (channels === 1) bytes[i] = (r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16;
    else bytes[i] = r, bytes[area + i] = g, bytes[2 * area + i] = b;
  }
  return bytes;
}

/** Round halves to the even number, as Python does. */
const even = (x) => (x - Math.floor(x) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));

const by255 = (a, b) => ((a * b + 128) + ((a * b + 128) >> 8)) >> 8;

function premultiplied({ data, width, height }) {
  const out = new Uint8Array(data);
  for (let i = 0; i < out.length; i += 4) {
    if (out[i + 3] < 255) for (let c = i; c < i + 3; c++) out[c] = by255(out[c], out[i + 3]);
  }
  return { data: out, width, height };
}

/** Undo the multiplication by alpha, and lay the pixels over white, as Pillow's alpha_composite does. */
function onWhite(pixels) {
  for (let i = 0; i < pixels.length; i += 4) {
    const alpha = pixels[i + 3];
    if (alpha === 255) continue;
    for (let c = i; c < i + 3; c++) {
      const plain = alpha ? Math.min(255, Math.floor((255 * pixels[c]) / alpha)) : 0;
      const sum = plain * alpha * 128 + 255 * (255 - alpha) * 128 + (0x80 << 7);
      pixels[c] = ((sum >> 8) + sum) >> 8 >> 7;
    }
  }
  return pixels;
}

/** Return the part of an image inside a box, resized: two passes with rounded weights, bit for bit as Pillow, which may begin with the height. */
function resized({ data, width, height }, toWidth, toHeight, [left, top, right, bottom], cubic, tallFirst) {
  const across = weights(width, left, right, toWidth, cubic);
  const down = weights(height, top, bottom, toHeight, cubic);
  if (tallFirst && height > toHeight && height - toHeight > 2 * (width - toWidth)) {
    const columns = pass(data, width, down, width * 4, 4, width * 4, 4);
    return pass(columns, toHeight, across, 4, width * 4, 4, toWidth * 4);
  }
  const rows = pass(data, height, across, 4, width * 4, 4, toWidth * 4);
  return pass(rows, toWidth, down, toWidth * 4, 4, toWidth * 4, 4);
}

/** Sum pixels by weights along one axis: `step` bytes between pixels of it, `stride` between lines; likewise in the result. */
function pass(data, lines, list, step, stride, toStep, toStride) {
  const out = new Uint8Array(lines * list.length * 4);
  for (let line = 0; line < lines; line++) {
    for (let place = 0; place < list.length; place++) {
      const { first, parts } = list[place];
      for (let c = 0; c < 4; c++) {
        let sum = 1 << (BITS - 1);
        for (let i = 0, at = line * stride + first * step + c; i < parts.length; i++, at += step) sum += data[at] * parts[i];
        out[line * toStride + place * toStep + c] = Math.max(0, Math.min(255, sum >> BITS));
      }
    }
  }
  return out;
}

/** Return which pixels make each new one, and their weights. */
function weights(size, start, end, count, cubic) {
  const scale = Math.fround(end - start) / count;
  const stretch = Math.max(scale, 1);
  const support = (cubic ? 2 : 1) * stretch;
  return Array.from({ length: count }, (_, place) => {
    const centre = start + (place + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - support + 0.5));
    const last = Math.min(size, Math.trunc(centre + support + 0.5));
    const parts = [];
    for (let x = first; x < last; x++) parts.push((cubic ? bicubic : linear)((x - centre + 0.5) * (1 / stretch)));
    const total = parts.reduce((sum, part) => sum + part, 0);
    return { first, parts: parts.map((part) => Math.trunc((part / total) * 2 ** BITS + (part < 0 ? -0.5 : 0.5))) };
  });
}

const linear = (x) => Math.max(0, 1 - Math.abs(x));

function bicubic(x) {
  const [a, y] = [-0.5, Math.abs(x)];
  if (y < 1) return ((a + 2) * y - (a + 3)) * y * y + 1;
  return y < 2 ? (((y - 5) * y + 8) * y - 4) * a : 0;
}
