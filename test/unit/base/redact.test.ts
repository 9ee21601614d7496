/** Text that looks like a secret is removed, and nothing else. */
import { expect, test } from "vitest";
import { redactText } from "../../../src/base/redact.js";
import { ownMs } from "../../bench/loop-watch.ts";
import { patience } from "../../lab/patience.ts";

const BASE64 = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw";

test.each([
  ["Authorization: Bearer abc.def-1", "Authorization: Bearer (removed)"],
  ["authorization: token hunter", "authorization: token (removed)"],
  ['{"Authorization":"Basic dXNlcjpwYXNz","a":1}', '{"Authorization":"Basic (removed)","a":1}'],
  ["Proxy-Authorization: Negotiate YIIZ\r\nHost: x", "Proxy-Authorization: Negotiate (removed)\r\nHost: x"],
  ['Authorization: Digest username="a", response="5ccc"', "Authorization: Digest (removed)"],
  ["Authorization: s3cr3t", "Authorization: (removed)"],
  ["sent token ghp_16C7e42F292c6912E7", "sent token (removed)"],
  ["Set-Cookie: sid=1; Path=/", "Set-Cookie: (removed)"],
  ["https://admin:hunter2@proxy:3128/", "https://(removed)@proxy:3128/"],
  ["https://admin:hun/ter/2@proxy:3128/x", "https://(removed)@proxy:3128/x"],
  ["https://:p/w@proxy", "https://(removed)@proxy"],
  ['{"token":"s3cret","a":1}', '{"token":"(removed)","a":1}'],
  ['{"token":"two words, \\"quoted\\"","a":1}', '{"token":"(removed)","a":1}'],
  ['"{\\"clientSecret\\":\\"abc\\",\\"a\\":1}"', '"{\\"clientSecret\\":\\"(removed)\\",\\"a\\":1}"'],
  ["--password=hunter2 --v=2", "--password=(removed) --v=2"],
  ["--password=a,b;c --v=2", "--password=(removed) --v=2"],
  ["--token abcdef --v 2", "--token (removed) --v 2"],
  ["api-key: abcdef", "api-key: (removed)"],
  ["X-API-Key:abcdef", "X-API-Key:(removed)"],
  ["apiKey = 'a b'", "apiKey = '(removed)'"],
  ["AWS_SECRET_ACCESS_KEY=wJalr/XUtn+FEMI= x=1", "AWS_SECRET_ACCESS_KEY=(removed) x=1"],
  ["client_key=abcdef", "client_key=(removed)"],
  ["client-key-data: TUlJ", "client-key-data: (removed)"],
  ["DB_PASS=abc, DB_USER=me", "DB_PASS=(removed), DB_USER=me"],
  ["GET /?access_token=abc&user=me", "GET /?access_token=(removed)&user=me"],
  ["passphrase: 'x'", "passphrase: '(removed)'"],
  ["said eyJhbGciOi.eyJpc3Mi.c2ln, then", "said (removed), then"],
])("%s", (text, expected) => {
  expect(redactText(text)).toBe(expected);
});

test.each([
  ["whole", `a\n-----BEGIN RSA PRIVATE KEY-----\n${BASE64}\n-----END RSA PRIVATE KEY-----\nb`],
  [
    "encrypted",
    `a\n-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0A-1B\n\n${BASE64}\n-----END RSA PRIVATE KEY-----\nb`,
  ],
  ["PKCS #8", `a\n-----BEGIN ENCRYPTED PRIVATE KEY-----\n${BASE64}\n-----END ENCRYPTED PRIVATE KEY-----\nb`],
  ["with digits and dots in its label", `a\n-----BEGIN X509 v1.2-----\n${BASE64}\n-----END X509 v1.2-----\nb`],
  ["without its end", `a\n-----BEGIN PRIVATE KEY-----\n${BASE64}\n${BASE64}\nMIIE\n\nb c`],
  ["encrypted, without its end", `a\n-----BEGIN PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n${BASE64}\nand b`],
  ["without its begin", `a b\n${BASE64}\n${BASE64}\n-----END PRIVATE KEY-----\nb`],
  ["in JSON", `{"a":"-----BEGIN PRIVATE KEY-----\\n${BASE64}\\n-----END PRIVATE KEY-----\\n","b":1}`],
  ["in JSON, without its end", `{"a":"-----BEGIN PRIVATE KEY-----\\n${BASE64}\\n${BASE64}","b":1}`],
])("PEM %s", (_, text) => {
  const redacted = redactText(text);
  expect(redacted).not.toMatch(/MII|ENCRYPTED/);
  expect(redacted).toMatch(/^[a{].*\(removed\).*b/s);
});

test.each([
  "connect ECONNREFUSED 10.96.0.1:443",
  "the token expired; token review failed",
  "Basic authentication failed",
  "open /var/run/secrets/kubernetes.io/serviceaccount/token: no such file or directory",
  "https://registry:8080/@scope/name",
  "https://[fd00::1]:6443/a@b",
  "mail to me@example.com: monkey=banana, keys: 3, tokens: 5",
  "service default/secret-store has 3 endpoints",
  "public-key-algorithm: rsa",
  "nft insert rule ip kube-proxy services",
])("ordinary words stay: %s", (text) => {
  expect(redactText(text)).toBe(text);
});

test("the time for a long text is proportional to its length", () => {
  const texts = [
    "a".repeat(500_000),
    `${BASE64}\n`.repeat(20_000),
    "-----BEGIN X-----".repeat(5_000),
    "https://a:".repeat(20_000),
    "-".repeat(500_000),
    "eyJ-".repeat(100_000),
    `${"eyJ-".repeat(100_000)}.a.`,
  ];
  for (const text of texts) {
    // This thread's own time: other load does not count. Some 20 ms are usual, and minutes if each place leads to another search.
    const began = ownMs();
    redactText(text);
    expect(ownMs() - began).toBeLessThan(patience(3_000));
  }
});
