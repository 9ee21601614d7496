/** A text of the daemon, with its code and its services as such. */
import { Fragment, type VNode } from "preact";
import { printable } from "../../../base/printable.js";

/** "namespace/name". */
const SERVICE_NAME = /([a-z0-9][-a-z0-9]*\/[a-z0-9][-a-z0-9.]*[a-z0-9])/;

interface MarkedProps {
  /** Code is between backticks. */
  readonly text: string;
  /** Returns undefined if there is no such service. Default: there is none. */
  readonly linkTo?: (service: string) => string | undefined;
}

export function Marked({ text, linkTo = () => undefined }: MarkedProps): VNode {
  const parts = printable(text).split("`");
  return (
    <>
      {parts.map((part, i) =>
        i % 2 === 1 ? (
          <code key={i}>{part}</code>
        ) : (
          <Fragment key={i}>
            {part.split(SERVICE_NAME).map((name, k) => {
              const link = k % 2 === 1 ? linkTo(name) : undefined;
              return link === undefined ? name : <a href={link}>{name}</a>;
            })}
          </Fragment>
        ),
      )}
    </>
  );
}
