import { parseAst } from "rolldown/parseAst";

/** A text that a program says, and the line of the source where it begins. */
export interface Message {
  readonly line: number;
  readonly text: string;
}

/** Shorter strings are names, keys and options. */
const LEAST_WORDS = 4;

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
}

interface Literal extends Node {
  readonly value?: unknown;
}

interface Template extends Node {
  readonly quasis: readonly { readonly value: { readonly raw: string; readonly cooked?: string | null } }[];
  readonly expressions: readonly Node[];
}

interface Sum extends Node {
  readonly operator: string;
  readonly left: Node;
  readonly right: Node;
}

/** Declarations of types and imports contain no messages. */
const SKIPPED = /^(?:Import|TSType|TSInterface|TSLiteralType)/;

/**
 * The strings and templates of a TypeScript source that have several words: log messages, errors, help. Parts joined by "+" are
 * one message. An expression in a template is "…".
 */
export function messagesOf(source: string, lang: "ts" | "tsx" = "ts"): Message[] {
  const messages: Message[] = [];
  const visit = (node: unknown): void => {
    if (Array.isArray(node)) return node.forEach(visit);
    if (!isNode(node) || SKIPPED.test(node.type)) return;
    const text = textOf(node);
    if (text !== undefined && wordsOf(text) >= LEAST_WORDS) {
      messages.push({
        line: source.slice(0, node.start).split("\n").length,
        text: text.replaceAll(/\s+/g, " ").trim(),
      });
    }
    for (const part of text === undefined ? Object.values(node) : expressionsOf(node)) visit(part);
  };
  visit(parseAst(source, { lang }).body);
  return messages;
}

function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && "type" in value && typeof value.type === "string";
}

/** Returns undefined unless the node is a string, a template, or a sum with one of them. */
function textOf(node: Node): string | undefined {
  if (node.type === "Literal") {
    const { value } = node as Literal;
    return typeof value === "string" ? value : undefined;
  }
  if (node.type === "TemplateLiteral") {
    return (node as Template).quasis.map(({ value }) => value.cooked ?? value.raw).join("…");
  }
  if (node.type !== "BinaryExpression" || (node as Sum).operator !== "+") return undefined;
  const parts = [(node as Sum).left, (node as Sum).right].map(textOf);
  return parts.every((part) => part === undefined) ? undefined : parts.map((part) => part ?? "…").join("");
}

/** The expressions in a text, which may contain further texts. */
function expressionsOf(node: Node): readonly unknown[] {
  if (node.type === "TemplateLiteral") return (node as Template).expressions;
  if (node.type !== "BinaryExpression") return [];
  const { left, right } = node as Sum;
  return [left, right].flatMap((part) => (textOf(part) === undefined ? [part] : expressionsOf(part)));
}

function wordsOf(text: string): number {
  return text.match(/\p{L}{2,}/gu)?.length ?? 0;
}
