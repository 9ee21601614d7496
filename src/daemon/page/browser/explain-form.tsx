/** Explains a packet, as the command `nft-proxier explain` does. */
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { printableLines } from "../../../base/printable.js";
import type { PageExplanation } from "../page-update.js";
import { ask, reasonOf } from "./requests.js";

export async function explanationOf(packet: string): Promise<string> {
  try {
    const answer = await ask<PageExplanation>(`/status/v1/explain?packet=${encodeURIComponent(packet)}`);
    return printableLines(answer?.text ?? "this daemon explains no packets").trimEnd();
  } catch (error) {
    return printableLines(reasonOf(error)).trimEnd();
  }
}

export function ExplainForm(): VNode {
  const [text, setText] = useState<string>();
  const explain = (event: SubmitEvent): void => {
    event.preventDefault();
    const input = (event.currentTarget as HTMLFormElement).elements.namedItem("packet");
    setText("…");
    void explanationOf((input as HTMLInputElement).value).then(setText);
  };
  return (
    <section aria-labelledby="explain-title">
      <div class="bar">
        <h2 id="explain-title">Explain a packet</h2>
        <form id="explain" onSubmit={explain}>
          <input
            id="packet"
            name="packet"
            autocomplete="off"
            spellcheck={false}
            placeholder="[tcp|udp|sctp] [SOURCE] DESTINATION:PORT"
            aria-label="Packet"
          />
          <button>Explain</button>
        </form>
      </div>
      <pre id="explanation" aria-live="polite" hidden={text === undefined}>
        {text}
      </pre>
    </section>
  );
}
