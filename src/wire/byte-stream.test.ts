import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { type ByteStream, createByteStream } from "./byte-stream.ts";
import { tlsPair } from "./test-kit.ts";

let left: ByteStream;
let right: ByteStream;
let close = () => {};
beforeEach(async () => {
  const pair = await tlsPair();
  left = createByteStream(pair.a);
  right = createByteStream(pair.b);
  close = pair.close;
});
afterEach(() => close());

async function readAll(stream: ByteStream): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Writes until the stream makes it wait for good; gives the bytes taken until then. */
async function fill(stream: ByteStream): Promise<number> {
  const block = new Uint8Array(64 * 1024).fill(5);
  let taken = 0;
  for (;;) {
    const write = stream.write(block).then(() => "room");
    taken += block.length;
    const stuck = new Promise<string>((resolve) => setTimeout(resolve, 300, "stuck"));
    if ((await Promise.race([write, stuck])) === "stuck") return taken;
    if (taken > 256 * 1024 * 1024) throw new Error("nothing ever pushed back");
  }
}

async function readBytes(stream: ByteStream, wanted: number): Promise<number> {
  let got = 0;
  const reader = stream[Symbol.asyncIterator]();
  while (got < wanted) got += (await reader.next()).value?.length ?? 0;
  return got;
}

describe("byte streams over TLS", () => {
  test("a megabyte each way at once arrives whole, and an end is an end", async () => {
    const data = crypto.getRandomValues(new Uint8Array(65536));
    const all = Buffer.concat(new Array(16).fill(data));
    const send = async (stream: ByteStream) => {
      for (let i = 0; i < 16; i++) await stream.write(data);
    };
    const rightGets = readBytes(right, all.length);
    const leftGets = readBytes(left, all.length);
    await Promise.all([send(left), send(right)]);
    expect(await Promise.all([rightGets, leftGets])).toEqual([all.length, all.length]);
    await left.write(data);
    left.end();
    expect((await readAll(right)).equals(Buffer.from(data))).toBe(true);
    await Promise.all([left.closed, right.closed]);
  });

  test("a reader that does not read stops the writer, in both directions", async () => {
    for (const [writer, reader] of [
      [left, right],
      [right, left],
    ] as const) {
      const taken = await fill(writer);
      expect(taken).toBeLessThan(64 * 1024 * 1024);
      expect(await readBytes(reader, taken)).toBe(taken);
      await writer.write(new Uint8Array(1));
      expect(await readBytes(reader, 1)).toBe(1);
    }
  });

  test("a cut rejects a waiting writer and throws at the reader", async () => {
    await fill(left);
    const waiting = left.write(new Uint8Array(1));
    const reading = readAll(left);
    left.destroy();
    await expect(waiting).rejects.toThrow("over");
    await expect(reading).rejects.toThrow("cut");
    await expect(left.write(new Uint8Array(1))).rejects.toThrow("over");
    await readAll(right).catch(() => {});
    await right.closed;
    await expect(right.write(new Uint8Array(1))).rejects.toThrow("over");
  });

  test("bytes given back are read first, and leaving a loop keeps the stream open", async () => {
    await left.write(Buffer.from("world"));
    for await (const chunk of right) {
      right.unread(chunk);
      break;
    }
    right.unread(Buffer.from("hello "));
    left.end();
    expect((await readAll(right)).toString()).toBe("hello world");
  });
});
