// Draws on the canvas, hands the drawing to the module that Cargo built, and shows what it reads.

const MODULE = "target/wasm32-unknown-unknown/release/page.wasm";

const [canvas, digit, clear, problem, list] = ["drawing", "digit", "clear", "problem", "probabilities"]
  .map((id) => document.getElementById(id));
const pen = canvas.getContext("2d", { willReadFrequently: true });
pen.lineWidth = 18;
pen.lineCap = pen.lineJoin = "round";

const meters = Array.from({ length: 10 }, (_, value) => {
  const label = list.appendChild(document.createElement("label"));
  const meter = document.createElement("meter");
  label.append(`${value} `, meter);
  return meter;
});

async function load() {
  const response = await fetch(MODULE);
  if (!response.ok) throw new Error(`${MODULE}: ${response.status}; \`cargo build --release\` makes it`);
  return (await WebAssembly.instantiate(await response.arrayBuffer())).instance.exports;
}

function read(module) {
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
  new Uint8Array(module.memory.buffer, module.drawing(), data.length).set(data);
  const best = module.classify();
  const probabilities = new Float32Array(module.memory.buffer, module.probabilities(), meters.length);
  digit.textContent = best < 0 ? "" : best;
  meters.forEach((meter, at) => (meter.value = best < 0 ? 0 : probabilities[at]));
}

try {
  const module = await load();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pen.beginPath();
    draw(event);
  });
  canvas.addEventListener("pointermove", (event) => event.buttons && draw(event));
  function draw(event) {
    pen.lineTo(event.offsetX, event.offsetY);
    pen.stroke();
    read(module);
  }
  clear.addEventListener("click", () => {
    pen.clearRect(0, 0, canvas.width, canvas.height);
    read(module);
  });
  clear.disabled = false;
} catch (error) {
  problem.textContent = error.message;
}
