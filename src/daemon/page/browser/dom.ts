/** Elements of the page. All strings are inserted as text, so names from the API are never markup. */
import { printable, printableLines } from "../../../base/printable.js";

export function byId(id: string): HTMLElement {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no #${id}`);
  return element;
}

export function inputById(id: string): HTMLInputElement {
  const element = byId(id);
  if (!(element instanceof HTMLInputElement)) throw new Error(`#${id} is no input`);
  return element;
}

export const AWAY = "the daemon does not answer";

/** Time limit of a request, ms. */
const ANSWER_MS = 30_000;

/** Rejects if there is no answer in time. */
export function ask(path: string): Promise<Response> {
  return fetch(path, { signal: AbortSignal.timeout(ANSWER_MS) });
}

/** Returns why a request failed. If there is no answer at all, the message of `fetch` does not say so clearly in any browser. */
export function reasonOf(error: unknown): string {
  if (error instanceof TypeError || error instanceof DOMException) return AWAY;
  return error instanceof Error ? error.message : String(error);
}

/** Sets the text of #id. Escapes control characters except line feeds. */
export function setText(id: string, text: string): void {
  byId(id).textContent = printableLines(text);
}

/** Creates an element of these classes (as in the attribute). Escapes control characters in texts. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  classes = "",
  ...content: readonly (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  element.className = classes;
  element.append(...content.map((part) => (typeof part === "string" ? printable(part) : part)));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function makeSvg(tag: string, attributes: Readonly<Record<string, string | number>>, text = ""): SVGElement {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.textContent = printable(text);
  return element;
}

/** Formats a duration: "3 ms", "4.2 s", "5 min", "3 h", "2 d". */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3_600)} h` : `${Math.floor(seconds / 86_400)} d`;
}

export function withPort(address: string, port: number): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
