/** One service with its ports, endpoints and commands, beside the table. */
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { FAMILY_NAMES } from "../../../base/ip-families.js";
import { printable } from "../../../base/printable.js";
import {
  type EndpointStatus,
  type ServiceList,
  type ServicePortStatus,
  serviceText,
  sourceRangesText,
  type StatusProblem,
} from "../../../observe/status-report.js";
import { annotationTexts } from "../../answers/annotation-text.js";
import { explanationOf } from "./explain-form.js";
import { ask, reasonOf } from "./requests.js";
import { Marked } from "./marked.js";
import type { ProblemsOf } from "./service-rows.js";
import { STATE_TONES } from "./service-table.js";
import { addressesOf, withPort } from "./texts.js";

interface DetailProps {
  /** "namespace/name". */
  readonly service: string;
  /** Changes with the service, which is then read again. */
  readonly version: unknown;
  readonly problemsOf: ProblemsOf;
  readonly onClose: () => void;
}

interface Answer {
  readonly of: string;
  /** Its ports, or why there are none. */
  readonly answer: readonly ServicePortStatus[] | string;
}

/** Resolves to undefined if there is no such service. */
async function readService(service: string): Promise<ServiceList | undefined> {
  const names = service.split("/");
  // The browser would resolve the last two in a path, so the answer could be about something else.
  if (names.length !== 2 || names.some((name) => ["", ".", ".."].includes(name))) return undefined;
  return ask<ServiceList>(`/status/v1/services/${names.map(encodeURIComponent).join("/")}`);
}

export function ServiceDetail({ service, version, problemsOf, onClose }: DetailProps): VNode {
  const [{ of, answer }, setAnswer] = useState<Answer>({ of: "", answer: "" });
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    let isCurrent = true;
    readService(service)
      .then((list) => list?.items ?? `${printable(service)} is not served`, reasonOf)
      .then((answer) => isCurrent && setAnswer({ of: service, answer }), console.error);
    return () => {
      isCurrent = false;
    };
  }, [service, version]);
  useEffect(() => heading.current?.focus(), [service]);
  return (
    <aside id="detail" aria-labelledby="detail-title">
      <div class="bar">
        <h3 id="detail-title" tabIndex={-1} ref={heading}>
          {printable(service)}
        </h3>
        <button type="button" aria-label="Close" onClick={onClose}>
          ✕
        </button>
      </div>
      {of !== service ? (
        <p class="quiet">…</p>
      ) : typeof answer === "string" ? (
        <p class="bad">{answer}</p>
      ) : (
        <>
          <Command text={`nft-proxier services ${shellWord(service)}`} />
          {answer.map((port) => (
            <PortDetail
              key={`${port.family} ${port.protocol} ${port.port}`}
              port={port}
              problems={problemsOf({ service, ports: [port] })}
            />
          ))}
        </>
      )}
    </aside>
  );
}

interface PortDetailProps {
  readonly port: ServicePortStatus;
  readonly problems: readonly StatusProblem[];
}

