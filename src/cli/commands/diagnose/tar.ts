/**
 * Creates a tar archive of a few small files (POSIX.1-1988, ustar). These thirty lines replace `tar-stream` and its four packages, to keep the
 * image small.
 */
const BLOCK = 512;
/** Bytes of the name field. */
const MOST_NAME = 100;

export interface ArchivedFile {
  /** ASCII, at most 100 bytes. */
  readonly name: string;
  readonly text: string;
}

/** @param mtime Unix time, ms. */
export function tarOf(files: readonly ArchivedFile[], mtime: number): Buffer {
  const parts = files.flatMap(({ name, text }) => {
    const contents = Buffer.from(text);
    return [header(name, contents.length, mtime), contents, Buffer.alloc(-contents.length & (BLOCK - 1))];
  });
  return Buffer.concat([...parts, Buffer.alloc(2 * BLOCK)]);
}

function header(name: string, size: number, mtime: number): Buffer {
  if (Buffer.byteLength(name) > MOST_NAME) throw new RangeError(`${name}: longer than ${MOST_NAME} bytes`);
  const block = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, digits: number): void => {
    block.write(`${value.toString(8).padStart(digits, "0")}\0`, at, "latin1");
  };
  block.write(name, 0, "latin1");
  octal(0o600, 100, 7);
  octal(0, 108, 7);
  octal(0, 116, 7);
  octal(size, 124, 11);
  octal(Math.floor(mtime / 1000), 136, 11);
  // The checksum is computed with blanks in its own field.
  block.write("        0", 148, "latin1");
  block.write("ustar\u000000", 257, "latin1");
  octal(
    block.reduce((sum, byte) => sum + byte, 0),
    148,
    6,
  );
  return block;
}
