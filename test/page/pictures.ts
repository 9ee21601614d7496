/**
 * The pictures of README.md, from one run of `npm run demo -- --page`: its output as a terminal shows it, and its status page
 * in a browser, under load.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { isDeepStrictEqual } from "node:util";
import { eventually } from "../lab/eventually.ts";
import { Namespace } from "../lab/namespace.ts";
import { Browser } from "./browser.ts";
import { HEADING, type Line, terminalDrawing } from "./terminal-drawing.ts";

/** The pictures by file, as docs/images/pictures.json has them. */
export type PictureRecord = Readonly<Record<string, Picture>>;

export interface Picture {
  /** Program version that the picture shows. */
  readonly version: string;
  /** Day, in UTC. */
  readonly taken: string;
  /** Digest of the file. */
  readonly sha256: string;
}

const DEMO = path.resolve(import.meta.dirname, "../../deploy/demo");
const PORT = 8080;
const WIDTH = 1280;
/** Sharp on screens with small pixels. */
const SCALE = 2;
/** Percent. With this, letters are sharp and the file stays below 250 kB. */
const QUALITY = 60;
/** Number of samples in the charts; the daemon takes one in two seconds. */
const SAMPLES = 10;
/** Number of pictures of which two must be the same. */
const MOST_PICTURES = 10;

/**
 * Takes the pictures and writes them to the directory, with pictures.json. Rejects if the demo fails, or if the page does not
 * become what the picture shows.
 */
export async function takePictures(directory: string): Promise<void> {
  const page = path.join(directory, "status-page.webp");
  const terminal = path.join(directory, "demo.svg");
  let pageVersion: string | undefined;
  const output = await runDemo(async ({ socket, packet }) => {
    pageVersion = await photographPage({ socket, packet, file: page });
  });
  writeFileSync(terminal, terminalDrawing("The output of npm run demo", output));
  const pictures: PictureRecord = {
    [path.basename(terminal)]: pictureOf(terminal, versionIn(output.map(({ text }) => text).join("\n"))),
    [path.basename(page)]: pictureOf(page, pageVersion),
  };
  writeFileSync(path.join(directory, "pictures.json"), `${JSON.stringify(pictures, null, 2)}\n`);
}

function pictureOf(file: string, version: string | undefined): Picture {
  if (version === undefined) throw new Error(`${path.basename(file)} shows no version`);
  const sha256 = createHash("sha256").update(readFileSync(file)).digest("hex");
  return { version, taken: new Date().toISOString().slice(0, 10), sha256 };
}

/** As `nft-proxier status` and the status page show it. */
function versionIn(text: string): string | undefined {
  return /nft-proxier (\d+\.\d+\.\d+[^\s,]*)/.exec(text)?.[1];
}

interface Offer {
  /** The unix socket that leads to the status page. */
  readonly socket: string;
  /** A packet that the demo explains, in the words of `nft-proxier explain`. */
  readonly packet: string;
}

/**
 * Runs the demo, and calls `visit` while it offers its page. Returns its output from the first heading to the last, without the
 * section about the page. Rejects if the demo fails.
 */
async function runDemo(visit: (offer: Offer) => Promise<void>): Promise<readonly Line[]> {
  const { NO_COLOR: _, ...environment } = process.env;
  const child = spawn(process.execPath, ["--no-warnings", path.join(DEMO, "demo.ts"), "--page"], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...environment, FORCE_COLOR: "1" },
  });
  const exited = once(child, "exit") as Promise<[code: number | null]>;
  const lines: Line[] = [];
  let packet = "";
  try {
    for await (const text of createInterface({ input: child.stdout })) {
      packet = /\$ nft-proxier explain (.+)$/.exec(text)?.[1] ?? packet;
      lines.push({ text: withoutLocalVersion(text), at: performance.now() / 1000 });
      const socket = /relay\.mjs \d+ (\S+)$/.exec(text)?.[1];
      if (socket === undefined) continue;
      // The demo says the rest at once, and waits for a signal.
      await visit({ socket, packet });
      child.kill("SIGTERM");
    }
  } finally {
    child.kill("SIGTERM");
  }
  const [code] = await exited;
  if (code !== 0) throw new Error(`the demo exited with ${code}:\n${lines.map(({ text }) => text).join("\n")}`);
  return withoutSection("The page", lines);
}

