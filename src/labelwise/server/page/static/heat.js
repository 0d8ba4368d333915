// The heat map: colours over the part of the image that the model saw.

// level, red, green, blue, opacity
const RAMP = [
  [0, 40, 11, 84, 0],
  [0.2, 101, 21, 110, 0.3],
  [0.45, 188, 55, 84, 0.62],
  [0.7, 243, 120, 25, 0.8],
  [1, 252, 240, 140, 0.92],
];

function colour(level) {
  const next = Math.max(1, RAMP.findIndex((stop) => stop[0] >= level));
  const [a, b] = [RAMP[next - 1], RAMP[next]];
  const share = (level - a[0]) / (b[0] - a[0]);
  return a.slice(1).map((value, i) => value + (b[i + 1] - value) * share);
}

const COLOURS = Array.from({ length: 256 }, (_, i) => colour(i / 255));

/** Return the position of an image in a box that shows all of it, and of the centre that a model of this shape saw. */
export function places(box, image, [height, width]) {
  const scale = Math.min(box.width / image.width, box.height / image.height);
  const whole = { width: image.width * scale, height: image.height * scale };
  const cut = Math.min(whole.width / width, whole.height / height);
  const seen = { width: width * cut, height: height * cut };
  for (const part of [whole, seen]) {
    part.left = (box.width - part.width) / 2;
    part.top = (box.height - part.height) / 2;
  }
  return { whole, seen };
}

const FOR = [255, 130, 0], AGAINST = [20, 90, 255]; // orange and blue: of two labels, as the note says

/** Return a function that draws {heat, height, width}, maybe with heat_against, over an image; null for either clears it. */
export function heatMap(canvas) {
  let last = [null, null];

  function draw(image, found) {
    last = [image, found];
    const box = canvas.getBoundingClientRect();
    const sharp = Math.min(2, devicePixelRatio);
    canvas.width = Math.round(box.width * sharp);
    canvas.height = Math.round(box.height * sharp);
    if (!image || !found || !box.width) return;
    const pen = canvas.getContext("2d");
    pen.scale(sharp, sharp);
    const { whole, seen } = places(box, image, [found.height, found.width]);
    pen.fillStyle = "rgb(0 0 0 / 0.45)"; // what the model did not look at
    if (whole.width - seen.width > 1 || whole.height - seen.height > 1) {
      pen.fillRect(whole.left, whole.top, whole.width, whole.height);
      pen.clearRect(seen.left, seen.top, seen.width, seen.height);
    }
    pen.imageSmoothingQuality = "high";
    pen.drawImage(painted(found), seen.left, seen.top, seen.width, seen.height);
  }

  new ResizeObserver(() => draw(...last)).observe(canvas);
  return draw;
}

function painted({ heat, heat_against: against, height, width }) {
  const small = document.createElement("canvas");
  small.width = width;
  small.height = height;
  const pen = small.getContext("2d");
  const pixels = pen.createImageData(width, height);
  const others = against?.flat();
  heat.flat().forEach((level, i) => {
    const other = others?.[i] ?? 0;
    const [red, green, blue, opacity] = others ? [...(level < other ? AGAINST : FOR), 0.8 * Math.max(level, other)]
      : COLOURS[Math.round(255 * Math.min(1, Math.max(0, level)))];
    pixels.data.set([red, green, blue, 255 * opacity], 4 * i);
  });
  pen.putImageData(pixels, 0, 0);
  return small;
}
