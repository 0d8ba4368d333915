// Images from files, drops, the clipboard and the camera, made ready for the service.

import { $, make, showFault } from "./dom.js";
import { Fault } from "./api.js";

const SENT = new Set(["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"]);
const SIDE = 1600; // a larger image is made smaller before it is sent: models look at far fewer pixels
const BYTES = 4_000_000;
const MOST = 200; // images at once
let made = 0;

/** Return {id, name, blob, url, width, height} of a file, or throw a Fault that says why it cannot be read as an image. */
export async function readImage(file) {
  const name = file.name || "the image";
  if (file.type && !file.type.startsWith("image/")) {
    throw new Fault(`${name} is not an image but ${file.type}. Give a PNG, JPEG, WebP, GIF or BMP file.`, 415);
  }
  const found = await createImageBitmap(file).catch(() => null);
  if (!found) throw new Fault(`${name} cannot be read as an image. Is the file whole? PNG, JPEG, WebP, GIF and BMP work.`, 415);
  const { width, height } = found;
  const fits = SENT.has(file.type) && Math.max(width, height) <= SIDE && file.size <= BYTES;
  const blob = fits ? file : await redraw(found);
  found.close();
  return { id: ++made, name, blob, url: URL.createObjectURL(blob), width, height };
}

/** Return {images, fault}: those of some files that can be read, and what is wrong with the first one that cannot. */
export async function readImages(files) {
  const images = [];
  let fault = files.length > MOST ? new Fault(`At most ${MOST} images at once; the others are left out.`, 413) : null;
  for (const file of files.slice(0, MOST)) {
    try {
      images.push(await readImage(file));
    } catch (error) {
      fault ??= error;
    }
  }
  return { images, fault };
}

async function redraw(source) {
  const width = source.videoWidth ?? source.width;
  const height = source.videoHeight ?? source.height;
  const share = Math.min(1, SIDE / Math.max(width, height));
  const canvas = make("canvas");
  canvas.width = Math.max(1, Math.round(width * share));
  canvas.height = Math.max(1, Math.round(height * share));
  const pen = canvas.getContext("2d");
  pen.fillStyle = "white"; // transparent parts count as white, as for the model
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(source, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.92));
}

/** Return the images of a drop or a paste; throws a Fault where there is something, but no file. */
export function filesOf(transfer) {
  const files = [...transfer.files];
  if (!files.length && transfer.types.includes("text/html")) {
    throw new Fault("This page cannot fetch an image from another page. Save it as a file first.", 415);
  }
  return files;
}

/** Make an element take dropped files, and open the chooser when its empty space is clicked. */
export function takeDrops(zone, input, receive) {
  for (const kind of ["dragenter", "dragover"]) {
    zone.addEventListener(kind, (event) => {
      event.preventDefault();
      zone.classList.add("over");
    });
  }
  zone.addEventListener("dragleave", (event) => {
    if (!zone.contains(event.relatedTarget)) zone.classList.remove("over");
  });
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation();
    zone.classList.remove("over");
    receive(() => filesOf(event.dataTransfer));
  });
  zone.addEventListener("click", (event) => {
    if (!zone.classList.contains("filled") && !event.target.closest("button")) input.click();
  });
  input.addEventListener("change", () => {
    const files = [...input.files];
    input.value = ""; // the same file may be chosen again
    if (files.length) receive(() => files);
  });
}

/** Show an image in a zone that holds one. */
export function show(zone, image) {
  const view = zone.querySelector("img");
  view.src = image.url;
  view.alt = `Your image: ${image.name}`;
  view.hidden = false;
  zone.classList.add("filled");
}

/** Show the camera's buttons where there is a camera; each gives its image to its receiver. */
export async function offerCamera(buttons) {
  const devices = await navigator.mediaDevices?.enumerateDevices?.().catch(() => []);
  if (!devices?.some((one) => one.kind === "videoinput")) return;
  const dialog = $("camera-dialog");
  const video = $("video");
  const shoot = $("shoot");
  let receiver = null;

  function stop() {
    for (const track of video.srcObject?.getTracks() ?? []) track.stop();
    video.srcObject = null;
    shoot.disabled = true;
  }
  dialog.addEventListener("close", stop);
  $("camera-close").addEventListener("click", () => dialog.close());
  shoot.addEventListener("click", async () => {
    const blob = await redraw(video);
    dialog.close();
    receiver(() => [new File([blob], "camera.jpg", { type: blob.type })]);
  });
  for (const [button, receive] of buttons) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      receiver = receive;
      showFault($("camera-fault"), null);
      dialog.showModal();
      try {
        video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
        await video.play();
        shoot.disabled = false;
        shoot.focus();
        if (!dialog.open) stop(); // closed while the browser was asking
      } catch (error) {
        const why = error.name === "NotAllowedError" ? "The browser was not allowed to use it." : error.message;
        if (dialog.open) showFault($("camera-fault"), new Fault(`The camera cannot be used. ${why}`, 403));
      }
    });
  }
}
