/**
 * HTTP servers that handle one request per connection at a time. node:http parses and starts all pipelined requests as fast
 * as they arrive. A single client that never reads could fill the memory and block the event loop.
 */
import type { IncomingMessage, RequestListener, Server, ServerOptions, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Duplex, type DuplexOptions } from "node:stream";
import { network } from "./http.js";
import type { TakingTurns } from "./time-slice.js";

const CR = 13;
const LF = 10;

/** Bytes of a socket's input that Node buffers before it stops reading. One more read, up to 64 KiB, may follow. */
const READ_AHEAD = 16 * 1024;

const GATE_OPTIONS: DuplexOptions = { decodeStrings: false, readableHighWaterMark: READ_AHEAD };

/**
 * A connection as node:http sees it. It passes the bytes of one request, and the bytes of the next after that request
 * is answered. Until then they stay in the socket, which is not read any further.
 */
export class RequestGate extends Duplex {
  /** Unknown until node:http has parsed the head. */
  #bodyBytes = 0;
  #inHead = true;
  /** Only line breaks have arrived so far: they may precede a request. */
  #atStart = true;
  /** Progress through the blank line that ends a head: 1 after a line feed, 2 if a carriage return follows it. */
  #blank = 0;
  #answered = false;
  #shut = false;
  #ended = false;

  constructor(private readonly socket: Socket) {
    super(GATE_OPTIONS);
    socket
      .on("data", (chunk: Buffer) => this.#receive(chunk))
      .on("end", () => this.#end())
      .on("timeout", () => this.emit("timeout"))
      .on("error", (error) => this.destroy(error))
      .on("close", () => this.destroy());
  }

  /** Bytes of this connection in memory: waiting requests, and answers that the client has not read. */
  get pendingBytes(): number {
    return this.socket.readableLength + this.readableLength + this.writableLength;
  }

  /** True once the client has ended its side: it is gone, or waits for its last answer. "client-ended" is emitted then. */
  get clientEnded(): boolean {
    return this.#ended;
  }

  /** Call it when a request's head has been parsed. */
  passBody(bytes: number): void {
    this.#bodyBytes = bytes;
    if (bytes === 0) return;
    if (this.#ended) this.push(null);
    else this.#open();
  }

  /** Call it when the request is answered and the kernel has taken the answer. */
  passNext(): void {
    this.#answered = true;
    if (this.#bodyBytes === 0) this.#begin();
  }

  /** Like a socket's. */
  setTimeout(ms: number): this {
    this.socket.setTimeout(ms);
    return this;
  }

  /** Like a socket's: node:http calls it after a connection's last answer. */
  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once("finish", () => this.destroy());
  }

  override _read(): void {
    if (!this.#shut) this.socket.resume();
  }

  override _write(chunk: Buffer | string, encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.socket.write(chunk, encoding, done);
  }

  override _writev(
    chunks: readonly { readonly chunk: Buffer | string; readonly encoding: BufferEncoding }[],
    done: (error?: Error | null) => void,
  ): void {
    this.socket.cork();
    for (const [index, { chunk, encoding }] of chunks.entries()) {
      this.socket.write(chunk, encoding, index === chunks.length - 1 ? done : undefined);
    }
    this.socket.uncork();
  }

  override _final(done: (error?: Error | null) => void): void {
    this.socket.end(() => done());
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.socket.destroy();
    done(error);
  }

  #begin(): void {
    this.#answered = false;
    this.#inHead = true;
    this.#atStart = true;
    this.#blank = 0;
    if (this.#ended) this.push(null);
    else this.#open();
  }

  /** Answers a complete request first: node:http would end the connection at once, without the answer. */
  #end(): void {
    this.#ended = true;
    const answering = !this.#inHead && this.#bodyBytes === 0;
    if (!answering) this.push(null);
    this.emit("client-ended");
  }

  #open(): void {
    this.#shut = false;
    this.socket.resume();
  }

  #receive(chunk: Buffer): void {
    const length = this.#inHead ? this.#headBytes(chunk) : Math.min(chunk.length, this.#bodyBytes);
    const ofBody = !this.#inHead && length > 0;
    if (ofBody) this.#bodyBytes -= length;
    else if (this.#blank === 3) this.#inHead = false;
    if (length < chunk.length) {
      this.#shut = true;
      this.socket.pause();
      this.socket.unshift(chunk.subarray(length));
    }
    if (length > 0 && !this.push(chunk.subarray(0, length))) this.socket.pause();
    // Some handlers answer before the whole body has arrived.
    if (ofBody && this.#bodyBytes === 0 && this.#answered) this.#begin();
  }

  /**
   * Bytes up to the end of the head, or all of them. A blank line without carriage returns also ends it, in case the parser
   * accepts that.
   */
  #headBytes(chunk: Buffer): number {
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at];
      if (this.#atStart && (byte === CR || byte === LF)) continue;
      this.#atStart = false;
      if (byte === LF) {
        this.#blank = this.#blank === 0 ? 1 : 3;
        if (this.#blank === 3) return at + 1;
      } else this.#blank = byte === CR && this.#blank === 1 ? 2 : 0;
    }
    return chunk.length;
  }
}

/** Decides which connections stay, and in which order requests are served. */
export interface Admission {
  readonly turns: TakingTurns;
  accepted(gate: RequestGate): void;
  busy(gate: RequestGate): void;
  /** The request is answered, or its connection has ended. */
  idle(gate: RequestGate): void;
}

/** Like http.createServer, with one gate per connection, and requests served in turns. */
export function createGatedServer(
  options: ServerOptions,
  admission: Admission,
  onRequest: (request: IncomingMessage, response: ServerResponse, gate: RequestGate) => void,
): Server {
  const listener: RequestListener = (request, response) => {
    const gate = request.socket as Duplex as RequestGate;
    const { "transfer-encoding": encoding, "content-length": length = "0" } = request.headers;
    if (encoding !== undefined) {
      // Only the parser knows where such a body ends, and it goes straight on to the next request.
      response.writeHead(411, { Connection: "close" }).end("Content-Length is required\n");
      return;
    }
    admission.busy(gate);
    response.once("close", () => {
      admission.idle(gate);
      gate.passNext();
    });
    // A client with many connections must not have all of them served in one turn of the event loop.
    void admission.turns.run(() => {
      if (response.destroyed) return;
      onRequest(request, response, gate);
      gate.passBody(Number(length));
    });
  };
  const server = network.http.createServer({ ...options, highWaterMark: READ_AHEAD }, listener);
  // The gate would never see node:http's own answer, and would wait for it forever.
  server.on("checkExpectation", (_request, response) => {
    response.writeHead(417, { Connection: "close" }).end("the only supported Expect header is 100-continue\n");
  });
  // node:http accepts any Duplex that is emitted as a connection.
  const [serve] = server.listeners("connection") as ((socket: Duplex) => void)[];
  server.removeAllListeners("connection").on("connection", (socket: Socket) => {
    const gate = new RequestGate(socket);
    admission.accepted(gate);
    serve.call(server, gate);
  });
  return server;
}