function PortDetail({ port, problems }: PortDetailProps): VNode {
  const { family, protocol, nodePort, state, reason, endpoints = [], refusals = {} } = port;
  const [explanation, setExplanation] = useState<string>();
  const addresses = addressesOf(port);
  const ranges = sourceRangesText(port);
  const facts: readonly (readonly [string, string | undefined])[] = [
    ["addresses", addresses.map((address) => withPort(address, port.port)).join(", ") || undefined],
    ["node port", nodePort === 0 ? undefined : String(nodePort)],
    ["traffic policy", `internal ${port.internalTrafficPolicy}, external ${port.externalTrafficPolicy}`],
    ["affinity", port.affinitySeconds > 0 ? `ClientIP, ${port.affinitySeconds}s` : undefined],
    ["source ranges", ranges],
    ...annotationTexts(port),
    [
      "refused packets",
      Object.entries(refusals)
        .map(([why, count]) => `${count} ${why}`)
        .join(", ") || undefined,
    ],
  ];
  const destination = addresses.length > 0 ? withPort(addresses[0], port.port) : undefined;
  const packet = destination && `${protocol.toLowerCase()} ${destination}`;
  return (
    <section class="port" aria-label={`${serviceText(port)} ${FAMILY_NAMES[family]}`}>
      <h4>
        {`${port.portName === "" ? "" : `${port.portName} · `}${port.port}/${protocol} ${FAMILY_NAMES[family]}`}{" "}
        <span class={STATE_TONES[state]}>{state}</span>
      </h4>
      {reason !== undefined && (
        <p class={STATE_TONES[state]}>
          <Marked text={reason} />
        </p>
      )}
      {problems
        .filter(({ what }) => reason === undefined || !what.includes(reason))
        .map(({ what, remedy }) => (
          <p key={what}>
            <span class="bad">
              <Marked text={what} />
            </span>{" "}
            <span class="quiet">
              <Marked text={remedy} />
            </span>
          </p>
        ))}
      <dl>
        {facts.map(
          ([name, text]) =>
            text !== undefined && (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{printable(text)}</dd>
              </div>
            ),
        )}
      </dl>
      {endpoints.length === 0 ? (
        <p class="quiet">no endpoints</p>
      ) : (
        <ul class="endpoints">
          {endpoints.map((endpoint) => (
            <Endpoint key={`${endpoint.address} ${endpoint.port}`} port={port} endpoint={endpoint} />
          ))}
        </ul>
      )}
      {packet !== undefined && (
        <>
          <button
            type="button"
            class="explain"
            onClick={() => {
              setExplanation("…");
              void explanationOf(packet).then(setExplanation);
            }}
          >
            Explain a connection to it
          </button>
          {explanation !== undefined && <pre aria-live="polite">{explanation}</pre>}
          <Command text={`nft-proxier explain ${packet}`} />
          <Command text={`nft-proxier trace ${packet}`} />
        </>
      )}
    </section>
  );
}

/** Manifests may have names that a shell would interpret. */
function shellWord(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A command with a button that copies it. */
function Command({ text }: { readonly text: string }): VNode {
  const [done, setDone] = useState(false);
  const code = useRef<HTMLElement>(null);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
      setTimeout(() => setDone(false), 2_000);
    } catch {
      // Without a secure connection, only the viewer may copy.
      if (code.current !== null) getSelection()?.selectAllChildren(code.current);
    }
  };
  return (
    <p class="command">
      <code ref={code}>{text}</code>
      <button type="button" aria-label={`Copy ${text}`} onClick={() => void copy()}>
        {done ? "Copied" : "Copy"}
      </button>
    </p>
  );
}

const percent = (share: number): string => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

/** An endpoint's shares of new connections from inside and outside the cluster. */
function sharesOf(
  service: ServicePortStatus,
  { clusterShare, localShare }: EndpointStatus,
): Record<"internal" | "external", number> {
  const under = (policy: string): number => (policy === "Local" ? localShare : clusterShare);
  return { internal: under(service.internalTrafficPolicy), external: under(service.externalTrafficPolicy) };
}

function Endpoint({ port, endpoint }: { readonly port: ServicePortStatus; readonly endpoint: EndpointStatus }): VNode {
  const { internal, external } = sharesOf(port, endpoint);
  const { pod, node, zone, ready, serving, terminating, connections, refused } = endpoint;
  const tone = refused !== undefined ? "bad" : ready ? "good" : serving ? "warn" : "quiet";
  const words = [
    ...(terminating ? [serving ? "terminating" : "terminating, not serving"] : ready ? [] : ["not ready"]),
    internal === external
      ? `${percent(internal)} of new connections`
      : `${percent(internal)} of internal and ${percent(external)} of external new connections`,
    ...(connections === undefined
      ? []
      : [`${connections.toLocaleString("en")} ${connections === 1 ? "connection" : "connections"} so far`]),
    ...(refused === undefined ? [] : [`refused ${refused.toLocaleString("en")} packets in the last minute`]),
    ...(pod === undefined ? [] : [pod]),
    ...(node === undefined
      ? endpoint.local
        ? ["on this node"]
        : []
      : [endpoint.local ? `${node} (this node)` : node]),
    ...(zone === undefined ? [] : [zone]),
  ];
  return (
    <li>
      <span class={`dot ${tone}`} aria-hidden="true" /> <code>{withPort(endpoint.address, endpoint.port)}</code>
      <span class="share" aria-hidden="true">
        <i style={{ width: `${100 * internal}%` }} />
      </span>
      <span class="quiet">{printable(words.join(", "))}</span>
    </li>
  );
}