/** Removes the kernel's local version, which is specific to this machine. */
function withoutLocalVersion(text: string): string {
  return text.trimEnd().replace(/(Linux \d+\.\d+\.\d+)-[^\s,]+/, "$1");
}

function withoutSection(heading: string, lines: readonly Line[]): readonly Line[] {
  const headings = lines.flatMap(({ text }, i) => (text.startsWith(HEADING) ? [i] : []));
  const start = headings.find((i) => lines[i].text.startsWith(`${HEADING}${heading}`)) ?? lines.length;
  const end = headings.find((i) => i > start) ?? lines.length;
  return [...lines.slice(headings[0], start), ...lines.slice(end)];
}

/** Opens the page as the demo says, from a namespace of its own. Returns the version that the page shows in the picture. */
async function photographPage(options: Offer & { readonly file: string }): Promise<string | undefined> {
  const { socket, packet, file } = options;
  const viewer = await Namespace.create(`pictures-${process.pid}`);
  try {
    await viewer.ip(["link set lo up"]);
    viewer.spawn([process.execPath, path.join(DEMO, "relay.mjs"), String(PORT), socket], { stdio: "inherit" });
    const browser = await Browser.open(viewer);
    try {
      await browser.resize(WIDTH, 800, { scale: SCALE });
      // A scrollbar would take its width from the page, but not from the picture.
      await browser.send("Emulation.setScrollbarsHidden", { hidden: true });
      await browser.exposeStream();
      await show(browser, packet);
      const about = await browser.text("#about");
      // Without its stream and its timers, which show how long ago something was, the page keeps the text.
      await browser.evaluate(
        `window.pageSource.close(); for (let id = setTimeout(() => {}); id > 0; id--) clearTimeout(id); document.querySelector("#about").innerText = ${JSON.stringify(withoutLocalVersion(about))}`,
      );
      writeFileSync(file, await completePicture(browser));
      return versionIn(about);
    } finally {
      await browser.close();
    }
  } finally {
    await viewer.destroy();
  }
}

/** Returns the first picture that is the same as the one before: until then, parts of it may not be drawn. */
async function completePicture(browser: Browser): Promise<Buffer> {
  const height = await browser.evaluate<number>("document.documentElement.scrollHeight");
  await browser.resize(WIDTH, height, { scale: SCALE });
  let last = await browser.screenshot(QUALITY);
  // Each takes seconds on a busy machine.
  for (let count = 1; count < MOST_PICTURES; count++) {
    const before = last;
    last = await browser.screenshot(QUALITY);
    if (last.equals(before)) return last;
  }
  throw new Error("the picture of the status page still changes");
}

/** Brings the page to the state that the picture shows: a service under load with its endpoints, and an explained packet. */
async function show(browser: Browser, packet: string): Promise<void> {
  const becomes = (expression: string, wanted: unknown): Promise<void> =>
    eventually(async () => {
      const value = await browser.evaluate<unknown>(expression);
      if (!isDeepStrictEqual(value, wanted)) throw new Error(`${expression}: ${JSON.stringify(value)}`);
    });
  await eventually(async () => {
    await browser.goTo(`http://127.0.0.1:${PORT}/status`);
    if (!(await browser.evaluate<string>("document.title")).includes("nft-proxier")) throw new Error("no status page");
  });
  const row = `document.querySelector('[data-row="demo/web:http"]')`;
  await becomes(`/^[1-9]/.test(${row}?.cells[3]?.innerText.trim())`, true);
  await browser.evaluate(`${row}.click()`);
  await browser.evaluate(
    `document.querySelector("#packet").value = ${JSON.stringify(packet)}; document.querySelector("#explain").requestSubmit()`,
  );
  await becomes(`document.querySelector("#explanation").innerText.includes("demo/web:http")`, true);
  await becomes(`document.querySelectorAll("#detail .share").length`, 6);
  await becomes(`document.querySelector("#health").innerText`, "healthy");
  // Charts with several samples show more.
  await becomes(
    `document.querySelector(".charts polyline").getAttribute("points").split(" ").length > ${SAMPLES}`,
    true,
  );
  const cut = `[...document.querySelectorAll('#page *:not(.unseen, svg *)')].filter((one) => one.scrollWidth > one.clientWidth + 1
    && one.clientWidth > 0 && getComputedStyle(one).overflowX !== "auto")`;
  await becomes(`${cut}.map((one) => one.innerText)`, []);
}
