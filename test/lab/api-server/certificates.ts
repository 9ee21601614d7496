/**
 * X.509 certificates for tests, made with node:crypto alone: an authority, servers and clients. ECDSA on P-256. Names
 * and dates are free, so that tests can have expired certificates and those of other hosts or unknown authorities.
 */
import { generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";
import { isIP, isIPv4 } from "node:net";

export interface Certificate {
  /** PEM. */
  readonly cert: string;
  /** PEM, PKCS #8. */
  readonly key: string;
}

export interface CertificateOptions {
  readonly commonName: string;
  readonly organization?: string;
  /** Host names and addresses of the server. */
  readonly hosts?: readonly string[];
  /** Default: from yesterday, for ten years. */
  readonly notBefore?: Date;
  readonly notAfter?: Date;
}

const DAY_MS = 86_400_000;

export class Authority {
  readonly cert: string;
  readonly #name: Buffer;
  readonly #key: KeyObject;

  constructor() {
    const commonName = "test authority";
    const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    this.#key = privateKey;
    this.#name = distinguishedName({ commonName });
    const extensions = [extension(OID.basicConstraints, sequence(boolean(true)), true)];
    this.cert = certificate(this.#name, { commonName }, publicKey, extensions, this.#key);
  }

  server(options: CertificateOptions): Certificate {
    return this.#issue(options, OID.serverAuth);
  }

  client(options: CertificateOptions): Certificate {
    return this.#issue(options, OID.clientAuth);
  }

  #issue(options: CertificateOptions, usage: Buffer): Certificate {
    const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const extensions = [extension(OID.extendedKeyUsage, sequence(usage))];
    if (options.hosts !== undefined) {
      extensions.push(extension(OID.subjectAltName, sequence(...options.hosts.map(generalName))));
    }
    const cert = certificate(this.#name, options, publicKey, extensions, this.#key);
    return { cert, key: privateKey.export({ type: "pkcs8", format: "pem" }).toString() };
  }
}

/** DER: tag, length, content. */
function element(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  if (length < 0x80) return Buffer.concat([Buffer.from([tag, length]), content]);
  const size = length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

const sequence = (...parts: readonly Buffer[]): Buffer => element(0x30, ...parts);
const boolean = (value: boolean): Buffer => element(0x01, Buffer.from([value ? 0xff : 0]));
const oid = (hex: string): Buffer => element(0x06, Buffer.from(hex, "hex"));
const utf8 = (text: string): Buffer => element(0x0c, Buffer.from(text));
const bits = (bytes: Buffer): Buffer => element(0x03, Buffer.from([0]), bytes);

const OID = {
  commonName: oid("550403"),
  organization: oid("55040a"),
  basicConstraints: oid("551d13"),
  subjectAltName: oid("551d11"),
  extendedKeyUsage: oid("551d25"),
  serverAuth: oid("2b06010505070301"),
  clientAuth: oid("2b06010505070302"),
  ecdsaWithSha256: oid("2a8648ce3d040302"),
};

/** UTCTime up to 2049, as RFC 5280 requires. */
function time(date: Date): Buffer {
  const digits = date.toISOString().replace(/\D/g, "").slice(2, 14);
  return element(0x17, Buffer.from(`${digits}Z`));
}

function distinguishedName({
  commonName,
  organization,
}: Pick<CertificateOptions, "commonName" | "organization">): Buffer {
  const attribute = (type: Buffer, value: string) => element(0x31, sequence(type, utf8(value)));
  const parts = organization === undefined ? [] : [attribute(OID.organization, organization)];
  return sequence(...parts, attribute(OID.commonName, commonName));
}

function extension(id: Buffer, value: Buffer, critical = false): Buffer {
  return sequence(id, ...(critical ? [boolean(true)] : []), element(0x04, value));
}

function generalName(host: string): Buffer {
  if (isIP(host) === 0) return element(0x82, Buffer.from(host));
  if (isIPv4(host)) return element(0x87, Buffer.from(host.split(".").map(Number)));
  if (host !== "::1") throw new Error(`${host}: the only supported IPv6 address is ::1`);
  return element(0x87, Buffer.from([...Array.from({ length: 15 }, () => 0), 1]));
}

function certificate(
  issuer: Buffer,
  options: CertificateOptions,
  publicKey: KeyObject,
  extensions: readonly Buffer[],
  authorityKey: KeyObject,
): string {
  const now = Date.now();
  const { notBefore = new Date(now - DAY_MS), notAfter = new Date(now + 3650 * DAY_MS) } = options;
  // The first byte is below 0x80 and not 0: a positive number in its shortest form.
  const serial = Buffer.concat([Buffer.from([0x01]), randomBytes(15)]);
  const toBeSigned = sequence(
    element(0xa0, element(0x02, Buffer.from([2]))),
    element(0x02, serial),
    sequence(OID.ecdsaWithSha256),
    issuer,
    sequence(time(notBefore), time(notAfter)),
    distinguishedName(options),
    publicKey.export({ type: "spki", format: "der" }),
    element(0xa3, sequence(...extensions)),
  );
  const signature = sign("sha256", toBeSigned, authorityKey);
  const der = sequence(toBeSigned, sequence(OID.ecdsaWithSha256), bits(signature));
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}
