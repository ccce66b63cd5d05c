// Draws digits on the page of `examples/page` in a browser and compares what it reads: `node page.mjs FOLDER`, with the
// folder that Cargo built into. What `cargo xtask machines` starts.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

// Milliseconds for all of it.
const LIMIT = 120_000;

const PAGE = fileURLToPath(new URL("../../examples/page", import.meta.url));
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm" };
const MODULE = "/target/wasm32-unknown-unknown/release/page.wasm";

// The sandbox is refused to root, and nothing but the page is visited.
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];

// The lines of each digit, from 0 to 9, as points around the middle of the canvas.
const DIGITS = [
  [[[5, -80], [-30, -55], [-45, 5], [-30, 60], [5, 80], [40, 50], [48, -5], [35, -60], [0, -82]]],
  [[[-35, -45], [5, -85], [2, 0], [0, 85]]],
  [[[-50, -45], [-35, -78], [0, -90], [38, -72], [42, -38], [20, 5], [-20, 48], [-58, 84], [0, 80], [60, 82]]],
  [[[-45, -72], [0, -90], [42, -68], [38, -35], [-8, -8], [40, 14], [48, 52], [15, 86], [-30, 84], [-52, 62]]],
  [[[0, -88], [-28, -35], [-58, 22], [0, 24], [58, 18]], [[28, -30], [24, 30], [20, 90]]],
  [[[-38, -84], [-46, -14], [0, -26], [44, 4], [44, 54], [6, 84], [-50, 74]], [[-38, -84], [50, -90]]],
  [[[32, -88], [-16, -50], [-44, 8], [-40, 62], [0, 88], [40, 64], [38, 24], [2, 8], [-38, 34]]],
  [[[-55, -80], [0, -82], [55, -85], [20, -10], [-12, 90]]],
  [[[38, -62], [0, -86], [-36, -60], [-24, -24], [22, 14], [40, 52], [2, 88], [-38, 54], [-20, 14], [24, -22],
    [40, -58]]],
  [[[38, -52], [4, -84], [-38, -58], [-32, -16], [6, -4], [36, -38], [40, -58], [38, 20], [28, 90]]],
];

// What draws the digits, in turn.
const POINTERS = ["mouse", "pen", "touch"];

// Undoes what has been started, last first.
const ends = [];
const timeout = AbortSignal.timeout(LIMIT);

async function main([target]) {
  const served = new Map();
  const server = createServer((request, response) => serve(request.url, target, served, response));
  ends.push(() => server.closeAllConnections(), () => server.close());
  await once(server.listen(0, "localhost"), "listening");
  const browser = await open();
  await browser.go(`http://localhost:${server.address().port}/`);

  const canvas = await browser.find("drawing");
  const clear = await browser.find("clear");
  const digit = await browser.find("digit");
  const problem = await browser.find("problem");
  while (!(await browser.get(clear, "enabled"))) {
    const text = await browser.get(problem, "text");
    if (text) throw new Error(`the page says: ${text}`);
  }
  const misread = [];
  for (const [drawn, lines] of DIGITS.entries()) {
    const pointer = POINTERS[drawn % POINTERS.length];
    await browser.draw(canvas, lines, pointer);
    const read = await browser.get(digit, "text");
    if (read !== String(drawn)) misread.push(`${drawn} by ${pointer} is read as "${read}"`);
    await browser.click(clear);
    const left = await browser.get(digit, "text");
    if (left) throw new Error(`a page that was cleared reads "${left}"`);
  }
  console.log(`accuracy: ${(100 * (1 - misread.length / DIGITS.length)).toFixed(2)}%`);
  const sum = (sizes) => sizes.reduce((sum, size) => sum + size, 0);
  const [all, module] = [sum([...served.values()]), served.get(MODULE)];
  console.log(`digits drawn: ${DIGITS.length}`);
  console.log(`page: ${all} bytes (WebAssembly ${module}, HTML and JavaScript ${all - module})`);
  if (misread.length) throw new Error(misread.join("; "));
}

// Answers one request of the browser, as a web server for the example's folder would.
async function serve(path, target, served, response) {
  const name = path === "/" ? "/index.html" : path;
  const file = name.startsWith("/target/") ? join(target, name.slice("/target".length)) : join(PAGE, name);
  const body = extname(name) in TYPES && (await readFile(file).catch(() => null));
  if (!body) return response.writeHead(404).end();
  served.set(name, body.length);
  response.writeHead(200, { "content-type": TYPES[extname(name)] }).end(body);
}

// A browser, by ChromeDriver: https://www.w3.org/TR/webdriver2/.
async function open() {
  const folder = await mkdtemp(join(tmpdir(), "niello-page-"));
  ends.push(() => rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }));
  const options = { stdio: ["ignore", "pipe", "inherit"], detached: true, env: { ...process.env, TMPDIR: folder } };
  const driver = spawn("chromedriver", ["--port=0"], options);
  await once(driver, "spawn");
  // The driver leads a group of processes, and the browser's are in it.
  ends.push(() => process.kill(-driver.pid, "SIGKILL"));
  const port = await portOf(driver);

  const send = async (method, path, body) => {
    const options = { method, signal: timeout, body: body && JSON.stringify(body) };
    const response = await fetch(`http://localhost:${port}/session${path}`, options);
    const { value } = await response.json();
    if (!response.ok) throw new Error(`ChromeDriver: ${value.message}`);
    return value;
  };
  const chrome = { args: [...FLAGS, `--user-data-dir=${folder}`] };
  const wanted = { capabilities: { alwaysMatch: { "goog:chromeOptions": chrome } } };
  const { sessionId } = await send("POST", "", wanted);
  const post = (path, body) => send("POST", `/${sessionId}${path}`, body);
  return {
    go: (url) => post("/url", { url }),
    find: async (id) => Object.values(await post("/element", { using: "css selector", value: `#${id}` }))[0],
    get: (element, what) => send("GET", `/${sessionId}/element/${element}/${what}`),
    click: (element) => post(`/element/${element}/click`, {}),
    draw: (canvas, lines, pointerType) => {
      const origin = { "element-6066-11e4-a52e-4f735466cecf": canvas };
      const move = ([x, y], duration) => ({ type: "pointerMove", origin, x, y, duration });
      const actions = lines.flatMap(([from, ...rest]) => [move(from, 0), { type: "pointerDown", button: 0 },
        ...rest.map((to) => move(to, 20)), { type: "pointerUp", button: 0 }]);
      return post("/actions", { actions: [{ type: "pointer", id: pointerType, parameters: { pointerType }, actions }] });
    },
  };
}

// The port that a driver says it listens on.
async function portOf(driver) {
  const lines = [];
  for await (const line of createInterface({ input: driver.stdout, signal: timeout })) {
    lines.push(line);
    const port = line.match(/ successfully on port (\d+)/);
    if (port) return port[1];
  }
  throw new Error(`ChromeDriver did not start: ${lines.join(" ")}`);
}

let ending;
const end = () => (ending ??= (async () => {
  for (const undo of ends.reverse()) await undo();
})());
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => end().finally(() => process.exit(1)));
await main(process.argv.slice(2))
  .catch((error) => {
    console.error(timeout.aborted ? `the page took more than ${LIMIT / 1000} s` : `${error}`);
    process.exitCode = 1;
  })
  .finally(end);
