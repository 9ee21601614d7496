import type { TxtNode } from "@textlint/ast-node-types";
import type { TextlintRuleModule } from "@textlint/types";

/** Its text as a reader counts it: a code span is one word, and a link is its text. */
function textOf(node: TxtNode): string {
  if (node.type === "Code") return "code";
  if (node.type === "Html") return "";
  if ("children" in node && Array.isArray(node.children)) {
    const children: readonly TxtNode[] = node.children;
    return children.map((child) => textOf(child)).join("");
  }
  return "value" in node && typeof node.value === "string" ? node.value : " ";
}

function words(text: string): number {
  return text.split(" ").filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
}

/**
 * A textlint rule: a sentence has at most `max` words. Unlike textlint-rule-sentence-length, it counts words, and reads headings and cells of tables. A
 * sentence ends at a full stop, question mark or exclamation mark before white space. Each heading, paragraph, list item and cell stands alone.
 */
export const sentenceWords: TextlintRuleModule<{ max?: number }> = (context, options) => {
  const max = (typeof options === "object" ? options.max : undefined) ?? Infinity;
  const check = (node: TxtNode): void => {
    for (const sentence of textOf(node)
      .replaceAll(/\s+/g, " ")
      .split(/(?<=[.?!…]["”')\]]*) /)) {
      const count = words(sentence);
      if (count > max) {
        context.report(node, new context.RuleError(`${count} words, more than ${max}: ${sentence.slice(0, 60)} …`));
      }
    }
  };
  return { Header: check, Paragraph: check, TableCell: check };
};
